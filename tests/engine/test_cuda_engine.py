"""The engine on a GPU: on one where there is one, else its path over CPU tensors, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda import LLM, SamplingParams
from pagoda.errors import DoesNotFitError
from pagoda.planning.cuda_holding import MATRICES_OF_A_LAYER, MATRICES_OUTSIDE, PIECE_BYTES, RESERVE_BYTES
from pagoda.planning.cuda_sampling import sampler_bytes
from pagoda.runner import cuda_device
from pagoda.runner.cuda_device import Gpu
from tests.fp8_model import write_fp8_models
from tests.tiny_model import LAYERS

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
PROMPTS = ["Hello", "abc"]
SMALL: dict[str, Any] = {"max_num_seqs": 4, "max_batched_tokens": 32, "max_model_len": 64}


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(cuda_device, "find_gpu", lambda: Gpu("none", (9, 0), 4 << 30))


def texts(model: str, **config: Any) -> list[tuple[int, ...]]:
    with LLM(model, **SMALL, **config) as llm:
        return [tuple(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, GREEDY)]


def test_greedy_text_in_float32_is_the_reference_s(tiny_model: str) -> None:
    expected = texts(tiny_model, device="reference")
    assert texts(tiny_model, device="cuda", dtype="float32") == expected
    assert texts(tiny_model, device="cuda", dtype="float32", deterministic=True) == expected


def check_memory(llm: LLM) -> None:
    """Everything that is allocated by name is what the plan says."""
    assert (llm.held.weight_bytes, llm.held.kv_bytes) == (llm.plan.weight_bytes, llm.plan.kv_bytes)
    parts = vars(llm._engine.runner)
    choosing = sampler_bytes(SMALL["max_num_seqs"], llm.spec.vocab_size)  # from above
    assert 0.99 * choosing < parts["_sampler"].num_bytes <= choosing
    taken = parts["_model"].arena.nbytes + parts["_model"].machine.num_bytes + choosing
    taken += parts["_buffers"].num_bytes + parts["_chosen"].num_bytes + llm.plan.block_bytes  # a block is spare
    unnamed = RESERVE_BYTES + PIECE_BYTES * (MATRICES_OF_A_LAYER * LAYERS + MATRICES_OUTSIDE)
    assert taken == llm.plan.workspace_bytes - unnamed


@pytest.mark.parametrize("kv", ["auto", "fp8"])
@pytest.mark.parametrize("quantization", ["none", "int8", "int4", "fp8"])
def test_it_takes_what_was_planned(tiny_model: str, quantization: str, kv: str) -> None:
    with LLM(tiny_model, device="cuda", dtype="float32", quantization=quantization, kv_cache_dtype=kv, **SMALL) as llm:
        check_memory(llm)


@pytest.mark.parametrize("name", ["by-channel", "by-block"])
def test_fp8_checkpoints_are_kept_in_fp8(tmp_path: Path, name: str) -> None:
    narrow, dense = write_fp8_models(tmp_path, name, torch.float32)
    with LLM(narrow, device="cuda", dtype="float32", **SMALL) as llm:
        check_memory(llm)
        assert llm.plan.weight_bytes < 0.6 * sum(4 * weight.num_elements for weight in llm.spec.weights)
        got = [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY)]
    assert list(map(tuple, got)) == texts(dense, device="reference")


def test_not_fitting_is_a_sentence_with_figures(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "find_gpu", lambda: Gpu("none", (9, 0), 500 << 20))
    with pytest.raises(DoesNotFitError, match=r"the model does not fit: weights .*524,288,000 B usable"):
        LLM(tiny_model, device="cuda", **SMALL)
