"""A model's outline: its configuration and what its files' headers say. No weight and no vocabulary is read.

It is what planning needs, so a configuration alone will do, and of a hub model only that (or a GGUF's header) is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pagoda.errors import ModelFileError
from pagoda.loading import default_model, hub
from pagoda.loading.checkpoint import TensorInfo
from pagoda.loading.gguf import merged_tensors, split_parts
from pagoda.loading.gguf_choice import is_gguf
from pagoda.loading.gguf_config import gguf_config
from pagoda.loading.gguf_header import GGUFHeader
from pagoda.loading.hf_config import normalised_config
from pagoda.loading.hub_header import HeaderUnavailableError, remote_gguf_headers
from pagoda.loading.huggingface import HuggingFaceCheckpoint, is_weight_file, read_config
from pagoda.loading.json_file import read_json_object
from pagoda.loading.mapped_file import MappedFile
from pagoda.loading.resolve import begins_with, existing_path, gguf_in, looks_like_path


@dataclass(frozen=True, slots=True)
class Outline:
    """kind, name, config: as of a `Checkpoint`, but without `rope_divisors`.

    tensors: what the headers list; empty where only a configuration is known. file_bytes: of the weights, where known.
    """

    kind: Literal["huggingface", "gguf"]
    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    file_bytes: int | None = None


def read_outline(model: str, revision: str | None = None) -> Outline | None:
    """The outline of what exists under that name, on disk first, then on the hub; None where the name is of no such kind.

    model: a directory (a config.json is enough), the path of a configuration (`.json`) or of a `.gguf` file, `smollm2`, or
    a hub id `org/name` (see `resolve.open_checkpoint`). Only a hub id uses the network.
    Raises `ModelFileError` or `UnsupportedModelError`.
    """
    path = existing_path(model)
    if path is not None:
        return _of_path(path, model)
    if model == default_model.NAME:
        return _of_gguf(default_model.find_default_model(), model)
    wanted = hub.parse_hub_id(model)
    # Names without an owner were the hub's once; today they would only delay the answer to a typing error.
    if wanted is None or "/" not in wanted.repository or looks_like_path(model):
        return None
    return _of_hub(wanted, revision, model)


def _of_path(path: Path, name: str) -> Outline:
    if path.is_dir():
        gguf = gguf_in(path)
        return _of_directory(path, name) if gguf is None else _of_gguf(gguf, name)
    if path.suffix == ".json":
        return Outline("huggingface", name, normalised_config(read_json_object(path), str(path)))
    if is_gguf(path.name) or begins_with(path, b"GGUF"):
        return _of_gguf(path, name)
    raise ModelFileError(f"{path}: is neither a directory, a config.json nor a GGUF file")


def _of_directory(directory: Path, name: str) -> Outline:
    if not any(is_weight_file(entry.name) for entry in directory.iterdir()):
        return Outline("huggingface", name, read_config(directory))
    checkpoint = HuggingFaceCheckpoint(directory, name)
    checkpoint.close()  # its headers have been read
    return _with_tensors("huggingface", name, checkpoint.config, checkpoint.tensors)


def _of_gguf(path: Path, name: str) -> Outline:
    headers = []
    for part in split_parts(path):
        file = MappedFile(part)
        try:
            headers.append(GGUFHeader(file, vocabulary=False))
        finally:
            file.close()
    return _of_headers(headers, name)


def _of_headers(headers: list[GGUFHeader], name: str) -> Outline:
    tensors = merged_tensors(headers)
    return _with_tensors("gguf", name, gguf_config(headers[0].metadata, tensors, str(headers[0].path)), tensors)


def _with_tensors(
    kind: Literal["huggingface", "gguf"], name: str, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]
) -> Outline:
    return Outline(kind, name, config, tensors, sum(tensor.num_bytes for tensor in tensors.values()))


def _of_hub(wanted: hub.HubId, revision: str | None, name: str) -> Outline:
    where = hub.named(wanted, revision)
    try:
        listing = hub.remote_files(wanted.repository, revision, where)
        gguf = hub.chosen_gguf(wanted, listing.sizes, where)
        if gguf:
            with hub.failures_explained(where, revision):
                sizes = {file: listing.sizes[file] for file in gguf}
                return _of_headers(remote_gguf_headers(wanted.repository, listing.commit, sizes), name)
        if "config.json" not in listing.sizes:
            raise ModelFileError(f"{where}: has no config.json")
        folder = hub.download(wanted.repository, revision, ["config.json"], where)
        num_bytes = sum(listing.sizes[file] for file in hub.weight_files(listing.sizes))
        return Outline("huggingface", name, read_config(folder), file_bytes=num_bytes or None)
    except HeaderUnavailableError as reason:
        raise ModelFileError(f"{where}: its header cannot be read before it is downloaded ({reason})") from None
    except hub.UnreachableError as reason:
        folder, cached = hub.cached_files(wanted.repository, revision, where, str(reason))
        gguf = hub.chosen_gguf(wanted, cached, where)
        return _of_gguf(folder / gguf[0], name) if gguf else _of_directory(folder, name)
