"""Tables for the terminal: what is drawn with rich goes to stdout whole, and wide enough."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console

from pagoda.cli.streams import put


@contextlib.contextmanager
def printed(least_width: int, markup: bool = False) -> Iterator[Console]:
    """A console to draw on; what was drawn is on stdout at the end.

    least_width: what the tables need, in columns. Elsewhere than in a terminal rich would fold them into 80.
    markup: whether rich's tags in square brackets are obeyed.
    """
    console = Console(highlight=False, markup=markup)
    if console.width < least_width and not console.is_terminal:
        console = Console(highlight=False, markup=markup, width=least_width)
    # Printed by this process itself, since rich ends a process whose output nobody reads.
    with console.capture() as shown:
        yield console
    put(shown.get())
