"""Hardware: a device's ceilings, and how near to them something came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pagoda.planning.costs import head_weight, product_flops
from pagoda.planning.holding import FormatOf, format_name
from pagoda.planning.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device. Ceilings that nobody has measured or looked up are None (or not in `peak_flops`).

    bandwidth: bytes a second from memory. peak_flops: dtype ("float32", …) or weight format ("Q4_0", …) → operations a
    second of products with such weights. link_bandwidth: bytes a second that one device sends to the others of its group
    while it receives as much; link_latency: seconds until the first byte is there. source: whose figures these are.
    """

    name: str
    memory_bytes: int
    bandwidth: float | None = None
    peak_flops: Mapping[str, float] = field(default_factory=dict)
    link_bandwidth: float | None = None
    link_latency: float = 0.0
    source: str = ""

    def memory_seconds(self, num_bytes: int) -> float | None:
        """The least time in which so many bytes can be moved."""
        return None if self.bandwidth is None else num_bytes / self.bandwidth

    def compute_seconds(self, flops: int, dtype: str) -> float | None:
        """The least time in which so many operations can be done."""
        peak = self.peak_flops.get(dtype)
        return None if peak is None else flops / peak

    def fraction_of_bandwidth(self, num_bytes: int, seconds: float) -> float | None:
        """How much of the bandwidth was used, 0 to 1; None where it is unknown or no time passed."""
        return _fraction(self.memory_seconds(num_bytes), seconds)

    def fraction_of_peak_compute(self, flops: int, seconds: float, dtype: str) -> float | None:
        """How much of the peak compute was used, 0 to 1; None where it is unknown or no time passed."""
        return _fraction(self.compute_seconds(flops, dtype), seconds)


def main_format(spec: ModelSpec, format_of: FormatOf) -> str:
    """The weight format of most of a token's products, the head's left out where there are others.

    format_of: see `holding.weight_bytes`. Raises KeyError for a weight that a mapping lacks.
    """
    head = head_weight(spec)
    flops: Counter[str] = Counter()
    for weight in spec.weights:
        if weight is not head and (of_a_token := product_flops(spec, weight)):
            flops[format_name(format_of, weight)] += of_a_token
    return flops.most_common(1)[0][0] if flops else format_name(format_of, head)


def _fraction(least_seconds: float | None, seconds: float) -> float | None:
    return None if least_seconds is None or seconds <= 0 else least_seconds / seconds
