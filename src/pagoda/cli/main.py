"""The command `pagoda`: which commands there are, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pagoda.cli.bench import bench
from pagoda.cli.chat import chat
from pagoda.cli.console import note
from pagoda.cli.generate import generate
from pagoda.cli.inspect import inspect
from pagoda.cli.serve import serve
from pagoda.errors import PagodaError
from pagoda.version import __version__

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
NOBODY_READS = 141  # 128 + SIGPIPE


class _Commands(TyperGroup):
    """All commands; what they refuse becomes one sentence on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except PagodaError as error:
            note(f"pagoda: {error}")
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt as interrupt:
            note(f"pagoda: {interrupt}" if str(interrupt) else "pagoda: interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # What is still buffered has no reader either: the flush at exit must not complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOBODY_READS) from None


# Plain help and errors: importing rich would cost every `pagoda --help` a tenth of a second.
app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pagoda {__version__}")
        raise typer.Exit


@app.callback()
def pagoda(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run language models: GPT, LLaMA and Qwen class. MODEL is a hub id, a local directory, a .gguf file, or smollm2."""


app.command()(chat)
app.command()(generate)
app.command()(serve)
app.command()(inspect)
app.add_typer(bench, name="bench")


def main() -> None:
    """The entry point. Exit codes: 0 done, 1 partly failed, 2 refused, 130 interrupted, 141 nobody reads the output."""
    # A terminal that cannot show a character must not end the work.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="pagoda")
