"""The memory formula: known figures, exact sums, limits."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError, UnsupportedModelError
from pagoda.planning.formats import tensor_bytes
from pagoda.planning.holding import torch_holding, weight_bytes
from pagoda.planning.ledger import binary_size, decimal_size, format_ledger
from pagoda.planning.memory import kv_block_bytes, kv_bytes_per_token, num_blocks_for, plan_memory
from pagoda.planning.model_spec import LayerSpec
from pagoda.planning.workspace import activation_bytes
from tests.planning.specs import llama_7b, smollm2, tiny

GIB = 1 << 30


def test_llama_7b_takes_half_a_mebibyte_of_kv_a_token_and_a_gibibyte_at_2048() -> None:
    assert kv_bytes_per_token(llama_7b(), 2) == 524_288
    assert 2048 * kv_bytes_per_token(llama_7b(), 2) == GIB
    assert kv_block_bytes(llama_7b(), 16, 2) == 16 * 524_288


def test_grouped_query_attention_caches_kv_heads_only() -> None:
    assert kv_bytes_per_token(smollm2(), 2) == 30 * 2 * 3 * 64 * 2


def test_layers_that_differ_are_summed() -> None:
    spec = tiny()
    first, second = spec.layers
    wide = LayerSpec(replace(second.attention, num_kv_heads=4), second.feed_forward)
    assert kv_bytes_per_token(replace(spec, layers=(first, wide)), 4) == 2 * (2 + 4) * 2 * 4


def test_a_window_does_not_shrink_the_cache() -> None:
    assert kv_bytes_per_token(tiny(windows=(16, None)), 4) == kv_bytes_per_token(tiny(), 4)


def test_weights_in_one_dtype() -> None:
    assert weight_bytes(llama_7b(), "float16") == 2 * 6_738_415_616
    assert weight_bytes(llama_7b(), "F32") == 4 * 6_738_415_616


def test_a_tied_head_is_counted_once() -> None:
    assert smollm2().num_parameters == 134_515_008
    assert weight_bytes(smollm2(), "bfloat16") == 2 * 134_515_008


def test_weights_by_their_own_formats() -> None:
    spec = smollm2()
    formats = {weight.name: "F32" if weight.part == "norm" else "Q8_0" for weight in spec.weights}
    expected = sum(tensor_bytes(weight.shape, formats[weight.name]) for weight in spec.weights)
    assert weight_bytes(spec, formats) == weight_bytes(spec, lambda weight: formats[weight.name]) == expected
    assert expected < weight_bytes(spec, "float16") * 0.54


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="IQ1_S"):
        weight_bytes(tiny(), "IQ1_S")


def test_blocks_round_up() -> None:
    assert [num_blocks_for(tokens, 16) for tokens in (1, 16, 17)] == [1, 1, 2]


@settings(deadline=None)
@given(
    num_tokens=st.integers(1, 4096),
    num_seqs=st.integers(1, 512),
    context=st.integers(1, 1 << 17),
    element_bytes=st.sampled_from((2, 4)),
)
def test_workspace_grows_with_each_limit(num_tokens: int, num_seqs: int, context: int, element_bytes: int) -> None:
    def workspace(tokens: int, seqs: int, length: int, size: int) -> int:
        return activation_bytes(
            smollm2(), max_batched_tokens=tokens, max_num_seqs=seqs, max_model_len=length, element_bytes=size
        )

    base = workspace(num_tokens, num_seqs, context, element_bytes)
    assert workspace(num_tokens + 1, num_seqs, context, element_bytes) >= base
    assert workspace(num_tokens, num_seqs + 1, context, element_bytes) >= base
    assert workspace(num_tokens, num_seqs, context + 1, element_bytes) >= base


def test_workspace_does_not_hold_every_sequence_at_full_length() -> None:
    spec = smollm2()
    all_gathered = 64 * 8192 * kv_bytes_per_token(spec, 4) // spec.num_layers
    workspace = activation_bytes(spec, max_batched_tokens=512, max_num_seqs=64, max_model_len=8192, element_bytes=4)
    assert workspace < all_gathered


def test_explicit_blocks_are_honoured_exactly() -> None:
    config = EngineConfig(num_kv_blocks=7)
    plan = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=8 * GIB)
    assert (plan.num_blocks, plan.max_model_len) == (7, 7 * 16)


def test_contradictory_limits_are_refused_with_both_figures() -> None:
    config = EngineConfig(num_kv_blocks=7, max_model_len=200)
    with pytest.raises(InvalidValueError, match=r"max_model_len: got 200.* 112,.*num_kv_blocks at least 13") as refused:
        plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=8 * GIB)
    assert refused.value.field == "max_model_len"


def test_a_context_beyond_the_models_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="max_model_len: got 8193, must be at most 8,192"):
        plan_memory(torch_holding(smollm2(), 4), EngineConfig(max_model_len=8193), usable_bytes=64 * GIB)


def test_weights_held_otherwise_change_the_plan() -> None:
    config = EngineConfig(memory_fraction=1.0)
    plain = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=2 * GIB)
    less = replace(torch_holding(smollm2(), 4), weight_bytes=100_000_000)
    packed = plan_memory(less, config, usable_bytes=2 * GIB)
    assert packed.weight_bytes == 100_000_000
    assert packed.num_blocks > plain.num_blocks


def test_the_ledger_reads_well_and_its_json_has_every_figure() -> None:
    plan = plan_memory(torch_holding(smollm2(), 4), EngineConfig(), usable_bytes=8 * GIB)
    text = format_ledger(plan)
    assert "538,060,032 B" in text
    assert "513.13 MiB" in text
    assert "8.00 GiB" in text
    assert "8.59 GB" in text
    figures = json.loads(json.dumps(plan.as_dict()))
    assert sum(entry["num_bytes"] for entry in figures["entries"]) == figures["usable_bytes"] == 8 * GIB
    assert figures["kv_bytes"] == figures["num_blocks"] * figures["block_bytes"]


def test_binary_and_decimal_sizes_are_told_apart() -> None:
    assert (binary_size(GIB), decimal_size(GIB)) == ("1.00 GiB", "1.07 GB")
    assert (binary_size(0), binary_size(1023), binary_size(1024)) == ("0 B", "1,023 B", "1.00 KiB")
