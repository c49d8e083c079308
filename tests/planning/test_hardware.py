"""Ceilings and fractions of them."""

import pytest

from pagoda.planning.hardware import Hardware, main_format
from tests.planning.specs import llama_spec


def test_unknown_ceilings_give_no_fraction() -> None:
    unknown = Hardware("this machine", 1 << 30)
    assert unknown.memory_seconds(100) is None
    assert unknown.compute_seconds(100, "float32") is None
    assert unknown.fraction_of_bandwidth(100, 1.0) is None
    assert unknown.fraction_of_peak_compute(100, 1.0, "float32") is None


def test_fractions_of_known_ceilings() -> None:
    known = Hardware("device", 1 << 30, bandwidth=100.0, peak_flops={"float32": 50.0})
    assert known.fraction_of_bandwidth(100, 4.0) == pytest.approx(0.25)
    assert known.fraction_of_peak_compute(100, 4.0, "float32") == pytest.approx(0.5)
    assert known.fraction_of_peak_compute(100, 4.0, "bfloat16") is None


def test_no_time_gives_no_fraction() -> None:
    assert Hardware("device", 1, bandwidth=1.0).fraction_of_bandwidth(1, 0.0) is None


def test_main_format_is_that_of_most_products() -> None:
    spec = llama_spec(
        hidden_size=64,
        intermediate_size=256,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        vocab_size=10_000,
        context_length=128,
    )
    formats = {weight.name: "Q8_0" if weight.part in ("embedding", "head") else "F32" for weight in spec.weights}
    assert main_format(spec, formats) == "F32"
    formats |= {weight.name: "Q4_0" for weight in spec.weights if weight.part == "feed_forward"}
    assert main_format(spec, formats) == "Q4_0"
    formats |= {weight.name: "Q6_K" for weight in spec.weights if weight.name.endswith(".down")}
    assert main_format(spec, formats) == "Q4_0"
