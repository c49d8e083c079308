"""How byte-level BPE vocabularies cut a text into words, by the name that GGUF files give it (`tokenizer.ggml.pre`).

The expressions are those of the models' own tokenizer.json files: GPT-2, Llama 3, Qwen 2, SmolLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pagoda.errors import UnsupportedModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
QWEN2_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"


@dataclass(frozen=True, slots=True)
class WordSplitting:
    """words: "gpt2" (the expression built into ByteLevel), "digits" (digits one by one, then gpt2), or an expression.

    ignore_merges: a word that is a token is that token, whatever the merges. nfc: the text is composed first.
    adds_bos: texts begin with BOS where the file does not say.
    """

    words: str
    ignore_merges: bool = False
    nfc: bool = False
    adds_bos: bool = False


_GPT2 = WordSplitting("gpt2")
_DIGITS = WordSplitting("digits")
_LLAMA3 = WordSplitting(LLAMA3_WORDS, ignore_merges=True, adds_bos=True)
_QWEN2 = WordSplitting(QWEN2_WORDS, nfc=True)

_BY_NAME = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def word_splitting(name: str) -> WordSplitting:
    """Raises `UnsupportedModelError` with the names known."""
    if name not in _BY_NAME:
        raise UnsupportedModelError("tokenizer.ggml.pre", name, _BY_NAME)
    return _BY_NAME[name]


def build_pre_tokenizer(splitting: WordSplitting) -> Any:
    """The `tokenizers` pre-tokenizer: words, then their bytes as the letters of byte-level BPE."""
    from tokenizers import Regex, pre_tokenizers

    if splitting.words == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if splitting.words == "digits":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    behavior: Literal["isolated"] = "isolated"
    split = pre_tokenizers.Split(Regex(splitting.words), behavior)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
