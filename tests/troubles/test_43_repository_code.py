"""Trouble 43: code from a model's repository runs although the setting says it must not.

Right: there is no such setting and no such code path. Modules and pickles in the directory are never imported, whatever the
configuration files say.
"""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from pagoda.config import EngineConfig
from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from tests.loading.files import TINY_CONFIG, huggingface_directory

AUTO_MAP = {
    "AutoConfig": "configuration_x.XConfig",
    "AutoModelForCausalLM": "modeling_x.XModel",
    "AutoTokenizer": ["tokenization_x.XTokenizer", None],
}
MODULES = ("configuration_x", "modeling_x", "tokenization_x", "custom_generate/generate", "__init__", "conftest")


class Trap:
    """Unpickling it writes the marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "unpickled")


def trapped_directory(tmp_path: Path, model_type: str) -> tuple[Path, Path]:
    """(a model's directory, full of code that writes a marker, the marker)"""
    marker = tmp_path / "marker"
    config = {**TINY_CONFIG, "model_type": model_type, "auto_map": AUTO_MAP, "trust_remote_code": True}
    directory = huggingface_directory(tmp_path / "model", config)
    (directory / "custom_generate").mkdir()
    for name in MODULES:
        (directory / f"{name}.py").write_text(f"import pathlib; pathlib.Path({str(marker)!r}).write_text('imported')\n")
    for name in ("tokenizer_config.json", "generation_config.json", "processor_config.json"):
        (directory / name).write_text(json.dumps({"auto_map": AUTO_MAP, "trust_remote_code": True}))
    for name in ("pytorch_model.bin", "training_args.bin", "scheduler.pt"):
        (directory / name).write_bytes(pickle.dumps(Trap(marker)))
    return directory, marker


@pytest.mark.parametrize("from_inside", [False, True])
def test_loading_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_inside: bool) -> None:
    directory, marker = trapped_directory(tmp_path, "llama")
    if from_inside:  # where an import by bare name would find the modules
        monkeypatch.chdir(directory)
        monkeypatch.syspath_prepend(str(directory))
    checkpoint = open_checkpoint("." if from_inside else str(directory))
    for name in checkpoint.tensors:
        checkpoint.read(name)
    assert family_for(checkpoint.config).name == "llama"
    assert "auto_map" not in checkpoint.config
    checkpoint.close()
    assert not marker.exists()
    assert not {"configuration_x", "modeling_x", "tokenization_x"} & sys.modules.keys()


def test_an_architecture_that_only_its_code_knows_is_refused(tmp_path: Path) -> None:
    directory, marker = trapped_directory(tmp_path, "x")
    checkpoint = open_checkpoint(str(directory))
    with pytest.raises(UnsupportedModelError, match="architecture 'x' is not supported; known: llama"):
        family_for(checkpoint.config)
    assert not marker.exists()


def test_weights_that_are_only_there_as_a_pickle_are_refused(tmp_path: Path) -> None:
    directory, marker = trapped_directory(tmp_path, "llama")
    (directory / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin, a pickle, which can run code and is never loaded"):
        open_checkpoint(str(directory))
    assert not marker.exists()


def test_the_traps_do_spring(tmp_path: Path) -> None:
    directory, marker = trapped_directory(tmp_path, "llama")
    pickle.loads((directory / "pytorch_model.bin").read_bytes())
    assert marker.read_text() == "unpickled"
    exec((directory / "modeling_x.py").read_text())
    assert marker.read_text() == "imported"


def test_there_is_no_setting_for_it() -> None:
    with pytest.raises(TypeError, match="trust_remote_code"):
        EngineConfig(trust_remote_code=True)  # type: ignore[call-arg]
