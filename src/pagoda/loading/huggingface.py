"""A Hugging Face directory: config.json, generation_config.json and safetensors in one file or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.loading.fp8 import fp8_scheme, with_scales
from pagoda.loading.hf_config import normalised_config, normalised_generation_config
from pagoda.loading.json_file import read_json_object
from pagoda.loading.mapped_file import MappedFile
from pagoda.loading.safetensors_header import Placed, read_safetensors_header

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class HuggingFaceCheckpoint:
    """A `Checkpoint` over a directory; see `loading.checkpoint` for its members."""

    kind: Literal["huggingface", "gguf"] = "huggingface"

    def __init__(self, directory: Path, name: str) -> None:
        """Opens and checks all files, and reads no weight. Raises `ModelFileError` or `UnsupportedModelError`."""
        self.config: Mapping[str, Any] = read_config(directory)
        generation_path = directory / "generation_config.json"
        generation = read_json_object(generation_path) if generation_path.exists() else {}
        self.name = name
        self.directory: Path | None = directory
        self.metadata: Mapping[str, Any] = {}
        self.generation_config: Mapping[str, Any] = normalised_generation_config(
            generation, self.config, str(generation_path), str(directory / CONFIG_NAME)
        )
        self._placed: dict[str, tuple[MappedFile, Placed]] = {}
        self._files: list[MappedFile] = []
        try:
            self._open_weights(directory)
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[str, TensorInfo] = {name: tensor.info for name, (_, tensor) in self._placed.items()}
        scheme = fp8_scheme(self.config)
        if scheme is not None:
            self.tensors = with_scales(self.tensors, scheme, str(directory))

    def read(self, name: str) -> StoredTensor:
        """The tensor's bytes, a view of the mapped file. Raises KeyError for an unknown name."""
        file, tensor = self._placed[name]
        info = self.tensors[name]
        stored = file.tensor_at(info, tensor.start)
        if info.scale is None:
            return stored
        file, scale = self._placed[info.scale.name]
        return replace(stored, scale=file.tensor_at(scale.info, scale.start))

    def release(self, name: str) -> None:
        """The tensor's bytes need not stay in memory. Raises KeyError for an unknown name."""
        file, tensor = self._placed[name]
        file.release(tensor.start, tensor.start + tensor.info.num_bytes)

    def close(self) -> None:
        """Lets go of the files; tensors already read stay valid, and no more can be read."""
        self._placed = {}
        for file in self._files:
            file.close()

    def _open_weights(self, directory: Path) -> None:
        file_of = _weight_map(directory)
        for file_name in sorted(set(file_of.values())) if file_of else _weight_files(directory):
            file = MappedFile(directory / file_name)
            self._files.append(file)
            for name, tensor in read_safetensors_header(file).items():
                if file_of.get(name, file_name) != file_name:
                    continue  # the index says that this tensor is to be taken from another file
                if name in self._placed:
                    raise ModelFileError(
                        f"{file.path}: tensor {shown(name)} is in {self._placed[name][0].path.name} as well"
                    )
                self._placed[name] = (file, tensor)
        missing = [name for name in file_of if name not in self._placed]
        if missing:
            raise ModelFileError(
                f"{directory / file_of[missing[0]]}: lacks the tensor {shown(missing[0])} that {INDEX_NAME} places there"
            )


def read_config(directory: Path) -> dict[str, Any]:
    """The directory's normalised config.json. Raises `ModelFileError`."""
    path = directory / CONFIG_NAME
    if not path.exists():
        raise ModelFileError(f"{directory}: has no config.json")
    return normalised_config(read_json_object(path), str(path))


def is_weight_file(name: str) -> bool:
    """Whether a file of this name, in the top folder, holds a model's own weights as safetensors.

    Adapters do not, nor does the vendor's second copy of the weights that Mistral's repositories have (`consolidated`).
    """
    return name.endswith(".safetensors") and "/" not in name and not name.startswith(("adapter_", "consolidated"))


def _weight_map(directory: Path) -> dict[str, str]:
    """Tensor name → file name as the index says; empty where there is no index."""
    path = directory / INDEX_NAME
    # transformers prefers the single file where a directory has both.
    if (directory / "model.safetensors").is_file() or not path.is_file():
        return {}
    weight_map = read_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(
            f"{path}: weight_map is {shown(weight_map)}, an object naming the tensors' files is needed"
        )
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or not _is_plain_safetensors(file_name):
            raise ModelFileError(
                f"{path}: tensor {shown(name)} is placed in {shown(file_name)}, "
                "which is not the plain name of a .safetensors file in this directory"
            )
    for file_name in sorted(set(weight_map.values())):
        if not (directory / file_name).is_file():
            raise ModelFileError(f"{path}: the file {shown(file_name)} that it names is missing")
    return weight_map


def _is_plain_safetensors(name: str) -> bool:
    """Whether the name stays inside the directory on every system (no separators, drives, NULs) and is no pickle."""
    return name.endswith(".safetensors") and not any(character in name for character in '/\\:\0"<>|?*')


def _weight_files(directory: Path) -> list[str]:
    if (directory / "model.safetensors").is_file():
        return ["model.safetensors"]
    names = sorted(path.name for path in directory.iterdir() if path.is_file())
    found = [name for name in names if is_weight_file(name)]
    if found:
        return found
    pickles = [name for name in names if name.endswith(PICKLE_SUFFIXES)]
    if pickles:
        raise ModelFileError(
            f"{directory}: has its weights in {pickles[0]}, a pickle, which can run code and is never loaded; "
            "convert the model to safetensors"
        )
    raise ModelFileError(f"{directory}: has no weights (no .safetensors files)")
