"""Vocabularies in GGUF metadata: both kinds, and metadata that lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.pre_tokenizers import build_pre_tokenizer, word_splitting
from tests.text.texts import TEXTS
from tests.text.tiny import UNUSED, USER_DEFINED, byte_level_metadata, sentencepiece_metadata


def pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(token_id) for token_id in ids]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("metadata", [byte_level_metadata(), sentencepiece_metadata()], ids=["gpt2", "llama"])
def test_every_text_survives_the_round_trip(metadata: dict[str, Any], text: str) -> None:
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_byte_level_merges_by_rank() -> None:
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    assert pieces(tokenizer, tokenizer.encode("hello world")) == ["hello", " w", "o", "r", "l", "d"]
    assert pieces(tokenizer, tokenizer.encode("<|user|>é")) == ["<|user|>", "\ufffd", "\ufffd"]
    assert [tokenizer.token_bytes(token_id) for token_id in tokenizer.encode("é")] == [b"\xc3", b"\xa9"]


def test_sentencepiece_merges_by_score_and_writes_the_rest_as_bytes() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata())
    assert tokenizer.adds_bos
    # " a" has a better score than "ab", and "ab" a better one than "bc"; "é" has no piece.
    assert pieces(tokenizer, tokenizer.encode("abc babc")) == ["<s>", " a", "bc", " ", "b", "ab", "c"]
    assert [tokenizer.token_bytes(token_id) for token_id in tokenizer.encode("hié")[1:]] == [b" hi", b"\xc3", b"\xa9"]


def test_sentencepiece_without_a_space_before_the_text() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata(add_space_prefix=False, add_bos_token=False))
    assert pieces(tokenizer, tokenizer.encode("hi hi")) == ["hi", " hi"]
    assert tokenizer.decode(tokenizer.encode(" hi")) == " hi"


def test_numpy_arrays_are_as_good_as_lists() -> None:
    metadata = sentencepiece_metadata()
    arrays = dict(metadata)
    arrays["tokenizer.ggml.scores"] = np.array(metadata["tokenizer.ggml.scores"], np.float32)
    arrays["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], np.int32)
    arrays["tokenizer.ggml.bos_token_id"] = np.uint32(1)
    assert tokenizer_from_gguf(arrays).encode("abc hi") == tokenizer_from_gguf(metadata).encode("abc hi")


def test_entries_that_pad_the_vocabulary_are_no_tokens() -> None:
    metadata = byte_level_metadata()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    size = len(tokens)
    padded = byte_level_metadata(
        tokens=[*tokens, f"[PAD{size}]", "<unused>"], token_type=[*types, USER_DEFINED, UNUSED]
    )
    tokenizer = tokenizer_from_gguf(padded)
    assert tokenizer.vocab_size == size
    assert max(tokenizer.encode(f"[PAD{size}]")) < size
    assert tokenizer.token_bytes(size) == b""
    assert tokenizer.decode([size, size + 1, 10**9, -1]) == ""


def test_user_defined_tokens_are_found_and_shown() -> None:
    metadata = byte_level_metadata()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    tokenizer = tokenizer_from_gguf(byte_level_metadata(tokens=[*tokens, "«tool»"], token_type=[*types, USER_DEFINED]))
    ids = tokenizer.encode("a«tool»b", parse_special=False)
    assert ids[1] == len(tokens)
    assert tokenizer.decode(ids) == "a«tool»b"


def test_end_tokens_are_those_named_and_those_known() -> None:
    metadata = byte_level_metadata()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    size = len(tokens)
    tokenizer = tokenizer_from_gguf(
        byte_level_metadata(tokens=[*tokens, "<|eot_id|>", "stop"], token_type=[*types, 3, 1], eot_token_id=size + 1)
    )
    assert tokenizer.end_token_ids == {size - 2, size, size + 1}
    assert size + 1 in tokenizer.special_token_ids


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-2", ["Don", "'t", "Ġmix", "Ġ123", "Ġ", "Ġ45"]),
        ("smollm", ["Don", "'t", "Ġmix", "Ġ", "1", "2", "3", "ĠĠ", "4", "5"]),
        ("qwen2", ["Don", "'t", "Ġmix", "Ġ", "1", "2", "3", "Ġ", "Ġ", "4", "5"]),
        ("llama-bpe", ["Don", "'t", "Ġmix", "Ġ", "123", "Ġ", "Ġ", "45"]),
    ],
)
def test_words_are_cut_as_the_model_family_does(name: str, words: list[str]) -> None:
    cut = build_pre_tokenizer(word_splitting(name)).pre_tokenize_str("Don't mix 123  45")
    assert [word for word, _ in cut] == words


BYTE_LEVEL = len(byte_level_metadata()["tokenizer.ggml.tokens"])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "tokenizer.ggml.model is missing"),
        (byte_level_metadata(model=7), "tokenizer.ggml.model is 7, must be a str"),
        (byte_level_metadata(tokens=None), "tokenizer.ggml.tokens is missing"),
        (byte_level_metadata(tokens=[]), "tokenizer.ggml.tokens is missing or empty"),
        (byte_level_metadata(tokens="abc"), "tokenizer.ggml.tokens is 'abc', must be an array"),
        (byte_level_metadata(tokens=["a", 5]), r"tokenizer.ggml.tokens\[1\] is 5"),
        (byte_level_metadata(token_type=[1, 2]), f"tokenizer.ggml.token_type has 2 entries for {BYTE_LEVEL} tokens"),
        (byte_level_metadata(merges=["h e", "x yz"]), "merge 1 needs the token 'yz'"),
        (byte_level_metadata(merges=["h x"]), "merge 0 needs the token 'hx'"),
        (byte_level_metadata(merges=["he"]), r"tokenizer.ggml.merges\[0\] is 'he', must be two tokens"),
        (byte_level_metadata(eos_token_id=10**6), "tokenizer.ggml.eos_token_id is 1,000,000, but there are"),
        (byte_level_metadata(eos_token_id="2"), "tokenizer.ggml.eos_token_id is '2', must be a token id"),
        (byte_level_metadata(chat_template=5), "tokenizer.chat_template is 5"),
        (sentencepiece_metadata(scores=None), "tokenizer.ggml.scores is missing"),
        (sentencepiece_metadata(scores=[0.0]), "tokenizer.ggml.scores has 1 entries"),
        (sentencepiece_metadata(scores=[float("nan")] * 271), r"tokenizer.ggml.scores\[0\] is nan"),
    ],
)
def test_metadata_that_lie_are_named(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        tokenizer_from_gguf(metadata)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (byte_level_metadata(model="bert"), "tokenizer.ggml.model 'bert' is not supported; known: llama, gpt2"),
        (
            byte_level_metadata(pre="chatglm-bpe"),
            "tokenizer.ggml.pre 'chatglm-bpe' is not supported; known: default, gpt-2",
        ),
    ],
)
def test_unknown_kinds_are_refused_by_name(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        tokenizer_from_gguf(metadata)
