"""SmolLM2's vocabulary against golden ids (made by tests/golden/make_smollm2_tokens.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.text.detokenizer import Detokenizer
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.tokenizer import Tokenizer
from tests.text.smollm2 import smollm2_metadata
from tests.text.texts import SPECIAL_TEXTS, TEXTS

pytestmark = pytest.mark.smollm2

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "smollm2_tokens.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(smollm2_metadata())


def test_the_golden_file_has_all_texts() -> None:
    assert [entry["text"] for entry in GOLDEN] == [*TEXTS, *SPECIAL_TEXTS]


@pytest.mark.parametrize("entry", GOLDEN, ids=[ascii(entry["text"][:20]) for entry in GOLDEN])
def test_ids_are_the_reference_s(tokenizer: Tokenizer, entry: dict[str, object]) -> None:
    assert tokenizer.encode(str(entry["text"])) == entry["ids"]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_decoding_gives_the_text_back_one_token_at_a_time_too(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push([token_id]) for token_id in ids]
    assert "".join(pieces) + detokenizer.finish() == tokenizer.decode(ids) == text
    assert "\ufffd" not in "".join(pieces)


def test_special_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.bos_token_id == 1
    assert tokenizer.end_token_ids == {0, 2}
    assert not tokenizer.adds_bos
    assert tokenizer.encode("<|im_end|>") == [2]
    assert 2 not in tokenizer.encode("<|im_end|>", parse_special=False)
    assert tokenizer.decode(tokenizer.encode("<|im_end|>", parse_special=False)) == "<|im_end|>"
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2]) == "hi"
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2], skip_special_tokens=False) == "<|im_start|>hi<|im_end|>"
    assert tokenizer.chat_template is not None
    assert "<|im_start|>" in tokenizer.chat_template
