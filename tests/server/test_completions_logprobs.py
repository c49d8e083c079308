"""Log-probabilities in their written forms, where a server of the tiny model cannot show them."""

from __future__ import annotations

from pagoda.engine.outputs import PositionLogprobs, TokenLogprob
from pagoda.server.openai.logprobs import LegacyLogprobs, chat_logprobs, prompt_logprobs
from pagoda.text.detokenizer import Detokenizer

BOS, A, B, TWIN = range(4)


class Vocabulary:
    special_token_ids = frozenset({BOS})
    strips_leading_space = False

    def token_bytes(self, token_id: int) -> bytes:
        return (b"<s>", b"a", b"bb", b"a")[token_id]


def token(token_id: int, logprob: float, rank: int = 1) -> TokenLogprob:
    data = Vocabulary().token_bytes(token_id)
    return TokenLogprob(token_id, data.decode(), data, logprob, rank)


def test_a_bos_that_was_added_has_no_place_in_the_text() -> None:
    position = PositionLogprobs(token(A, -1.0), ())
    for hidden, offsets in ((True, [0, 0, 1]), (False, [0, 3, 4])):
        legacy = LegacyLogprobs(0, Detokenizer(Vocabulary(), skip_special_tokens=False))
        first = legacy.first(BOS, b"<s>", hidden)
        rest = legacy.of([position, position])
        assert first["text_offset"] + rest["text_offset"] == offsets
        assert first["token_logprobs"] == first["top_logprobs"] == [None]


def test_of_two_tokens_with_one_text_the_likelier_counts() -> None:
    position = PositionLogprobs(token(TWIN, -5.0, 3), (token(A, -1.0), token(B, -2.0, 2)))
    legacy = LegacyLogprobs(2, Detokenizer(Vocabulary()))
    shown = legacy.of([position])
    assert shown["top_logprobs"] == [{"a": -1.0, "bb": -2.0}]
    assert shown["token_logprobs"] == [-5.0]


def test_impossible_is_a_number_that_can_be_added_up() -> None:
    position = PositionLogprobs(token(A, -1e30), (token(B, -1e30),))
    assert LegacyLogprobs(1, Detokenizer(Vocabulary())).of([position])["token_logprobs"] == [-9999.0]
    assert chat_logprobs([position], 1)["content"][0]["top_logprobs"][0]["logprob"] == -9999.0
    assert prompt_logprobs([None, position], 0) == [
        None,
        {str(A): {"logprob": -9999.0, "rank": 1, "decoded_token": "a"}},
    ]


def test_no_more_alternatives_are_shown_than_were_asked_for() -> None:
    position = PositionLogprobs(token(A, -1.0), (token(A, -1.0), token(B, -2.0, 2)))
    assert len(chat_logprobs([position], 1)["content"][0]["top_logprobs"]) == 1
    assert LegacyLogprobs(1, Detokenizer(Vocabulary())).of([position])["top_logprobs"] == [{"a": -1.0}]
    (entry,) = prompt_logprobs([position], 1)
    assert list(entry or ()) == [str(A)]
