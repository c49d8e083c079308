"""Progress bars: only where somebody looks, and only for work that takes long."""

from __future__ import annotations

import pytest

from pagoda.progress import PATIENCE_SECONDS, TerminalProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("enabled", "seconds", "shown"), [(True, 1.9, False), (True, 2.1, True), (False, 9.0, False)])
def test_a_bar_comes_with_the_third_second(
    capfd: pytest.CaptureFixture[str], enabled: bool, seconds: float, shown: bool
) -> None:
    assert PATIENCE_SECONDS == 2.0
    clock = Clock()
    with TerminalProgress(enabled, clock) as bars:
        bars("Counting", 1, 10)
        clock.now += seconds
        bars("Counting", 9, 10)
    # Where stderr is no terminal, of a bar that was drawn only the end of its line is left.
    assert (capfd.readouterr().err != "") is shown
