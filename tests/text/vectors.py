"""Checks tokenizers against test vectors as llama.cpp keeps them: a vocabulary, texts, and the ids each text must give.

    python tests/text/vectors.py DIR

For each DIR/ggml-vocab-NAME.gguf, NAME.gguf.inp holds texts parted by a line `__ggml_vocab_test__`, and NAME.gguf.out one
line of ids for each. Ids are without special tokens added or recognized. Exits with 1 if any differ, or there are none.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pagoda.errors import PagodaError
from pagoda.loading.gguf_reader import GGUFReader
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf

SEPARATOR = "\n__ggml_vocab_test__\n"


@dataclass(frozen=True, slots=True)
class Vector:
    text: str
    token_ids: list[int]


def read_vectors(vocabulary: Path) -> list[Vector]:
    """Raises ValueError where there are not as many texts as lines of ids, which would compare the wrong ones."""
    # Read as bytes: texts hold carriage returns that must stay.
    texts = vocabulary.with_name(vocabulary.name + ".inp").read_bytes().decode().split(SEPARATOR)
    if texts[-1] == "":  # each text is followed by the separator, the last one too
        texts.pop()
    lines = vocabulary.with_name(vocabulary.name + ".out").read_text(encoding="utf-8").split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(texts) != len(lines):
        raise ValueError(f"{vocabulary.name}: {len(texts)} texts, but {len(lines)} lines of ids")
    return [Vector(text, [int(item) for item in line.split()]) for text, line in zip(texts, lines, strict=True)]


def failures(vocabulary: Path, vectors: list[Vector]) -> list[str]:
    """A line for each text whose ids are not the expected ones. Raises `PagodaError` for a vocabulary that is refused."""
    with closing(GGUFReader(vocabulary)) as reader:
        tokenizer = tokenizer_from_gguf(reader.metadata)
    found = []
    for vector in vectors:
        token_ids = tokenizer.encode(vector.text, add_special_tokens=False, parse_special=False)
        if token_ids != vector.token_ids:
            found.append(f"{vector.text[:60]!r}: expected {vector.token_ids[:12]}, got {token_ids[:12]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokenizers against llama.cpp's test vectors.")
    parser.add_argument("directory", type=Path, help="holds ggml-vocab-*.gguf with .inp and .out")
    vocabularies = sorted(parser.parse_args().directory.glob("ggml-vocab-*.gguf"))
    num_passed = 0
    for vocabulary in vocabularies:
        try:
            vectors = read_vectors(vocabulary)
            wrong = failures(vocabulary, vectors)
        except (PagodaError, OSError, ValueError) as error:
            print(f"{vocabulary.name}: {error}")
            continue
        num_passed += not wrong
        print(f"{vocabulary.name}: {len(vectors) - len(wrong)} of {len(vectors)} texts", *wrong, sep="\n  ")
    print(f"{num_passed} of {len(vocabularies)} vocabularies pass")
    raise SystemExit(not vocabularies or num_passed < len(vocabularies))


if __name__ == "__main__":
    main()
