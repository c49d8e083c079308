"""What a model's name means: the embedded default, a file, a directory, or a repository on the hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError, ModelFileError, shown
from pagoda.loading import default_model, hub
from pagoda.loading.checkpoint import Checkpoint
from pagoda.loading.gguf import GGUFCheckpoint
from pagoda.loading.gguf_choice import choose_gguf, is_gguf
from pagoda.loading.hub import Accept
from pagoda.loading.huggingface import PICKLE_SUFFIXES, HuggingFaceCheckpoint, is_weight_file


def accept_any(config: Mapping[str, Any]) -> None:
    """Refuses no model."""


def open_checkpoint(model: str, revision: str | None = None, accept: Accept = accept_any) -> Checkpoint:
    """Opens and checks a model's files, and reads no weight.

    model: `smollm2` (write `./smollm2` for a directory of that name), a `.gguf` file (or any part of a split one), a directory
    (with config.json and safetensors, or with one GGUF model), or a hub id `org/name`; `org/name:Q4_K_M`, or
    `org/name:FILE.gguf`, chooses a GGUF of that repository. What exists on disk goes before the hub.
    revision: branch, tag or commit of a hub model.
    accept: called with the configuration, and raises a `PagodaError` to refuse the model. Where weights have to be downloaded,
    it is called before that as well (then without a GGUF's `rope_divisors`), so it may be called twice. The one exception:
    a hub that does not let a GGUF's header be read first, or a header longer than `hub_header.MAX_HEADER_BYTES`.

    Only a hub id may use the network: the missing ones of its files are downloaded to huggingface_hub's cache, with the
    library's progress bars on stderr when that is a terminal.

    Raises what `accept` does (a `ModelFileError` with the model's name in front), `ModelFileError`, `UnsupportedModelError`,
    or `InvalidValueError` for a revision of what has none.
    """

    def accept_named(config: Mapping[str, Any]) -> None:
        try:
            accept(config)
        except ModelFileError as error:
            raise ModelFileError(f"{model}: {error}") from None

    checkpoint = _opened(model, revision, accept_named)
    try:
        accept_named(checkpoint.config)
    except BaseException:
        checkpoint.close()
        raise
    return checkpoint


def _opened(model: str, revision: str | None, accept: Accept) -> Checkpoint:
    checks.text("model", model, 4096)
    if revision is not None:
        checks.text("revision", revision, 4096)
    path = existing_path(model)
    wanted = None if path or model == default_model.NAME or looks_like_path(model) else hub.parse_hub_id(model)
    if wanted is not None:
        return _open_path(hub.fetch(wanted, revision, accept), model)
    if revision is not None:
        raise InvalidValueError("revision", revision, f"left out for {shown(model)}: only hub models have revisions")
    if path is not None:
        return _open_path(path, model)
    if model == default_model.NAME:
        return GGUFCheckpoint(default_model.default_model_path(), model)
    raise ModelFileError(
        f"model {shown(model)}: there is no such file or directory, and it is not a hub id "
        f"(org/name or org/name:QUANTIZATION) nor {default_model.NAME}, the embedded default"
    )


def existing_path(model: str) -> Path | None:
    """The file or directory of that name. The default's bare name is never one, so that it means the same everywhere."""
    path = os.path.expanduser(model)
    return Path(path) if model != default_model.NAME and os.path.exists(path) else None


def _open_path(path: Path, name: str) -> Checkpoint:
    if path.is_dir():
        return _open_directory(path, name)
    if not path.is_file():
        raise ModelFileError(f"{path}: is neither a file nor a directory")
    if is_gguf(path.name) or begins_with(path, b"GGUF"):
        return GGUFCheckpoint(path, name)
    if path.suffix in PICKLE_SUFFIXES:
        raise ModelFileError(f"{path}: is a pickle, which can run code and is never loaded; convert it to safetensors")
    if path.suffix == ".safetensors":
        raise ModelFileError(f"{path}: is only a model's weights; give the directory that has its config.json as well")
    raise ModelFileError(f"{path}: is neither a GGUF file nor a directory")


def _open_directory(directory: Path, name: str) -> Checkpoint:
    """A directory with config.json and safetensors, or with one GGUF model."""
    gguf = gguf_in(directory)
    return GGUFCheckpoint(gguf, name) if gguf else HuggingFaceCheckpoint(directory, name)


def gguf_in(directory: Path) -> Path | None:
    """The one GGUF model of a directory that has no safetensors. Raises `ModelFileError` if there are several."""
    try:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(directory) if entry.is_file()}
    except OSError as error:
        raise ModelFileError(f"{directory}: cannot be read ({error.strerror or error})") from None
    if any(is_gguf(file) for file in sizes) and not any(is_weight_file(file) for file in sizes):
        return directory / choose_gguf(sizes, None, str(directory), "give one file's path")[0]
    return None


def begins_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from None


def looks_like_path(model: str) -> bool:
    """Whether somebody who wrote this meant a file, so that the hub is not asked for it."""
    before_choice = model.partition(":")[0]
    suffixes = (".gguf", ".safetensors", "/", *PICKLE_SUFFIXES)
    return before_choice.startswith((".", "~", os.sep)) or before_choice.endswith(suffixes)
