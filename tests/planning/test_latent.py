"""Latent attention: two ways of the same result, of which the cheaper is counted."""

from dataclasses import replace

from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.registry import spec_for
from pagoda.planning.costs import CostModel
from pagoda.planning.latent import absorbed_flops, expanded_flops, latent_flops

SPEC = spec_for(NAMED_SHAPES["deepseek-v3"].config)
ATTENTION = SPEC.layers[0].attention


def test_the_two_ways_of_one_pair() -> None:
    assert absorbed_flops(ATTENTION, 1).total == 2 * 128 * (512 + 64 + 512)
    assert expanded_flops(ATTENTION, 1, 0).total == 2 * 128 * (192 + 128)
    assert expanded_flops(ATTENTION, 0, 1).total == 2 * 512 * 128 * (128 + 128)  # as kv_b takes for a token


def test_decode_is_absorbed_and_prefill_expanded() -> None:
    assert latent_flops(ATTENTION, 4095, 1) == absorbed_flops(ATTENTION, 4096)
    assert latent_flops(ATTENTION, 0, 4096) == expanded_flops(ATTENTION, 4096 * 4097 // 2, 0)


def test_a_chunk_is_expanded_if_it_is_long_enough() -> None:
    def way(num_tokens: int) -> str:
        start = 100_000
        pairs = num_tokens * start + num_tokens * (num_tokens + 1) // 2
        counted = latent_flops(ATTENTION, start, num_tokens)
        assert counted in (absorbed_flops(ATTENTION, pairs), expanded_flops(ATTENTION, pairs, start))
        return "absorbed" if counted == absorbed_flops(ATTENTION, pairs) else "expanded"

    assert [way(tokens) for tokens in (1, 64, 128, 256, 2048)] == ["absorbed"] * 3 + ["expanded"] * 2


def test_a_step_counts_every_layer_and_reads_each_latent_once() -> None:
    model = CostModel(SPEC, "bfloat16", 2)
    near, far = model.step_cost([(4095, 1)]), model.step_cost([(4096, 1)])
    assert far.flops - near.flops == far.attention_flops - near.attention_flops == 61 * 2 * 128 * 1088
    assert near.kv_read_bytes == 4096 * 70_272
    assert near.kv_written_bytes == 70_272


def test_queries_that_are_not_squeezed_are_one_product() -> None:
    config = {**NAMED_SHAPES["deepseek-v3"].config, "q_lora_rank": None}
    names = {weight.name for weight in spec_for(config).weights}
    assert "layers.0.q" in names
    assert not any("q_a" in name or "q_b" in name for name in names)
    latent = spec_for(config).layers[0].attention.latent
    assert latent == replace(ATTENTION.latent, q_rank=None)  # type: ignore[type-var]
