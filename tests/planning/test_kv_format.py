"""K and V in the cache: formats apart, scales, and what windows need."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.errors import UnsupportedModelError
from pagoda.planning.costs import CostModel
from pagoda.planning.kv_format import KV_FORMATS, kv_format, kv_size, kv_tokens_held
from pagoda.planning.memory import kv_bytes_per_token, kv_bytes_seen
from tests.planning.specs import llama_7b, tiny


def test_bytes_of_an_element_and_formats_of_as_many_are_the_same() -> None:
    for size, name in ((4, "fp32"), (2, "bf16"), (2, "fp16"), (1, "fp8")):
        assert kv_bytes_per_token(llama_7b(), size) == kv_bytes_per_token(llama_7b(), KV_FORMATS[name])


def test_scales_are_counted_by_token_and_head() -> None:
    assert KV_FORMATS["int8"].row_bytes(128) == 128 + 2
    assert KV_FORMATS["int4"].row_bytes(128) == 64 + 4
    assert KV_FORMATS["int4"].row_bytes(5) == 3 + 4  # half a byte is a byte
    assert kv_bytes_per_token(llama_7b(), KV_FORMATS["int8"]) == 32 * 2 * 32 * 130


def test_k_and_v_may_differ() -> None:
    int8, int4 = KV_FORMATS["int8"], KV_FORMATS["int4"]
    attention = llama_7b().layers[0].attention
    assert kv_size(attention, (int8, int4)) == 32 * (130 + 68)
    cost = CostModel(llama_7b(), "float16", (int8, int4)).step_cost([(99, 1)])
    assert cost.kv_written_bytes == 32 * 32 * (130 + 68)
    assert cost.kv_read_bytes == 100 * cost.kv_written_bytes


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match="KV format 'int3' is not supported; known: fp32, bf16"):
        kv_format("int3")


@settings(deadline=None)
@given(
    window=st.none() | st.integers(1, 70), num_tokens=st.integers(1, 200), block_size=st.sampled_from([1, 4, 16, 32])
)
def test_a_growing_sequence_never_needs_more_and_once_as_much(
    window: int | None, num_tokens: int, block_size: int
) -> None:
    """Against the blocks that the last query's window touches, at each length on the way."""
    most = 0
    for length in range(1, num_tokens + 1):
        first = 0 if window is None else max(0, length - window)
        most = max(most, (length - 1) // block_size - first // block_size + 1)
    assert kv_tokens_held(window, num_tokens, block_size) == most * block_size


def test_windows_bound_what_is_seen_and_not_what_is_kept() -> None:
    spec = tiny(windows=(16, None))
    layer = kv_size(spec.layers[0].attention, 2)
    assert kv_bytes_seen(spec, 2, 1000, 16) == layer * (2 * 16 + 1008)
    assert kv_bytes_per_token(spec, 2) == 2 * layer
    assert kv_bytes_seen(spec, 2, 10, 16) == 2 * layer * 16
