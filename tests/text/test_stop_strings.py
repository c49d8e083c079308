"""Stop strings: against a plain search over the whole text, for every way of cutting it."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pagoda.text.stop_strings import StopStrings
from tests.soak import soak_count

COUNT = soak_count(4000)

STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)
PIECES = st.lists(st.text("abc", max_size=6), max_size=8)


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The earliest occurrence, the shortest of several that begin there."""
    found = [(text.index(stop), len(stop), stop) for stop in stops if stop in text]
    return (text, None) if not found else (text[: min(found)[0]], min(found)[2])


def run(pieces: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    matcher = StopStrings(tuple(stops))
    shown = [matcher.push(piece)[0] for piece in pieces]
    rest, found = matcher.finish()
    assert matcher.found == found
    return [*shown, rest], found


@settings(max_examples=COUNT, deadline=None)
@given(PIECES, STOPS)
@example(["abcd"], ["bc", "abcd"])
@example(["abc", "x"], ["bc", "abcd"])
@example(["abc"], ["bc", "abcd"])
def test_the_joined_text_is_that_of_a_plain_search(pieces: list[str], stops: list[str]) -> None:
    shown, found = run(pieces, stops)
    assert ("".join(shown), found) == naive("".join(pieces), stops)


@settings(max_examples=COUNT, deadline=None)
@given(PIECES, STOPS)
def test_no_more_is_held_back_than_might_begin_a_stop_string(pieces: list[str], stops: list[str]) -> None:
    matcher = StopStrings(tuple(stops))
    seen = shown = ""
    for piece in pieces:
        seen += piece
        safe, found = matcher.push(piece)
        shown += safe
        if found is not None:
            break
        ends = [seen[len(seen) - size :] for size in range(1, len(seen) + 1)]
        held = max((len(end) for end in ends if any(s.startswith(end) for s in stops)), default=0)
        assert len(shown) == len(seen) - held


@settings(max_examples=COUNT, deadline=None)
@given(PIECES, STOPS)
@example(["xabcdef", "gZ"], ["ab", "xabcdefgh"])
def test_the_end_is_right_behind_the_stop_string(pieces: list[str], stops: list[str]) -> None:
    matcher = StopStrings(tuple(stops))
    shown = "".join(matcher.push(piece)[0] for piece in pieces)
    rest, found = matcher.finish()
    assert matcher.end == (None if found is None else len(shown + rest) + len(found))


@settings(max_examples=COUNT, deadline=None)
@given(PIECES, PIECES, STOPS)
def test_no_stop_string_begins_in_text_that_is_only_passed_through(
    before: list[str], pieces: list[str], stops: list[str]
) -> None:
    matcher = StopStrings(tuple(stops))
    for piece in before:
        assert matcher.push(piece, active=False) == (piece, None)
    shown = "".join(matcher.push(piece)[0] for piece in pieces)
    rest, found = matcher.finish()
    assert (shown + rest, found) == naive("".join(pieces), stops)


def test_held_text_is_shown_when_matching_is_suspended() -> None:
    matcher = StopStrings(("ab",))
    assert matcher.push("xa") == ("x", None)
    assert matcher.push("b", active=False) == ("ab", None)


def test_after_a_stop_string_everything_is_swallowed() -> None:
    matcher = StopStrings(("stop",))
    assert matcher.push("go stop now") == ("go ", "stop")
    assert matcher.push("more") == ("", "stop")
    assert matcher.push("more", active=False) == ("", "stop")
    assert matcher.finish() == ("", "stop")


def test_a_fresh_one_shares_nothing_but_the_strings() -> None:
    first = StopStrings(("ab",))
    first.push("xa")
    second = first.fresh()
    assert second.push("b") == ("b", None)
    assert first.push("b") == ("", "ab")


def test_a_long_text_of_near_misses_takes_linear_work() -> None:
    stop = "a" * 1000 + "b"
    matcher = StopStrings((stop,))
    shown = sum(len(matcher.push("a" * 1000)[0]) for _ in range(200))
    assert shown == 199_000
    assert matcher.push("b")[1] == stop
