"""The device table: what vendors' datasheets say, and devices told in figures (`flops=312e12,bandwidth=2e12,memory=80e9`).

Peaks are dense; where a sheet gives figures "with sparsity" only, half of them is here, and the source says so. Of consumer
cards the peak with accumulation in float32 counts, as products of language models need it. A link's bandwidth is one
direction's: sheets give the sum of both. No sheet gives a latency of links, so it is 0 here: a bound stays a bound.

Memory is the sheet's number of GB taken as powers of ten. All of these cards really have so many GiB (7% more), and their
drivers show 1 to 3% less than that (an 80 GB A100: 79.3 GiB): what is planned with the sheet's figure fits in any case.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import NoReturn

from pagoda.errors import InvalidValueError
from pagoda.planning.hardware import Hardware

# How number formats are typed → the key in `Hardware.peak_flops`.
COMPUTE_FORMATS: Mapping[str, str] = {
    "fp32": "float32",
    "tf32": "tf32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4",
}

_TERA = 1e12
_GIGA = 1e9
_EXAMPLE = "flops=312e12,bandwidth=2e12,memory=80e9"


def _device(
    name: str, source: str, *, memory_gb: int, bandwidth_gb: float, link_gb: float, **peaks: float
) -> tuple[str, Hardware]:
    """memory_gb, bandwidth_gb (a second), link_gb (a second, one direction): in 10⁹ B. peaks: in 10¹² operations a second."""
    flops = {COMPUTE_FORMATS[kind]: value * _TERA for kind, value in peaks.items()}
    return name, Hardware(
        name,
        int(memory_gb * _GIGA),
        bandwidth_gb * _GIGA,
        flops,
        link_bandwidth=link_gb * _GIGA,
        source=source,
    )


_A100 = {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312, "int8": 624, "int4": 1248}
_H100_SXM = {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5, "fp8": 1979, "int8": 1979}
_MI300X = {"fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9}

# Devices of the table that `pagoda serve` refuses: of compute capability below 8.0, or AMD's.
WITHOUT_KERNELS = ("v100-32g", "t4", "mi300x", "mi325x")

DEVICES: Mapping[str, Hardware] = dict(
    (
        _device(
            "v100-32g",
            "NVIDIA V100 datasheet, SXM2 32 GB; NVLink 2",
            memory_gb=32,
            bandwidth_gb=900,
            link_gb=150,
            fp32=15.7,
            fp16=125,
        ),
        _device(
            "t4",
            "NVIDIA T4 datasheet; PCIe 3.0 x16",
            memory_gb=16,
            bandwidth_gb=320,
            link_gb=16,
            fp32=8.1,
            fp16=65,
            int8=130,
            int4=260,
        ),
        _device(
            "a10",
            "NVIDIA A10 datasheet; PCIe 4.0 x16",
            memory_gb=24,
            bandwidth_gb=600,
            link_gb=32,
            fp32=31.2,
            tf32=62.5,
            bf16=125,
            fp16=125,
            int8=250,
            int4=500,
        ),
        _device(
            "a100-40g",
            "NVIDIA A100 datasheet and whitepaper, SXM4 40 GB; NVLink 3",
            memory_gb=40,
            bandwidth_gb=1555,
            link_gb=300,
            **_A100,
        ),
        _device(
            "a100-80g",
            "NVIDIA A100 datasheet and whitepaper, SXM4 80 GB (the PCIe card: 1,935 GB/s); NVLink 3",
            memory_gb=80,
            bandwidth_gb=2039,
            link_gb=300,
            **_A100,
        ),
        _device(
            "h100-pcie",
            "NVIDIA H100 datasheet, PCIe, half of the figures with sparsity; NVLink bridge between two",
            memory_gb=80,
            bandwidth_gb=2000,
            link_gb=300,
            fp32=51,
            tf32=378,
            bf16=756.5,
            fp16=756.5,
            fp8=1513,
            int8=1513,
        ),
        _device(
            "h100-sxm",
            "NVIDIA H100 datasheet, SXM5, half of the figures with sparsity; NVLink 4",
            memory_gb=80,
            bandwidth_gb=3350,
            link_gb=450,
            **_H100_SXM,
        ),
        _device(
            "h200",
            "NVIDIA H200 datasheet, SXM5, half of the figures with sparsity; NVLink 4",
            memory_gb=141,
            bandwidth_gb=4800,
            link_gb=450,
            **_H100_SXM,
        ),
        _device(
            "b200",
            "NVIDIA DGX B200 and Blackwell datasheets, an eighth of the system, half of the figures with sparsity; NVLink 5",
            memory_gb=180,
            bandwidth_gb=8000,
            link_gb=900,
            fp32=80,
            tf32=1100,
            bf16=2250,
            fp16=2250,
            fp8=4500,
            int8=4500,
        ),
        _device(
            "l4",
            "NVIDIA L4 datasheet, half of the figures with sparsity; PCIe 4.0 x16",
            memory_gb=24,
            bandwidth_gb=300,
            link_gb=32,
            fp32=30.3,
            tf32=60,
            bf16=121,
            fp16=121,
            fp8=242.5,
            int8=242.5,
        ),
        _device(
            "l40s",
            "NVIDIA L40S datasheet; PCIe 4.0 x16",
            memory_gb=48,
            bandwidth_gb=864,
            link_gb=32,
            fp32=91.6,
            tf32=183,
            bf16=362,
            fp16=362,
            fp8=733,
            int8=733,
            int4=733,
        ),
        _device(
            "rtx-3090",
            "NVIDIA GA102 whitepaper, RTX 3090; PCIe 4.0 x16 (an NVLink bridge between two: 56 GB/s)",
            memory_gb=24,
            bandwidth_gb=936,
            link_gb=32,
            fp32=35.6,
            tf32=35.6,
            bf16=71,
            fp16=71,
            int8=284,
            int4=568,
        ),
        _device(
            "rtx-4090",
            "NVIDIA Ada whitepaper, RTX 4090; PCIe 4.0 x16",
            memory_gb=24,
            bandwidth_gb=1008,
            link_gb=32,
            fp32=82.6,
            tf32=82.6,
            bf16=165.2,
            fp16=165.2,
            fp8=330.3,
            int8=660.6,
            int4=1321.2,
        ),
        _device(
            "rtx-5090",
            "NVIDIA RTX Blackwell whitepaper, RTX 5090; PCIe 5.0 x16",
            memory_gb=32,
            bandwidth_gb=1792,
            link_gb=64,
            fp32=104.8,
            tf32=104.8,
            bf16=209.5,
            fp16=209.5,
            fp8=419,
            int8=838,
        ),
        _device(
            "mi300x",
            "AMD Instinct MI300X data sheet; 7 Infinity Fabric links",
            memory_gb=192,
            bandwidth_gb=5300,
            link_gb=448,
            **_MI300X,
        ),
        _device(
            "mi325x",
            "AMD Instinct MI325X data sheet; 7 Infinity Fabric links",
            memory_gb=256,
            bandwidth_gb=6000,
            link_gb=448,
            **_MI300X,
        ),
    )
)


def parse_device(text: str) -> Hardware:
    """The device that `--device` names: an id of the table, or figures.

    Figures: `flops` (operations a second of products, for fp32, bf16 and fp16 at once), `bandwidth` (bytes a second) and
    `memory` (bytes) are needed; of the formats `COMPUTE_FORMATS` each may have a peak of its own (then `flops` may be left
    out); `link` (bytes a second, one direction) and `latency` (seconds) are those between devices.
    Raises `InvalidValueError` for an unknown id, with those that are near, or for a figure that is wrong.
    """
    if text in DEVICES:
        return DEVICES[text]
    if "=" not in text:
        near = difflib.get_close_matches(text[:40].lower(), DEVICES, n=3, cutoff=0.5)
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        known = f"this, one of {', '.join(DEVICES)}, or figures such as {_EXAMPLE}{meant}"
        raise InvalidValueError("--device", text, known)
    return _told(text, _figures(text))


def _figures(text: str) -> dict[str, float]:
    known = ("flops", "bandwidth", "memory", "link", "latency", *COMPUTE_FORMATS)
    figures: dict[str, float] = {}
    for part in text.split(","):
        key, sign, number = (piece.strip() for piece in part.partition("="))
        if not sign or key not in known:
            raise InvalidValueError("--device", part, f"KEY=NUMBER with one of {', '.join(known)}, as in {_EXAMPLE}")
        if key in figures:
            raise InvalidValueError("--device", text, f"figures that name {key} once")
        try:
            value = float(number)
        except ValueError:
            _refuse(key, part)
        if not math.isfinite(value) or value < 0 or (value == 0 and key != "latency") or value > 1e24:
            _refuse(key, part)
        figures[key] = value
    return figures


def _refuse(key: str, part: str) -> NoReturn:
    limit = "a number of seconds, at least 0" if key == "latency" else "a number above 0 and up to 1e24"
    raise InvalidValueError(f"--device ({key})", part, f"{limit}, as in {_EXAMPLE}")


def _told(text: str, figures: Mapping[str, float]) -> Hardware:
    for key in ("bandwidth", "memory"):
        if key not in figures:
            raise InvalidValueError("--device", text, f"figures with {key}, as in {_EXAMPLE}")
    peaks = {name: figures["flops"] for name in ("float32", "bfloat16", "float16") if "flops" in figures}
    peaks |= {key: figures[typed] for typed, key in COMPUTE_FORMATS.items() if typed in figures}
    if not peaks:
        raise InvalidValueError("--device", text, f"figures with flops, as in {_EXAMPLE}")
    return Hardware(
        text,
        int(figures["memory"]),
        figures["bandwidth"],
        peaks,
        link_bandwidth=figures.get("link"),
        link_latency=figures.get("latency", 0.0),
        source="figures as given",
    )
