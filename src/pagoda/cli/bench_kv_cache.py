"""`pagoda bench kv-cache`: what the KV cache is for, measured."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagoda.cli.options import with_derived_options
from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError

if TYPE_CHECKING:
    from pagoda.cli.bench_kv_recompute import Comparison
    from pagoda.engine.build import Engine
    from pagoda.progress import Progress

PROMPT = "Once upon a time, in a village by the sea, there lived"
PROMPT_TOKENS = 16
DEFAULT_LENGTHS = (128, 512, 2048)
SAMPLES = 16


@with_derived_options
def kv_cache(
    *,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="Tokens of the whole sequence. Default: of 128, 512 and 2,048 those that the model can have.",
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="How many tokens, up to each length, to compute without the cache as well.")
    ] = SAMPLES,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="The result as one page with charts.")] = None,
    png: Annotated[str | None, typer.Option(metavar="FILE", help="The charts as a picture (needs matplotlib).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    config: EngineConfig,
) -> None:
    """Measure what the KV cache is for.

    Generates with it and without it, loses a block of it, and gives out its blocks in two ways.
    """
    wanted = None if lengths is None else _lengths(lengths)
    if samples < 2:
        raise InvalidValueError("--samples", samples, "at least 2")
    if config.prefix_cache:
        raise InvalidValueError("--prefix-cache", True, "left out: what has been computed is to be computed anew here")
    if config.kv_allocation != "paged":
        raise InvalidValueError("--kv-allocation", config.kv_allocation, "left out: both ways are compared")
    if png is not None:
        from pagoda.cli.charts_png import check_matplotlib

        check_matplotlib()
        if png == html:
            raise InvalidValueError("--png", png, "another file than that of --html")

    from pagoda.cli.bench_kv_output import render, write_files
    from pagoda.cli.loading import load_engine
    from pagoda.cli.output_file import output_file
    from pagoda.progress import TerminalProgress

    with output_file("--html", html) as page, output_file("--png", png) as picture:
        engine = load_engine(dataclasses.replace(config, prefix_cache=False))
        try:
            with TerminalProgress() as bars:
                report, comparison = _measure(engine, _that_fit(wanted, engine.plan.max_model_len), samples, bars)
        finally:
            engine.close()
        report = {"model": config.model, **report}
        write_files(report, comparison, page, picture)
    render(report, comparison, json_)
    if report["device"] == "cpu" and not report["equal"]:
        raise typer.Exit(1)


def _measure(
    engine: Engine, lengths: tuple[int, ...], samples: int, bars: Progress
) -> tuple[dict[str, Any], Comparison]:
    """The report, under the names that `docs/cli.md` explains."""
    from pagoda.cli.bench_kv_allocation import compare_allocation
    from pagoda.cli.bench_kv_damage import damage
    from pagoda.cli.bench_kv_recompute import compare, report_of

    once = engine.tokenizer.encode(PROMPT)
    prompt = (once * PROMPT_TOKENS)[:PROMPT_TOKENS]
    comparison = compare(engine, prompt, lengths, samples, bars)
    compared = report_of(comparison, lengths)
    allocation = compare_allocation(engine, bars)
    ids = allocation["equal_outputs"] and all(each["equal_ids"] for each in compared)
    report = {
        "device": engine.device.kind,
        "dtype": engine.device.dtype,
        "instruction_set": engine.device.instruction_set,
        "threads": engine.device.threads,
        "block_size": engine.plan.block_size,
        "max_batched_tokens": engine.plan.max_batched_tokens,
        "prompt_tokens": len(prompt),
        "equal": ids,
        "lengths": compared,
        "damage": damage(engine, prompt, lengths[-1]),
        "allocation": allocation,
    }
    return report, comparison


def _lengths(text: str) -> tuple[int, ...]:
    least = PROMPT_TOKENS + 2
    parts = [part.strip().replace("_", "") for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 9 and int(part) >= least for part in parts):
        raise InvalidValueError("--lengths", text, f"integers of at least {least}, with commas between")
    return tuple(sorted({int(part) for part in parts}))


def _that_fit(wanted: tuple[int, ...] | None, most: int) -> tuple[int, ...]:
    if wanted is None:
        wanted = tuple(length for length in DEFAULT_LENGTHS if length <= most)
    if not wanted or wanted[-1] > most:
        asked = wanted[-1] if wanted else DEFAULT_LENGTHS[0]
        raise InvalidValueError("--lengths", asked, f"at most {most:,}, the longest sequence here")
    return wanted
