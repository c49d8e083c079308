"""What the GPU's path holds, worked out from a description: weights, the cache, and the remedy for what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError
from pagoda.planning.costs import CostModel
from pagoda.planning.cuda_formats import packed_bytes
from pagoda.planning.cuda_holding import RESERVE_BYTES, CudaSettings, cuda_holding
from pagoda.planning.cuda_workspace import SCRATCH_FLOATS
from pagoda.planning.holding import Holding, weight_size
from pagoda.planning.memory import plan_memory
from pagoda.planning.model_spec import ModelSpec
from tests.planning.specs import llama_spec, smollm2

GIB = 1 << 30
PLAIN = CudaSettings(quantization=None, dtype="bfloat16", kv_dtype="bfloat16", block_size=16)


def untied() -> ModelSpec:
    return llama_spec(
        hidden_size=256,
        intermediate_size=512,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        vocab_size=1000,
        context_length=2048,
    )


def holding(spec: ModelSpec, stored: str | Mapping[str, str] = "BF16", **changes: Any) -> Holding:
    return cuda_holding(spec, stored, replace(PLAIN, **changes))


def sizes(held: Holding) -> dict[str, int]:
    return {weight.name: weight_size(weight, held.format_of) for weight in held.spec.weights}


def test_matrices_are_dense_in_the_activations_format_and_vectors_float32() -> None:
    spec = untied()
    for stored in ("F32", "F16", "BF16"):
        for dtype, element in (("bfloat16", 2), ("float16", 2), ("float32", 4)):
            held = holding(spec, stored, dtype=dtype)
            expected = sum(weight.num_elements * (4 if weight.part == "norm" else element) for weight in spec.weights)
            assert held.weight_bytes == expected


def test_what_is_stored_quantized_stays_packed_tables_too() -> None:
    spec = untied()
    for stored in ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "fp8", "fp8_block"):
        held, weights = sizes(holding(spec, stored)), {weight.name: weight.shape for weight in spec.weights}
        for name in ("embedding", "head", "layers.0.q", "layers.2.down"):
            assert held[name] == packed_bytes(stored, weights[name])


@pytest.mark.parametrize(("quantization", "element"), [("int8", 1), ("fp8", 1), ("int4", 0.5)])
def test_quantization_leaves_tables_and_head_dense(quantization: str, element: float) -> None:
    spec = untied()
    dense, narrow = sizes(holding(spec)), sizes(holding(spec, quantization=quantization))
    for name in ("embedding", "head", "norm"):
        assert narrow[name] == dense[name]
    elements = 512 * 256
    assert elements * element < narrow["layers.1.gate"] < 1.05 * elements * element
    # What is quantized already stays what it is.
    assert sizes(holding(spec, "Q4_0", quantization=quantization)) == sizes(holding(spec, "Q4_0"))


def test_rows_that_are_no_whole_units_stay_dense() -> None:
    spec = llama_spec(
        hidden_size=12, intermediate_size=20, num_layers=1, num_heads=1, num_kv_heads=1, vocab_size=8, context_length=64
    )
    for quantization in ("int8", "int4", "fp8"):
        assert holding(spec, quantization=quantization).weight_bytes == holding(spec).weight_bytes


def test_files_that_mix_formats_are_held_as_they_mix_them() -> None:
    spec = untied()
    mixed = {weight.name: "Q6_K" if weight.name.endswith(".v") else "Q4_K" for weight in spec.weights}
    mixed |= {weight.name: "F32" for weight in spec.weights if weight.part == "norm"}
    held = sizes(holding(spec, mixed))
    assert held["layers.0.k"] == packed_bytes("Q4_K", (128, 256))
    assert held["layers.0.v"] == packed_bytes("Q6_K", (128, 256))
    assert held["norm"] == 4 * 256


def test_keys_and_values_in_fp8_take_half() -> None:
    config = EngineConfig(num_kv_blocks=100)
    plans = [plan_memory(holding(smollm2(), kv_dtype=kv), config, usable_bytes=8 * GIB) for kv in ("bfloat16", "fp8")]
    assert [plan.block_bytes for plan in plans] == [16 * 30 * 2 * 3 * 128, 16 * 30 * 2 * 3 * 64]


def test_a_decode_step_reads_every_matrix_once() -> None:
    held = holding(untied(), quantization="int8")
    step = CostModel(held.spec, held.format_of, held.kv_held).step_cost([(100, 1)])
    row = 2 * 256  # of the table
    assert step.weight_bytes == held.weight_bytes - sizes(held)["embedding"] + row


def test_the_workspace_grows_with_each_limit_and_holds_what_is_fixed() -> None:
    base = {"max_batched_tokens": 512, "max_num_seqs": 8, "max_model_len": 1024}
    held = holding(smollm2())
    workspace = held.workspace(**base)
    assert workspace > RESERVE_BYTES + 4 * SCRATCH_FLOATS + 8 * 49_152 * 4
    for name, limit in base.items():
        for more in (1, 2, 3, 500):
            assert held.workspace(**{**base, name: limit + more}) >= workspace


# One sequence of 256 tokens, 16 blocks.
LEAST = EngineConfig(max_batched_tokens=64, max_num_seqs=1, memory_fraction=1.0, max_model_len=256)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "set quantization to int8"),
        ({"quantization": "int8"}, "set kv_cache_dtype to fp8"),
        ({"dtype": "float32", "kv_dtype": "float32"}, "set dtype to bfloat16"),
        ({"kv_dtype": "fp8"}, "set quantization to int8"),
        ({"quantization": "int4", "kv_dtype": "fp8"}, "no one setting changes that"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_setting_that_would(changes: dict[str, str], remedy: str) -> None:
    held = holding(smollm2(), **changes)
    plan = plan_memory(held, LEAST, usable_bytes=1 << 40)
    needed = held.weight_bytes + plan.workspace_bytes + plan.kv_bytes
    assert plan_memory(held, LEAST, usable_bytes=needed).num_blocks == 16
    with pytest.raises(DoesNotFitError, match=remedy):
        plan_memory(held, LEAST, usable_bytes=needed - 1)


def test_blocks_of_fp8_that_are_cut_leave_a_gate_without_its_product() -> None:
    """Up cannot follow a gate whose rows are not whole blocks, so their outputs go through memory: of one row here."""
    one = {"max_batched_tokens": 1, "max_num_seqs": 1, "max_model_len": 16}
    for inner, is_cut in ((384, False), (392, True)):
        spec = llama_spec(
            hidden_size=320,
            intermediate_size=inner,
            num_layers=2,
            num_heads=2,
            num_kv_heads=1,
            vocab_size=8,
            context_length=64,
        )
        blocks, rows = (holding(spec, stored).workspace(**one) for stored in ("fp8_block", "fp8"))
        assert (blocks > rows) == is_cut
