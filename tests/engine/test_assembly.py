"""From token events to text: each token once, in order, and nothing past the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pagoda.core.step import RequestKey, TokenEvent
from pagoda.engine.admission import Admission
from pagoda.engine.assembly import RequestAssembler
from pagoda.engine.outputs import CompletionOutput
from pagoda.errors import InvariantError
from pagoda.sampling_params import SamplingParams
from pagoda.text.directory_vocabulary import tokenizer_from_directory
from pagoda.text.tokenizer import Tokenizer
from tests.tiny_model import END_OF_TEXT

TEXT = "abcdefgh"
KEY = RequestKey("request", 0)


@pytest.fixture(scope="module")
def tokenizer(tiny_model: str) -> Tokenizer:
    return tokenizer_from_directory(Path(tiny_model))


def assembler(tokenizer: Tokenizer, sampling: SamplingParams) -> RequestAssembler:
    admission = Admission(tokenizer, None, {}, 64, policy="fcfs", max_n=8, max_stop_strings=8)
    return RequestAssembler(admission.admit("request", "Hello", sampling), tokenizer)


def events(tokenizer: Tokenizer, text: str = TEXT, reason: str | None = "length") -> list[TokenEvent]:
    """One for each character; the last one ends it."""
    found = [TokenEvent(KEY, index, (token_id,)) for index, token_id in enumerate(tokenizer.encode(text))]
    return [*found[:-1], replace(found[-1], finish_reason=reason)]


def assembled(
    tokenizer: Tokenizer, sent: Sequence[TokenEvent], sampling: SamplingParams | None = None
) -> CompletionOutput:
    subject = assembler(tokenizer, sampling or SamplingParams(max_tokens=8))
    for event in sent:
        subject.take(event)
    return subject.output.outputs[0]


def test_events_that_come_again_change_nothing(tokenizer: Tokenizer) -> None:
    once = events(tokenizer)
    expected = assembled(tokenizer, once)
    assert (expected.text, expected.finish_reason) == (TEXT, "length")
    twice = [event for event in once for _ in range(2)]
    from_the_start_again = [*once[:5], *once]
    assert assembled(tokenizer, twice) == expected
    assert assembled(tokenizer, from_the_start_again) == expected


def test_of_events_that_overlap_only_what_is_new_is_taken(tokenizer: Tokenizer) -> None:
    token_ids = tuple(tokenizer.encode(TEXT))
    overlapping = [
        TokenEvent(KEY, 0, token_ids[:3]),
        TokenEvent(KEY, 1, token_ids[1:5]),
        TokenEvent(KEY, 0, token_ids[:4]),
        TokenEvent(KEY, 4, token_ids[4:], finish_reason="length"),
    ]
    assert assembled(tokenizer, overlapping) == assembled(tokenizer, events(tokenizer))


def test_a_gap_is_an_error_that_names_what_is_missing(tokenizer: Tokenizer) -> None:
    sent = events(tokenizer)
    with pytest.raises(InvariantError, match="tokens 2 to 3 of"):
        assembled(tokenizer, [*sent[:2], *sent[4:]])


def test_what_was_computed_past_a_stop_is_neither_shown_nor_counted(tokenizer: Tokenizer) -> None:
    subject = assembler(tokenizer, SamplingParams(max_tokens=8, stop=("cd",)))
    output = subject.output.outputs[0]
    deltas = [subject.take(event) for event in events(tokenizer)]
    assert (output.text, output.finish_reason, output.stop_reason) == ("ab", "stop", "cd")
    assert tokenizer.decode(output.token_ids) == "abcd"
    assert deltas[3] is not None
    assert deltas[3].finish_reason == "stop"
    assert deltas[4:] == [None] * 4


def test_the_same_in_one_event_of_many_tokens(tokenizer: Tokenizer) -> None:
    sent = [TokenEvent(KEY, 0, tuple(tokenizer.encode(TEXT)), finish_reason="length")]
    output = assembled(tokenizer, sent, SamplingParams(max_tokens=8, stop=("cd",)))
    assert (output.text, output.finish_reason, tokenizer.decode(output.token_ids)) == ("ab", "stop", "abcd")


@pytest.mark.parametrize("stop", ["d", "de"])
@pytest.mark.parametrize(("min_tokens", "text"), [(3, "abc"), (4, TEXT), (5, TEXT)])
def test_a_stop_string_counts_from_the_token_behind_min_tokens(
    tokenizer: Tokenizer, stop: str, min_tokens: int, text: str
) -> None:
    """ "d" is the fourth token: with at least three it may end the text, with at least four it may not."""
    output = assembled(tokenizer, events(tokenizer), SamplingParams(max_tokens=8, min_tokens=min_tokens, stop=(stop,)))
    assert output.text == text


def test_an_end_token_is_no_stop_reason_and_a_stop_token_is(tokenizer: Tokenizer) -> None:
    def ended_by(token_id: int, sampling: SamplingParams) -> CompletionOutput:
        last = TokenEvent(KEY, len(TEXT), finish_reason="stop", stop_token_id=token_id)
        return assembled(tokenizer, [*events(tokenizer, reason=None), last], sampling)

    stop = tokenizer.encode("z")[0]
    sampling = SamplingParams(max_tokens=16, stop_token_ids=(stop,))
    ended, stopped = ended_by(END_OF_TEXT, sampling), ended_by(stop, sampling)
    assert (ended.text, ended.finish_reason, ended.stop_reason) == (TEXT, "stop", None)
    assert (stopped.text, stopped.finish_reason, stopped.stop_reason) == (TEXT, "stop", stop)
