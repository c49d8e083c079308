"""Models whose weights stay quantized in the GPU's path give what the reference gives with the same numbers dense."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from pagoda.loading.resolve import open_checkpoint
from tests.fp8_model import write_fp8_models
from tests.parity.configs import tiny_model
from tests.parity.cuda import CudaSteps
from tests.parity.gguf_files import write_llama
from tests.parity.harness import Sequences, Steps, load
from tests.parity.test_families import check_logits

# Some seconds each in Triton's interpreter.
pytestmark = pytest.mark.slow

PROMPTS = [np.random.default_rng(length).integers(3, 256, length).tolist() for length in (1, 6)]


def logits(steps: Sequences) -> np.ndarray:
    """Of every token: some at once, then one of each, then one alone."""
    parts: list[list[np.ndarray]] = [[], []]
    for shares in ({1: 4}, {0: 1, 1: 1}, {1: 1}):
        for row, got in steps.step(shares).items():
            parts[row].append(got)
    return np.concatenate([*parts[0], *parts[1]])


def check(path: Path, dense: Path | None = None, *, is_deterministic: bool = False) -> None:
    loaded = load(open_checkpoint(str(dense or path)))
    wanted = logits(Steps(loaded, PROMPTS, 6))
    check_logits(logits(CudaSteps(path, PROMPTS, 6, is_deterministic=is_deterministic)), wanted)


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_gguf(tmp_path: Path, kind: str) -> None:
    write_llama(tmp_path / "model.gguf", tiny_model("llama-gqa"), gguf.GGMLQuantizationType[kind])
    check(tmp_path / "model.gguf", is_deterministic=kind == "Q4_1")


@pytest.mark.parametrize("name", ["by-channel", "by-block"])
def test_fp8(tmp_path: Path, name: str) -> None:
    narrow, wide = write_fp8_models(tmp_path, name, torch.float32)
    check(Path(narrow), Path(wide))
