"""The device table, and devices told in figures."""

import math

import pytest

from pagoda.errors import InvalidValueError
from pagoda.planning.devices import DEVICES, parse_device
from pagoda.planning.roofline import roofline

ASKED_FOR = "a100-40g a100-80g h100-pcie h100-sxm h200 b200 l4 l40s rtx-3090 rtx-4090 rtx-5090 mi300x"


@pytest.mark.parametrize("name", ASKED_FOR.split())
def test_every_device_has_what_a_plan_needs(name: str) -> None:
    device = parse_device(name)
    assert device.name == name
    assert "sheet" in device.source or "whitepaper" in device.source
    assert device.memory_bytes % 10**9 == 0
    assert device.bandwidth
    assert device.link_bandwidth
    assert device.link_bandwidth < device.bandwidth
    assert device.peak_flops["bfloat16"] == device.peak_flops["float16"]
    assert device.peak_flops["float32"] < device.peak_flops["bfloat16"]


def test_sparse_figures_are_halved() -> None:
    """An H100's sheet says 1,979 TFLOPS of bf16 and 3,958 of fp8 "with sparsity"."""
    h100 = parse_device("h100-sxm")
    assert h100.peak_flops["bfloat16"] == pytest.approx(1979e12 / 2)
    assert h100.peak_flops["fp8"] == pytest.approx(3958e12 / 2)


def test_narrower_formats_are_never_slower() -> None:
    for device in DEVICES.values():
        order = [device.peak_flops.get(key) for key in ("float32", "tf32", "float16", "fp8", "int8", "int4")]
        known = [peak for peak in order if peak is not None]
        assert known == sorted(known), device.name


def test_figures() -> None:
    device = parse_device("flops=312e12,bandwidth=2e12,memory=80e9")
    assert (device.memory_bytes, device.bandwidth, device.link_bandwidth) == (80_000_000_000, 2e12, None)
    assert device.peak_flops == {"float32": 312e12, "bfloat16": 312e12, "float16": 312e12}


def test_figures_of_formats_and_links() -> None:
    device = parse_device(" flops=1e12, fp8=2e12, bf16=3e12, bandwidth=1e9, memory=1e9, link=5e8, latency=1e-5")
    assert device.peak_flops == {"float32": 1e12, "float16": 1e12, "bfloat16": 3e12, "fp8": 2e12}
    assert (device.link_bandwidth, device.link_latency) == (5e8, 1e-5)


def test_a_format_may_stand_for_flops() -> None:
    assert parse_device("bf16=3e12,bandwidth=1e9,memory=1e9").peak_flops == {"bfloat16": 3e12}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a100", "or a100-"),
        ("RTX-4090", "did you mean rtx-4090"),
        ("abacus", "h100-sxm"),
        ("", "one of"),
        ("flops=1e12,bandwidth=1e9", "memory"),
        ("flops=1e12,memory=1e9", "bandwidth"),
        ("bandwidth=1e12,memory=1e9", "flops"),
        ("flops=1e12,bandwidth=-1,memory=1e9", "(bandwidth)"),
        ("flops=0,bandwidth=1,memory=1e9", "(flops)"),
        ("flops=nan,bandwidth=1,memory=1e9", "(flops)"),
        ("flops=inf,bandwidth=1,memory=1e9", "(flops)"),
        ("flops=1e12,bandwidth=fast,memory=1e9", "(bandwidth)"),
        ("flops=1e12,bandwidth=1,memory=1e400", "(memory)"),
        ("flops=1e12,bandwidth=1,memory=1e9,latency=-1", "(latency)"),
        ("flops=1e12,flops=2e12,bandwidth=1,memory=1e9", "once"),
        ("flops=1e12,speed=1,bandwidth=1,memory=1e9", "KEY=NUMBER"),
        ("flops=1e12,bandwidth=1,memory", "KEY=NUMBER"),
    ],
)
def test_refusals_name_the_key(text: str, said: str) -> None:
    with pytest.raises(InvalidValueError, match="--device") as error:
        parse_device(text)
    assert said in str(error.value)


def test_roofline_of_the_textbook() -> None:
    device = parse_device("flops=312e12,bandwidth=2e12,memory=80e9")
    decode = roofline(14e9, 14e9, device, "fp16")
    assert decode.compute_seconds == pytest.approx(4.487e-5, rel=1e-3)
    assert decode.memory_seconds == pytest.approx(7e-3)
    assert (decode.limit, decode.intensity, decode.ridge) == ("memory", 1.0, 156.0)
    assert roofline(157.0, 1.0, device).limit == "compute"
    assert roofline(1.0, 0, device).intensity == math.inf


def test_roofline_in_another_format() -> None:
    h100 = parse_device("h100-sxm")
    assert roofline(1e12, 1, h100, "fp8").compute_seconds == pytest.approx(1 / 1979)
    with pytest.raises(InvalidValueError, match="bf16"):
        roofline(1e12, 1, h100, "int4")
