"""Long texts are tokenized on another path, which lets other threads run: the ids are the same."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.tokenizer import LONG
from tests.text.tiny import byte_level_metadata, sentencepiece_metadata


@pytest.mark.parametrize(
    "metadata", [byte_level_metadata(), sentencepiece_metadata()], ids=["byte-level", "sentencepiece"]
)
def test_a_long_text_has_the_tokens_that_the_backend_gives_it(metadata: dict[str, Any]) -> None:
    tokenizer = tokenizer_from_gguf(metadata)
    text = "hello wörld, 12345\n\n  naïve 日本語 🎉\t" * (LONG // 20)
    assert len(text) > LONG
    expected = tokenizer._vocabulary.backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, add_special_tokens=False) == expected
    assert len(text) <= len(expected) * tokenizer.longest_piece
