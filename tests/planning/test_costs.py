"""FLOPs and bytes of a step: known figures, and one formula behind both views."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.planning.costs import CostModel, linear_flops
from pagoda.planning.data_flow import data_flow, summed_over_layers
from pagoda.planning.hardware import Hardware
from pagoda.planning.mask import attended_pairs, visible_keys
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from tests.planning.specs import llama_7b, smollm2, tiny

A100 = Hardware("A100", 80_000_000_000, 2e12, {"float16": 312e12})

row_lists = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), min_size=1, max_size=5)


def gpt2_like() -> ModelSpec:
    """A tied model with a second table, biases, and a plain feed-forward network."""
    spec = replace(tiny(), tied_embeddings=True, learned_positions=True)
    plain = tuple(replace(layer, feed_forward=replace(layer.feed_forward, gated=False)) for layer in spec.layers)
    weights = [weight for weight in spec.weights if weight.part != "head" and not weight.name.endswith("gate")]
    weights.append(WeightSpec("positions", (1024, 8), "embedding"))
    weights += [WeightSpec(f"layers.{i}.up_bias", (16,), "feed_forward", i) for i in range(2)]
    weights += [WeightSpec(f"layers.{i}.attention_output_bias", (8,), "attention", i) for i in range(2)]
    return replace(spec, layers=plain, weights=tuple(weights))


SPECS = {
    "llama-7b": llama_7b(),
    "smollm2": smollm2(),
    "windows": tiny(windows=(16, None)),
    "gpt2-like": gpt2_like(),
}


def test_llama_7b_decode_takes_two_flops_a_parameter_and_half_a_megaflop_a_token_of_context() -> None:
    model = CostModel(llama_7b(), "float16", 2)
    embedding, gains = 32_000 * 4096, 65 * 4096
    products = 2 * (6_738_415_616 - embedding - gains)
    assert products == 13_214_154_752
    assert model.step_cost([(0, 1)]).flops == products + 4 * 32 * 4096 * 1
    assert model.step_cost([(2047, 1)]).flops == products + 4 * 32 * 4096 * 2048 == 14_287_896_576


def test_llama_7b_decode_reads_all_but_the_table_and_the_context() -> None:
    cost = CostModel(llama_7b(), "float16", 2).step_cost([(2047, 1)])
    assert cost.weight_bytes == 2 * (6_738_415_616 - 32_000 * 4096 + 4096)
    assert cost.kv_read_bytes == 1 << 30
    assert cost.kv_written_bytes == 524_288
    assert cost.num_bytes == cost.weight_bytes + (1 << 30) + 524_288


def test_on_an_a100_decode_is_bound_by_memory_and_a_long_prefill_by_compute() -> None:
    model = CostModel(llama_7b(), "float16", 2)
    for rows, compute_ms, memory_ms in (([(100, 1)], 0.0425, 6.63), ([(0, 2048)], 88.5, 7.69)):
        cost = model.step_cost(rows)
        compute, memory = A100.compute_seconds(cost.flops, "float16"), A100.memory_seconds(cost.num_bytes)
        assert compute is not None
        assert memory is not None
        assert compute * 1e3 == pytest.approx(compute_ms, rel=0.01)
        assert memory * 1e3 == pytest.approx(memory_ms, rel=0.01)


def test_weights_are_read_once_whatever_the_number_of_rows() -> None:
    model = CostModel(smollm2(), "float32", 4)
    one, many = model.step_cost([(10, 1)]), model.step_cost([(10, 1)] * 8)
    assert many.flops == 8 * one.flops
    assert many.kv_read_bytes == 8 * one.kv_read_bytes
    assert many.weight_bytes == one.weight_bytes + 7 * 576 * 4  # only more rows of the table


def test_a_tied_head_is_computed_and_read() -> None:
    tied = CostModel(smollm2(), "float32", 4)
    assert tied.flops_per_logit_row == linear_flops(1, 49_152, 576)
    assert tied.step_cost([(0, 1)]).weight_bytes == 4 * (134_515_008 + 576)


def test_grouped_query_attention_computes_all_heads_and_reads_kv_heads() -> None:
    model = CostModel(smollm2(), "float32", 4)
    near, far = model.step_cost([(100, 1)]), model.step_cost([(101, 1)])
    assert far.flops - near.flops == 30 * 4 * 9 * 64
    assert far.kv_read_bytes - near.kv_read_bytes == 30 * 2 * 3 * 64 * 4


def test_a_step_without_logits_does_not_read_the_head() -> None:
    model = CostModel(llama_7b(), "float16", 2)
    with_head, without = model.step_cost([(0, 8)]), model.step_cost([(0, 8)], num_logit_rows=0)
    assert with_head.weight_bytes - without.weight_bytes == 2 * 32_000 * 4096
    assert with_head.flops - without.flops == 2 * 32_000 * 4096


def test_an_empty_step_costs_nothing() -> None:
    cost = CostModel(tiny(), "float32", 4).step_cost([])
    assert (cost.flops, cost.num_bytes) == (0, 0)


def test_quantized_weights_move_fewer_bytes_for_the_same_flops() -> None:
    dense, packed = (CostModel(smollm2(), name, 4).step_cost([(5, 1)]) for name in ("float32", "Q8_0"))
    assert packed.flops == dense.flops
    assert packed.weight_bytes == pytest.approx(dense.weight_bytes * 34 / 32 / 4)


@settings(deadline=None)
@given(start=st.integers(0, 60), num_tokens=st.integers(0, 60), window=st.none() | st.integers(1, 80))
def test_pairs_and_keys_are_those_of_the_mask(start: int, num_tokens: int, window: int | None) -> None:
    queries = range(start, start + num_tokens)
    seen = [{key for key in range(query + 1) if window is None or key > query - window} for query in queries]
    assert attended_pairs(start, num_tokens, window) == sum(map(len, seen))
    if num_tokens:
        assert visible_keys(start, num_tokens, window) == len(set().union(*seen))


@settings(deadline=None)
@given(start=st.integers(0, 500), parts=st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_a_prompt_in_chunks_costs_the_flops_of_the_whole(start: int, parts: list[int]) -> None:
    model = CostModel(tiny(windows=(16, None)), "float32", 4)
    whole = model.step_cost([(start, sum(parts))])
    flops = 0
    for index, count in enumerate(parts):
        last = index == len(parts) - 1
        flops += model.step_cost([(start, count)], num_logit_rows=int(last)).flops
        start += count
    assert flops == whole.flops


@pytest.mark.parametrize("name", sorted(SPECS))
@settings(deadline=None)
@given(rows=row_lists, logit_rows=st.none() | st.integers(0, 5))
def test_the_data_flow_sums_to_the_steps_cost(name: str, rows: list[tuple[int, int]], logit_rows: int | None) -> None:
    spec = SPECS[name]
    parts = data_flow(spec, rows, format_of="float32", element_bytes=4, num_logit_rows=logit_rows)
    cost = CostModel(spec, "float32", 4).step_cost(iter(rows), logit_rows)
    assert sum(part.flops for part in parts) == cost.flops
    assert sum(part.weight_bytes for part in parts) == cost.weight_bytes
    assert sum(part.kv_read_bytes for part in parts) == cost.kv_read_bytes
    assert sum(part.kv_written_bytes for part in parts) == cost.kv_written_bytes


def test_the_data_flow_of_a_layer_reads_in_order() -> None:
    parts = data_flow(smollm2(), [(99, 1)], format_of="bfloat16", element_bytes=2)
    assert [part.name for part in parts if part.layer == 3] == [
        "norms", "q, k, v", "RoPE, KV write", "attention scores", "attention values", "attention output",
        "gate, up", "activation", "down",
    ]  # fmt: skip
    by_name = {part.name: part for part in summed_over_layers(parts)}
    assert by_name["q, k, v"].weight_bytes == 30 * 2 * 576 * (9 + 2 * 3) * 64
    assert by_name["attention output"].weight_bytes == 30 * 2 * 576 * 576
    assert by_name["attention scores"].kv_read_bytes == 30 * 100 * 3 * 64 * 2
    assert by_name["norms"].weight_bytes == 30 * 2 * 576 * 2
    assert by_name["head"].activation_bytes == 576 * 2 + 49_152 * 4
    assert sum(part.flops for part in by_name.values()) == sum(part.flops for part in parts)


def test_order_of_rows_does_not_matter() -> None:
    rows = [(0, 17), (300, 1), (40, 32), (7, 1)]
    shuffled = random.Random(1).sample(rows, len(rows))
    model = CostModel(tiny(windows=(16, None)), "float32", 4)
    assert model.step_cost(rows) == model.step_cost(shuffled)
