"""What the native path holds, worked out from a description: the arena of the recorded program to the byte, and plans."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError, InvalidValueError, UnsupportedModelError
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.registry import family_for
from pagoda.ops.cpu_lowering import lower
from pagoda.ops.cpu_program import record
from pagoda.planning.costs import CostModel
from pagoda.planning.holding import Holding, torch_holding, weight_size
from pagoda.planning.memory import kv_block_bytes, plan_memory
from pagoda.planning.model_spec import WeightSpec
from pagoda.planning.native_formats import FORMS, Form, packed_bytes
from pagoda.planning.native_holding import native_holding
from pagoda.planning.native_workspace import arena_bytes, logit_slice_rows
from tests.native.stand_ins import fake_model
from tests.planning.specs import smollm2, tiny
from tests.soak import soak_count

COUNT = soak_count(1000)
# One of each kind that runs.
REAL = ("gpt2", "llama-7b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-3-27b")
GIB = 1 << 30


def mixed(seed: int) -> Callable[[WeightSpec], Form]:
    """Matrices in formats of all kinds, as files mix them."""
    return lambda weight: FORMS[zlib.crc32(f"{seed} {weight.name}".encode()) % 3]


def check_arena(config: dict[str, Any], form_of: Callable[[WeightSpec], Form], max_tokens: int) -> None:
    spec, model = fake_model(config, form_of)
    recorded = lower(record(model.forward), max_tokens).arena_bytes
    assert arena_bytes(spec, form_of, max_tokens) == recorded


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REAL)
def test_the_arena_of_real_models_is_the_recorded_one(name: str, form: Form) -> None:
    check_arena(dict(NAMED_SHAPES[name].config), lambda weight: form, 512)


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_arena_of_any_model_is_the_recorded_one(seed: int) -> None:
    rng = random.Random(seed)
    kv_heads, head_dim = rng.choice((1, 2, 3)), rng.choice((8, 16, 24, 32, 64, 80))
    config = {
        "model_type": rng.choice(("llama", "qwen2", "qwen3", "gemma3_text", "gpt2")),
        "hidden_size": 32 * rng.randint(1, 10),
        "intermediate_size": 32 * rng.randint(1, 30),
        "num_hidden_layers": rng.randint(1, 5),
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * rng.randint(1, 4),
        "head_dim": head_dim,
        "vocab_size": 64,
        "max_position_embeddings": 128,
        "sliding_window": 16,
        "sliding_window_pattern": 2,
    }
    if config["model_type"] == "gpt2":
        del config["head_dim"], config["num_key_value_heads"]
        config |= {"num_attention_heads": rng.choice((1, 2, 4)), "n_inner": config["intermediate_size"]}
    check_arena(config, mixed(seed), rng.choice((1, 17, 512)))


def holding(stored: str = "Q4_0", quantization: str | None = None) -> Holding:
    return native_holding(smollm2(), stored, quantization, threads=2)


def test_weights_are_whole_tiles_of_their_formats_and_vectors_float32() -> None:
    spec = tiny()
    held = native_holding(spec, "BF16", None, threads=2)
    matrices = [weight.shape for weight in spec.weights if len(weight.shape) == 2]
    assert held.weight_bytes == sum(packed_bytes("BF16", *shape) for shape in matrices) + 5 * 8 * 4


def test_a_bias_lies_beside_its_matrix_for_whole_tiles() -> None:
    config = {**NAMED_SHAPES["qwen2.5-0.5b"].config, "num_hidden_layers": 1}
    spec = family_for(config).spec(config)
    biases = [weight for weight in spec.weights if weight.name.endswith("_bias")]
    held = native_holding(spec, "Q8_0", None, threads=1)
    assert {(weight.shape, weight_size(weight, held.format_of)) for weight in biases} == {
        ((896,), 4 * 896),
        ((128,), 4 * 128),
    }


def test_keys_and_values_are_bf16_whatever_the_weights_are() -> None:
    for stored in ("F32", "BF16", "Q4_0"):
        plan = plan_memory(holding(stored), EngineConfig(num_kv_blocks=100), usable_bytes=8 * GIB)
        assert plan.block_bytes == kv_block_bytes(smollm2(), 16, 2)


def test_keys_and_values_in_int8_take_half_of_it() -> None:
    limits, usable = EngineConfig(memory_fraction=1.0, max_num_seqs=64, max_batched_tokens=64), 1 << 30
    plans = [
        plan_memory(native_holding(smollm2(), "Q4_0", None, 2, kv_dtype), limits, usable_bytes=usable)
        for kv_dtype in ("bfloat16", "int8")
    ]
    assert [plan.block_bytes for plan in plans] == [16 * 30 * 2 * 3 * 128, 16 * 30 * 2 * 3 * 66]
    assert plans[1].num_blocks / plans[0].num_blocks > 1.9
    assert [plan.kv_bytes for plan in plans] == [plan.num_blocks * plan.block_bytes for plan in plans]


@pytest.mark.parametrize("head_dim", [6, 516])
def test_heads_that_int8_does_not_have_are_refused(head_dim: int) -> None:
    spec = tiny()
    layer = replace(spec.layers[0], attention=replace(spec.layers[0].attention, head_dim=head_dim))
    odd = replace(spec, layers=(layer,) * len(spec.layers))
    limit = f"bfloat16 for a head_dim of {head_dim}; int8 has multiples of 4 up to 512"
    with pytest.raises(InvalidValueError, match=f"kv_cache_dtype: got 'int8', must be {limit}"):
        native_holding(odd, "F32", None, 1, "int8")
    assert "kv_cache_dtype" not in [field for field, _, _ in native_holding(odd, "F32", None, 1).alternatives]


def test_a_context_that_does_not_fit_in_bf16_may_fit_in_int8() -> None:
    config = EngineConfig(
        max_batched_tokens=64, max_num_seqs=1, memory_fraction=1.0, num_kv_blocks=512, max_model_len=8192
    )
    held = holding("Q4_0")
    workspace = held.workspace(max_batched_tokens=64, max_num_seqs=1, max_model_len=8192)
    for row, setting in ((66, "kv_cache_dtype to int8"), (65, None)):
        usable = held.weight_bytes + workspace + 512 * 16 * 30 * 2 * 3 * row
        with pytest.raises(DoesNotFitError, match=f"set {setting}$" if setting else "no one setting changes that"):
            plan_memory(held, config, usable_bytes=usable)


def test_quantization_shrinks_what_is_dense_and_leaves_what_is_quantized() -> None:
    dense = holding("BF16").weight_bytes
    to_8, to_4 = holding("BF16", "int8").weight_bytes, holding("BF16", "int4").weight_bytes
    assert to_8 == holding("Q8_0").weight_bytes < 0.54 * dense
    # The tied table stays at 8 bits.
    assert holding("Q4_0").weight_bytes < to_4 < to_8
    assert holding("Q4_1", "int8").weight_bytes == holding("Q4_1").weight_bytes


def test_rows_that_are_no_whole_blocks_stay_dense() -> None:
    spec = tiny()  # rows of 8
    assert (
        native_holding(spec, "F32", "int4", threads=1).weight_bytes == native_holding(spec, "F32", None, 1).weight_bytes
    )


def test_a_decode_step_reads_every_packed_matrix_once() -> None:
    held = holding("Q4_0")
    costs = CostModel(held.spec, held.format_of, held.kv_held)
    first = costs.step_cost([(100, 1)])
    row = packed_bytes("Q4_0", 16, 576) // 16
    assert first.weight_bytes == held.weight_bytes + row  # tied: the table is read as the head
    assert costs.step_cost([(101, 1)]).kv_read_bytes - first.kv_read_bytes == 30 * 2 * 3 * 64 * 2


def test_the_workspace_grows_with_each_limit_and_holds_arena_and_logits() -> None:
    base = {"max_batched_tokens": 512, "max_num_seqs": 8, "max_model_len": 2048}
    workspace = holding().workspace(**base)
    logits = 8 * 49_152 * 4
    assert arena_bytes(smollm2(), lambda weight: "q8", 512) + logits < workspace < 64 << 20
    for name, limit in base.items():
        assert holding().workspace(**{**base, name: limit + 1}) >= workspace


def test_a_slice_of_logits_is_no_larger_than_it_need_be() -> None:
    assert [logit_slice_rows(*limits) for limits in ((512, 256), (512, 3), (2, 64))] == [64, 3, 2]


def test_what_does_not_fit_dense_may_fit_quantized() -> None:
    with pytest.raises(DoesNotFitError, match=r"set quantization to int8$"):
        plan_memory(
            holding("F32"),
            EngineConfig(max_batched_tokens=64, max_num_seqs=1, memory_fraction=1.0),
            usable_bytes=330 << 20,
        )
    with pytest.raises(DoesNotFitError, match="no one setting changes that"):
        plan_memory(
            holding("Q8_0"),
            EngineConfig(max_batched_tokens=64, max_num_seqs=1, memory_fraction=1.0),
            usable_bytes=90 << 20,
        )


def test_heads_of_an_odd_size_are_refused() -> None:
    spec = tiny()
    odd = replace(spec.layers[1], attention=replace(spec.layers[1].attention, head_dim=3))
    with pytest.raises(UnsupportedModelError, match="head_dim on the CPU 3 is not supported; known: even ones"):
        native_holding(replace(spec, layers=(spec.layers[0], odd)), "F32", None, threads=1)


def test_the_native_path_needs_less_than_the_reference() -> None:
    config = EngineConfig(num_kv_blocks=512)
    native = plan_memory(holding("BF16"), config, usable_bytes=8 * GIB)
    reference = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=8 * GIB)
    assert native.weight_bytes < 0.51 * reference.weight_bytes
    assert native.workspace_bytes < reference.workspace_bytes / 2
