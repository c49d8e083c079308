"""`pagoda generate`: one completion, or a batch file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagoda.cli.console import note, print_json, write
from pagoda.cli.loading import load
from pagoda.cli.options import with_derived_options
from pagoda.cli.streams import read_stdin
from pagoda.config import EngineConfig
from pagoda.errors import PagodaError
from pagoda.progress import TerminalProgress
from pagoda.sampling_params import SamplingParams

PARTLY_FAILED = 1


@with_derived_options
def generate(
    *,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="The text to go on from; - reads stdin.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat/--raw", help="Put the prompt through the chat template, or give it as it is.")
    ] = False,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="A batch file: on each line a JSON object with prompt (text or token ids) or messages, and if you like "
            "id and sampling parameters by name.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="Where the results of --input go. Run again after a stop, it goes on from there."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start --output anew.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    sampling: SamplingParams,
    config: EngineConfig,
) -> None:
    """Complete one prompt, or every line of a batch file.

    Exit code 0: done; 1: some lines of the batch failed; 2: refused.
    """
    if input_ is None and prompt is not None:
        if output is not None or overwrite:
            raise PagodaError("--output and --overwrite belong to --input; a single prompt's text goes to stdout")
        _complete(config, read_stdin().removesuffix("\n") if prompt == "-" else prompt, chat, json_, sampling)
    elif input_ is not None and prompt is None:
        if output is None:
            raise PagodaError("--input needs --output, the file that the results go to")
        if chat:
            raise PagodaError("--chat belongs to --prompt; in a batch file a line with messages is a chat")
        _batch(config, input_, output, overwrite=overwrite, json_=json_, sampling=sampling)
    else:
        raise PagodaError("give either --prompt TEXT (or - for stdin), or --input FILE with --output FILE")


def _complete(config: EngineConfig, prompt: str, chat: bool, json_: bool, sampling: SamplingParams) -> None:
    if not json_ and (sampling.logprobs is not None or sampling.prompt_logprobs is not None):
        raise PagodaError("--logprobs and --prompt-logprobs need --json, which can show them")

    from pagoda.cli.results import checked, result_json, wait_for

    with load(config) as llm:
        handle = llm.submit([{"role": "user", "content": prompt}] if chat else prompt, sampling)
        if json_ or sampling.n > 1:
            result = wait_for(handle, sampling.n * (sampling.max_tokens or llm.plan.max_model_len))
        else:
            for delta in handle:
                write(delta.text)
            write("\n")
            result = checked(handle.result())
    if json_:
        print_json(result_json(result))
    elif sampling.n > 1:
        for choice in result.outputs:
            write(f"--- {choice.index + 1} of {sampling.n} ---\n{choice.text}\n")


def _batch(
    config: EngineConfig, source: Path, target: Path, *, overwrite: bool, json_: bool, sampling: SamplingParams
) -> None:
    from pagoda.cli.batch import fingerprint, run_batch
    from pagoda.cli.batch_input import summarize
    from pagoda.cli.batch_output import BatchOutput, description_of

    for written in (target, description_of(target)):
        if written.exists() and source.exists() and written.samefile(source):
            raise PagodaError(f"--output: {written}, which it writes, is the input itself")

    with TerminalProgress() as bars:
        summary = summarize(source, bars)

    # One display at a time: loading the model shows bars of its own.
    made_from = fingerprint(summary, config, sampling)
    with BatchOutput(target, made_from, overwrite, summary.num_lines) as output:
        if output.num_done:
            note(f"{target} has {output.num_done:,} lines already; going on from there")
        try:
            with load(config) as llm, TerminalProgress() as bars:
                run_batch(llm, source, sampling, output, num_lines=summary.num_lines, bars=bars)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped after {output.num_done:,} of {summary.num_lines:,} lines; the same command goes on from there"
            ) from None
    if json_:
        print_json({"output": str(target), "lines": output.num_done, "failed": output.num_failed})
    else:
        note(f"{output.num_done:,} lines done, {output.num_failed:,} of them failed; results in {target}")
    if output.num_failed:
        raise typer.Exit(PARTLY_FAILED)
