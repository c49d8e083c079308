"""The roofline (Williams, Waterman and Patterson, 2009): a step takes no less than its operations at the peak, nor than its
bytes at the memory's bandwidth. Which is longer says what binds it."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.errors import InvalidValueError
from pagoda.planning.costs import StepCost
from pagoda.planning.devices import COMPUTE_FORMATS
from pagoda.planning.hardware import Hardware
from pagoda.planning.plan import Limit, StepBound

_OF_16_BITS = ("bfloat16", "float16")
# What products with a dense or fp8 weight are computed in, the best first; with any other weight in 16 bits.
_COMPUTED_IN = {
    "F32": ("float32",),
    "BF16": _OF_16_BITS,
    "F16": ("float16", "bfloat16"),
    "fp8": ("fp8", *_OF_16_BITS),
    "fp8_block": ("fp8", *_OF_16_BITS),
}


@dataclass(frozen=True, slots=True)
class Roofline:
    """One pair of numbers on one device. intensity: FLOP per byte; ridge: where the two limits meet."""

    compute_seconds: float
    memory_seconds: float
    limit: Limit
    intensity: float
    ridge: float


def roofline(flops: float, num_bytes: float, device: Hardware, number_format: str = "bf16") -> Roofline:
    """number_format: of `COMPUTE_FORMATS`, or a weight format that the device's peaks are measured for ("Q4_0").
    Raises `InvalidValueError` for a format, or a bandwidth, that nobody has told the device's figure of.
    """
    key = COMPUTE_FORMATS.get(number_format, number_format)
    if key not in device.peak_flops:
        typed = {name: short for short, name in COMPUTE_FORMATS.items()}
        known = ", ".join(typed.get(name, name) for name in device.peak_flops)
        raise InvalidValueError("format", number_format, f"one whose peak on {device.name} is known: {known}")
    peak, rate = device.peak_flops[key], bandwidth(device)
    compute, memory = flops / peak, num_bytes / rate
    limit: Limit = "compute" if compute >= memory else "memory"
    return Roofline(compute, memory, limit, flops / num_bytes if num_bytes else float("inf"), peak / rate)


def compute_peak(device: Hardware, weight_format: str) -> tuple[str, float]:
    """What products with such weights are computed in, and the peak of that: (a key of `peak_flops`, operations a second).

    On the CPU peaks are measured for each weight format, and its own counts; for one that was not measured the highest of
    them: nothing can be faster. On a GPU dense weights are multiplied in their own format and fp8 ones in fp8 where there
    is such a peak; all others (int8, int4, blocks of GGUF) are unpacked to 16 bits on the way, so they save bytes and no
    operations. The peaks of int8 and int4 are for `roofline`, whoever asks for them.
    Raises `InvalidValueError` where no peak is known.
    """
    if weight_format in device.peak_flops:
        return weight_format, device.peak_flops[weight_format]
    for key in _COMPUTED_IN.get(weight_format, _OF_16_BITS):
        if key in device.peak_flops:
            return key, device.peak_flops[key]
    if not device.peak_flops:
        raise InvalidValueError("--device", device.name, "one with a peak of products (flops=…)")
    fastest = max(device.peak_flops, key=lambda key: device.peak_flops[key])
    return fastest, device.peak_flops[fastest]


def bandwidth(device: Hardware) -> float:
    """Raises `InvalidValueError` where it is unknown."""
    if device.bandwidth is None:
        raise InvalidValueError("--device", device.name, "one whose memory's bandwidth is known (bandwidth=…)")
    return device.bandwidth


def step_bound(cost: StepCost, *, peak: float, bandwidth: float, communication: float) -> StepBound:
    """cost, peak and bandwidth: of all devices of a group together. communication: seconds."""
    compute, memory = cost.flops / peak, cost.num_bytes / bandwidth
    limit: Limit = "compute" if compute >= memory else "memory"
    if communication > max(compute, memory):
        limit = "communication"
    return StepBound(
        flops=cost.flops,
        weight_bytes=cost.weight_bytes,
        kv_bytes=cost.kv_read_bytes + cost.kv_written_bytes,
        compute_seconds=compute,
        memory_seconds=memory,
        communication_seconds=communication,
        intensity=cost.flops / cost.num_bytes if cost.num_bytes else float("inf"),
        limit=limit,
    )
