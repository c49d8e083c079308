"""Trouble 31: stop text leaks, or is missed inside a token. Right: hold back what may begin one, cut at the earliest."""

from __future__ import annotations

import pytest

from pagoda.text.detokenizer import Detokenizer
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.stop_strings import StopStrings
from tests.text.tiny import byte_level_metadata


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_stop_string_across_pieces_never_leaks(cut: int) -> None:
    text = "The answer is 4.\n\nUser: next question\n\nUser:"
    matcher = StopStrings(("\n\nUser:", "<|end|>"))
    shown = []
    for start in range(0, len(text), cut):
        new, found = matcher.push(text[start : start + cut])
        shown.append(new)
        if found:
            break
    assert "".join(shown) == "The answer is 4."
    assert matcher.found == "\n\nUser:"


def test_a_stop_string_inside_a_token_is_found() -> None:
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    hello = tokenizer.encode("hello")
    assert len(hello) == 1
    detokenizer, matcher = Detokenizer(tokenizer), StopStrings(("ell",))
    assert matcher.push(detokenizer.push(hello)) == ("h", "ell")


def test_a_stop_string_that_ends_in_half_a_character_waits_for_it() -> None:
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    detokenizer, matcher = Detokenizer(tokenizer), StopStrings(("é",))
    steps = [matcher.push(detokenizer.push([token_id])) for token_id in tokenizer.encode("aéb")]
    assert steps == [("a", None), ("", None), ("", "é"), ("", "é")]


def test_the_earliest_of_several_ends_the_text() -> None:
    assert StopStrings(("world", "o w")).push("hello world") == ("hell", "o w")
    assert StopStrings(("stop now", "stop")).push("do stop now") == ("do ", "stop")


def test_what_turns_out_to_be_no_stop_string_is_shown() -> None:
    matcher = StopStrings(("###",))
    assert matcher.push("# Title ##") == ("# Title ", None)
    assert matcher.push(" more") == ("## more", None)
    assert matcher.push("##") == ("", None)
    assert matcher.finish() == ("##", None)
