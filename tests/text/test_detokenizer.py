"""Streaming detokenizer: any token sequence, cut in any way."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.text.detokenizer import Detokenizer
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.tokenizer import Tokenizer
from tests.soak import soak_count
from tests.text.tiny import byte_level_metadata, sentencepiece_metadata

COUNT = soak_count(2000)


@cache
def tokenizers() -> dict[str, Tokenizer]:
    return {
        "gpt2": tokenizer_from_gguf(byte_level_metadata()),
        "llama": tokenizer_from_gguf(sentencepiece_metadata()),
    }


def stream(tokenizer: Tokenizer, chunks: list[list[int]], **options: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.finish()]


KINDS = st.sampled_from(["gpt2", "llama"])
CHUNKS = st.lists(st.lists(st.integers(-2, 300), max_size=6), max_size=12)


@settings(max_examples=COUNT, deadline=None)
@given(KINDS, CHUNKS, st.booleans(), st.booleans())
def test_joined_pieces_are_the_text_of_all_at_once(
    kind: str, chunks: list[list[int]], skip_special_tokens: bool, continuation: bool
) -> None:
    tokenizer = tokenizers()[kind]
    options = {"skip_special_tokens": skip_special_tokens, "continuation": continuation}
    whole = [token_id for chunk in chunks for token_id in chunk]
    text = "".join(stream(tokenizer, chunks, **options))
    assert text == "".join(stream(tokenizer, [whole], **options))
    assert text == "".join(stream(tokenizer, [[token_id] for token_id in whole], **options))
    if not continuation:
        assert text == tokenizer.decode(whole, skip_special_tokens)
    skipped = tokenizer.special_token_ids if skip_special_tokens else frozenset()
    data = b"".join(tokenizer.token_bytes(token_id) for token_id in whole if token_id not in skipped)
    assert text in {data.decode("utf-8", "replace"), data.removeprefix(b" ").decode("utf-8", "replace")}


@settings(max_examples=COUNT, deadline=None)
@given(KINDS, st.text(max_size=20))
def test_valid_text_never_shows_a_replacement_character_on_the_way(kind: str, text: str) -> None:
    tokenizer = tokenizers()[kind]
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    pieces = stream(tokenizer, [[token_id] for token_id in ids], continuation=False)
    assert "".join(pieces) == text
    assert text.count("\ufffd") == "".join(pieces).count("\ufffd")
    assert pieces[-1] == ""


def test_a_continuation_keeps_the_space_before_its_first_word() -> None:
    tokenizer = tokenizers()["llama"]
    ids = tokenizer.encode("hi", add_special_tokens=False)
    assert stream(tokenizer, [ids]) == [" hi", ""]
    assert stream(tokenizer, [ids], continuation=False) == ["hi", ""]
    assert stream(tokenizer, [[1], [], ids, ids], continuation=False) == ["", "", "hi", " hi", ""]


def test_bytes_that_can_never_be_a_character_are_shown_at_once() -> None:
    tokenizer = tokenizers()["llama"]
    byte = {value: 3 + value for value in range(256)}
    assert stream(tokenizer, [[byte[0xFF]], [byte[0xE2]], [byte[0x41]]]) == ["\ufffd", "", "\ufffdA", ""]
    assert stream(tokenizer, [[byte[0xE2]], [byte[0x82]]]) == ["", "", "\ufffd"]
    assert stream(tokenizer, [[byte[0xE2]], [byte[0x82]], [byte[0xAC]]]) == ["", "", "€", ""]


def test_special_tokens_are_shown_if_asked_for() -> None:
    tokenizer = tokenizers()["llama"]
    assert stream(tokenizer, [[1], [2]]) == ["", "", ""]
    assert stream(tokenizer, [[1], [2]], skip_special_tokens=False) == ["<s>", "</s>", ""]
