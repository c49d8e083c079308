"""Trouble 32: half a character becomes U+FFFD. Right: bytes are held until a character is whole, or can be none."""

from __future__ import annotations

import pytest

from pagoda.text.detokenizer import Detokenizer
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from tests.text.tiny import byte_level_metadata, sentencepiece_metadata

KINDS = {"gpt2": byte_level_metadata(), "llama": sentencepiece_metadata()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["日本語", "naïve café", "👩‍👩‍👧‍👦👍🏽", "नमस्ते", "a€b𝄞c"])
def test_every_piece_is_whole_characters(kind: str, text: str) -> None:
    tokenizer = tokenizer_from_gguf(KINDS[kind])
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert any("\ufffd" in tokenizer.token_text(token_id) for token_id in ids), "the text must split inside a character"
    detokenizer = Detokenizer(tokenizer, continuation=False)
    pieces = [detokenizer.push([token_id]) for token_id in ids]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == text
    assert detokenizer.finish() == ""


def test_a_text_that_ends_inside_a_character_says_so_once_at_the_end() -> None:
    tokenizer = tokenizer_from_gguf(KINDS["gpt2"])
    ids = tokenizer.encode("ok 👍")[:-1]
    detokenizer = Detokenizer(tokenizer)
    assert "".join(detokenizer.push([token_id]) for token_id in ids) == "ok "
    assert detokenizer.finish() == "\ufffd"
    assert tokenizer.decode(ids) == "ok \ufffd"
