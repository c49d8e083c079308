"""The command `pagoda`: which commands there are, and what becomes of an error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pagoda.cli.bench import bench
from pagoda.cli.chat import chat
from pagoda.cli.console import note
from pagoda.cli.generate import generate
from pagoda.cli.inspect import inspect
from pagoda.cli.plan import plan
from pagoda.cli.refusals import mistyped, worded
from pagoda.cli.serve import serve
from pagoda.cli.simulate import simulate
from pagoda.cli.streams import flush_stdout, give_up, prepare_streams
from pagoda.errors import PagodaError
from pagoda.version import __version__

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
NOBODY_READS = 141  # 128 + SIGPIPE


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What goes wrong inside becomes one sentence on stderr and an exit code."""
    try:
        try:
            yield
        finally:
            flush_stdout()
    except PagodaError as error:
        note(f"pagoda: {worded(error)}")
        raise typer.Exit(BAD_INPUT) from None
    except typer.BadParameter as error:
        note(f"pagoda: {mistyped(error)}")
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt as interrupt:
        note(f"pagoda: {interrupt}" if str(interrupt) else "pagoda: interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(NOBODY_READS) from None
    except OSError as error:
        note(f"pagoda: {error.filename or 'reading or writing failed'}: {error.strerror or error}")
        raise typer.Exit(BAD_INPUT) from None


class _Commands(TyperGroup):
    """All commands. Both halves of a call are watched: `--help` and `--version` are printed while options are read."""

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        with _told():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


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
app.command()(plan)
app.command()(simulate)
app.add_typer(bench, name="bench")


def main() -> None:
    """The entry point. Exit codes: 0 done, 1 partly failed, 2 refused, 130 interrupted, 141 nobody reads the output."""
    prepare_streams()
    try:
        app(prog_name="pagoda")
    except OSError:  # not even the sentence about a mistyped option can be written
        give_up(sys.stderr)
        raise SystemExit(BAD_INPUT) from None
