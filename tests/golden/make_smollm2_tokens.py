"""Makes smollm2_tokens.json: what SmolLM2's vocabulary makes of the texts in tests/text/texts.py.

The reference is byte-level BPE in plain Python after Sennrich et al. (arXiv:1508.07909) and GPT-2, written here anew so
that it shares no code with what it tests: words by the `regex` package, merges by always joining the best-ranked pair.
Run it from the repository: python -m tests.golden.make_smollm2_tokens
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import regex

from tests.text.smollm2 import smollm2_metadata
from tests.text.texts import SPECIAL_TEXTS, TEXTS

WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
DIGITS = regex.compile(r"(\p{N})")


def letters() -> list[str]:
    """Byte → letter, as GPT-2 chose them."""
    kept = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(shifted)) for byte in range(256)]


def word_ids(word: str, ids: dict[str, int], ranks: dict[tuple[str, str], int], alphabet: list[str]) -> list[int]:
    parts = [alphabet[byte] for byte in word.encode()]
    while len(parts) > 1:
        rank, at = min((ranks.get((parts[i], parts[i + 1]), len(ranks)), i) for i in range(len(parts) - 1))
        if rank == len(ranks):
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ids[part] for part in parts]


def main() -> None:
    metadata = smollm2_metadata()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    ids = {token: index for index, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): index for index, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == 3]
    split_special = re.compile("(" + "|".join(map(re.escape, sorted(special, key=len, reverse=True))) + ")")
    alphabet = letters()

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for piece in split_special.split(text):
            if piece in special:
                found.append(ids[piece])
                continue
            for part in DIGITS.split(piece):
                for word in WORDS.findall(part):
                    found += word_ids(word, ids, ranks, alphabet)
        return found

    golden = [{"text": text, "ids": encode(text)} for text in (*TEXTS, *SPECIAL_TEXTS)]
    lines = ",\n".join(json.dumps(entry) for entry in golden)
    (Path(__file__).parent / "smollm2_tokens.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
