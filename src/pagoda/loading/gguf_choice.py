"""Which of several GGUF files is meant: by quantization (`Q4_K_M`) or by file name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pagoda.errors import ModelFileError, shown

_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
# How many files an error lists before it says "and N more".
_LISTED = 40


def choose_gguf(sizes: Mapping[str, int], choice: str | None, where: str, remedy: str) -> list[str]:
    """The file names (more than one for a split file, in order) of the one model that is meant.

    sizes: file name (its folder in the repository included) → bytes. Image encoders (`mmproj`) are left out.
    choice: a quantization as file names end with it (`Q4_K_M`; case does not matter), or a file's name; None where there is
    but one model to choose.
    remedy: ends the error's sentence when the choice is needed or wrong.
    Raises `ModelFileError`, listing the files and their sizes.
    """
    models = _models(sizes)
    if not models:
        raise ModelFileError(f"{where}: has no GGUF model")
    found = list(models) if choice is None else _matching(models, choice)
    if len(found) == 1:
        return models[found[0]]
    problem = (
        "has several GGUF models" if choice is None else f"has {len(found) or 'no'} GGUF models for {shown(choice)}"
    )
    listed = [f"{stem}.gguf ({_size(sum(sizes[name] for name in models[stem]))})" for stem in found or models]
    more = f", and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    raise ModelFileError(f"{where}: {problem}; {remedy}: {', '.join(listed[:_LISTED])}{more}")


def is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def _models(sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """Name without suffix and part number → its files, in order."""
    models: dict[str, list[str]] = {}
    for name in sorted(sizes):
        if is_gguf(name) and "mmproj" not in name.lower():
            models.setdefault(_PART.sub("", name[:-5]), []).append(name)
    return models


def _matching(models: Mapping[str, list[str]], choice: str) -> list[str]:
    by_name = [stem for stem, files in models.items() if choice in (*files, stem + ".gguf")]
    ending = re.compile(r"(^|[-._/])" + re.escape(choice) + "$", re.IGNORECASE)
    return by_name or [stem for stem in models if ending.search(stem)]


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"
