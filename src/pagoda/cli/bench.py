"""`pagoda bench`: how fast the engine is on this machine."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagoda.cli.bench_kv_cache import kv_cache
from pagoda.cli.console import note, print_json
from pagoda.cli.loading import load
from pagoda.cli.options import with_derived_options
from pagoda.config import EngineConfig, default_of
from pagoda.errors import InvalidValueError

if TYPE_CHECKING:
    from pagoda.planning.ledger import MemoryPlan

bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure speed on this machine.")


@bench.callback()
def _commands() -> None:
    """Measure speed on this machine."""


@bench.command()
@with_derived_options
def offline(
    *,
    batch: Annotated[int, typer.Option("--batch", help="Sequences at once.")] = 1,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Tokens of each prompt, at random.")] = 128,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", help="Tokens to generate for each, at least 2.")
    ] = 64,
    repeat: Annotated[int, typer.Option("--repeat", help="How often to measure, after one run to warm up.")] = 3,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    config: EngineConfig,
) -> None:
    """Measure prefill and decode of this engine, without a server."""
    for name, value, minimum in (
        ("--batch", batch, 1),
        ("--prompt-tokens", prompt_tokens, 1),
        ("--output-tokens", output_tokens, 2),
        ("--repeat", repeat, 1),
    ):
        if value < minimum:
            raise InvalidValueError(name, value, f"at least {minimum}")
    if batch > config.max_num_seqs:
        if config.max_num_seqs != default_of("max_num_seqs"):
            raise InvalidValueError("--batch", batch, f"at most --max-num-seqs ({config.max_num_seqs})")
        config = dataclasses.replace(config, max_num_seqs=batch)

    from pagoda.cli.bench_ceilings import ceilings_of
    from pagoda.cli.bench_offline import Load, measure
    from pagoda.progress import TerminalProgress

    with load(config) as llm:
        _check_room(llm.plan, batch, prompt_tokens, output_tokens)
        with TerminalProgress() as bars, ceilings_of(llm) as ceilings:
            measured = measure(llm, ceilings, Load(batch, prompt_tokens, output_tokens), repeat, bars)
        report = {
            "model": config.model,
            "device": llm.device.kind,
            "dtype": llm.device.dtype,
            "instruction_set": llm.device.instruction_set,
            "threads": llm.device.threads,
            "load_seconds": llm.load_seconds,
            **measured,
        }
    if json_:
        print_json(report)
    else:
        _print_table(report)


@bench.command()
def limits(
    *,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads. Default: one per physical core.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the figures, for --device this.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure what this machine's CPU can do at most.

    That is to read memory, and to multiply and add, in each weight format.
    """
    if threads is not None and threads < 1:
        raise InvalidValueError("--threads", threads, "at least 1")

    from pagoda.cli.this_machine import measured_limits, save_limits
    from pagoda.progress import TerminalProgress
    from pagoda.runner.host_cores import usable_cores

    with TerminalProgress() as bars:
        report = measured_limits(threads or usable_cores(), bars)
    if save:
        save_limits(report)
    if json_:
        print_json(report)
        return
    from pagoda.cli.bench_limits import table

    rows = table(report)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


@bench.command()
@with_derived_options
def calibrate(
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Where to save them. Default: MODEL's name and .step-times.json, here."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to measure, about.")] = 90.0,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    config: EngineConfig,
) -> None:
    """Measure a server's steps, for plan and simulate."""
    if not (math.isfinite(seconds) and seconds >= 1):
        raise InvalidValueError("--seconds", seconds, "a finite number of at least 1")
    path = output or Path(f"{Path(config.model).name}.step-times.json")
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidValueError("--output", str(path), "a file in a folder that exists")

    from pagoda.cli.bench_calibrate import calibrate as measure_and_fit
    from pagoda.cli.bench_calibrate import report_of, table_of, unrest
    from pagoda.cli.loading import load_async
    from pagoda.progress import TerminalProgress

    llm = load_async(config)
    try:
        with TerminalProgress() as bars:
            timer, measured = measure_and_fit(llm, seconds, bars)
    finally:
        llm.close()
    timer.save(path)
    report = {**report_of(timer, measured), "output": str(path)}
    if json_:
        print_json(report)
    else:
        for name, value in table_of(report):
            print(f"{name:<24}{value}")
    if warning := unrest(report):
        note(warning)


bench.command("kv-cache")(kv_cache)


def _check_room(plan: MemoryPlan, batch: int, prompt_tokens: int, output_tokens: int) -> None:
    """All sequences must run at once to the end, or something else than this batch would be measured."""
    length = prompt_tokens + output_tokens
    if length > plan.max_model_len:
        raise InvalidValueError(
            "--prompt-tokens", prompt_tokens, f"at most {plan.max_model_len - output_tokens:,} here"
        )
    blocks = batch * math.ceil(length / plan.block_size)
    if blocks > plan.num_blocks:
        at_most = plan.num_blocks // math.ceil(length / plan.block_size)
        limit = f"at most {at_most:,} at this length: the cache has {plan.num_blocks:,} blocks, {blocks:,} are needed"
        raise InvalidValueError("--batch", batch, limit)


def _print_table(report: dict[str, object]) -> None:
    width = max(map(len, report))
    for name, value in report.items():
        shown = "unknown" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)
        print(f"{name:<{width}}  {shown}")
