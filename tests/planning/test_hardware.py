"""Ceilings and fractions of them."""

import pytest

from pagoda.planning.hardware import Hardware


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
