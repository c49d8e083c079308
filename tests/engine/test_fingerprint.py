"""The fingerprint: equal for what gives equal tokens, another one for whatever may change them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagoda import LLM
from pagoda.config import EngineConfig
from pagoda.engine import fingerprint as module
from pagoda.engine.fingerprint import fingerprint
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.runner.device import Device
from tests.models.fakes import LLAMA, FakeCheckpoint

CPU = Device("cpu", "stored", 1 << 30, 2, "avx512")
REFERENCE = Device("reference", "float32", 1 << 30, 2)
CUDA = Device("cuda", "bfloat16", 1 << 30, 2, gpu="NVIDIA H200")
TENSOR = "model.embed_tokens.weight"


class Weights(FakeCheckpoint):
    """All tensors are as the fake has them, but those whose bytes are given in `contents`."""

    def __init__(self, **changes: Any) -> None:
        super().__init__({**LLAMA, **changes})
        self.contents = {TENSOR: np.arange(64 * 32 * 4, dtype=np.int64).astype(np.uint8)}

    def read(self, name: str) -> StoredTensor:
        if name not in self.contents:
            return super().read(name)
        return StoredTensor(self.tensors[name], self.contents[name][None])


def of(checkpoint: FakeCheckpoint | None = None, device: Device = CPU, **more: Any) -> str:
    config = EngineConfig(**more.pop("settings", {}))
    return fingerprint(checkpoint or Weights(), config, device, more.get("template"), more.get("defaults", {}))


def test_it_is_short_and_the_same_each_time() -> None:
    assert of() == of()
    assert of().startswith("fp_")
    assert len(of()) == 15


def test_what_changes_numbers_changes_it() -> None:
    renamed, reformatted = Weights(), Weights()
    renamed.tensors = {f"{name}x": info for name, info in renamed.tensors.items() if name != TENSOR}
    reformatted.tensors[TENSOR] = TensorInfo(TENSOR, (64, 32), "F16", 64 * 32 * 4)
    others = [
        of(renamed),
        of(reformatted),
        of(Weights(rope_theta=5000.0)),
        of(device=replace(CPU, instruction_set="portable")),
        of(device=replace(CPU, dtype="int8")),
        of(device=replace(CPU, kv_dtype="int8")),
        of(device=REFERENCE),
        of(device=replace(REFERENCE, threads=1)),
        of(device=REFERENCE, settings={"max_batched_tokens": 64}),
        of(device=CUDA),
        of(device=replace(CUDA, gpu="NVIDIA H100 PCIe")),
        of(device=replace(CUDA, dtype="float16")),
        of(device=replace(CUDA, kv_dtype="fp8")),
        of(device=replace(CUDA, quantization="fp8")),
        of(device=replace(CUDA, is_deterministic=True)),
        of(template="{{ messages }}"),
        of(defaults={"temperature": 0.5}),
        of(),
    ]
    assert len(set(others)) == len(others)


def test_what_changes_none_on_the_cpu_does_not() -> None:
    settings = {"max_batched_tokens": 64, "max_num_seqs": 3, "block_size": 32, "threads": 1, "memory_fraction": 0.2}
    assert of(device=replace(CPU, threads=7, usable_bytes=5), settings=settings) == of()
    assert of(Weights(**dict(reversed(LLAMA.items())))) == of()


def test_versions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(module, "PACKING_VERSION", module.PACKING_VERSION + 1)
    packed = of()
    monkeypatch.setattr(module, "__version__", "99.0")
    assert len({before, packed, of()}) == 3


@pytest.mark.parametrize("place", [0, 8191])
def test_the_ends_of_a_large_tensor_are_always_seen(place: int) -> None:
    changed = Weights()
    changed.contents[TENSOR][place] ^= 1
    assert of(changed) != of()


def test_a_change_all_over_is_seen_and_a_small_tensor_is_seen_whole() -> None:
    changed = Weights()
    changed.contents[TENSOR] += 1
    assert of(changed) != of()
    for place in range(0, 128, 32):
        norm = Weights()
        norm.contents["model.norm.weight"] = np.ones(32, np.float32).view(np.uint8)
        norm.contents["model.norm.weight"][place] = 7
        assert of(norm) != of()


def test_a_directory_s_vocabulary_counts_and_its_place_does_not(tiny_model: str, tmp_path: Path) -> None:
    copied = shutil.copytree(tiny_model, tmp_path / "elsewhere")
    with LLM(tiny_model, threads=1, num_kv_blocks=8) as one, LLM(copied, threads=1, num_kv_blocks=8) as other:
        assert one.fingerprint == other.fingerprint
    tokenizer = json.loads((copied / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["lstrip"] = True
    (copied / "tokenizer.json").write_text(json.dumps(tokenizer))
    with LLM(copied, threads=1, num_kv_blocks=8) as changed:
        assert changed.fingerprint != one.fingerprint
