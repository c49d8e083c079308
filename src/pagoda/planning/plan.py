"""Plan: what a model will need on a device and how fast it can be, as plain figures. `planner.make_plan` works it out.

Sizes are bytes, times seconds. A *bound* is what the hardware permits (nothing can be faster); an *estimate* is what this
engine is expected to do, with an interval. The two are never mixed in one figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagoda.planning.hardware import Hardware
from pagoda.planning.model_spec import ModelSpec

Limit = Literal["compute", "memory", "communication"]


@dataclass(frozen=True, slots=True)
class Formula:
    """One figure with the numbers put in: `2 × 32 layers × 32 heads × 128 × 2 B = 524,288 B/token`.

    name: what it is. terms: the right-hand side before the result. value: the result, in `unit`.
    """

    name: str
    terms: str
    value: float
    unit: str

    def __str__(self) -> str:
        shown = f"{self.value:,.0f}" if float(self.value).is_integer() else f"{self.value:,.4g}"
        return f"{self.terms} = {shown} {self.unit}"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate: the value expected, and the bounds between which 90% of measured cases lay."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class StepBound:
    """One step's least time. intensity: FLOP per byte, against the device's ridge. limit: what binds.

    communication_seconds: between devices of a tensor-parallel group; it is added, since the next product waits for it.
    """

    flops: int
    weight_bytes: int
    kv_bytes: int
    compute_seconds: float
    memory_seconds: float
    communication_seconds: float
    intensity: float
    limit: Limit

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds) + self.communication_seconds


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    """Decode at one batch size and the context asked for. fits: whether the KV cache holds so many at that context."""

    batch: int
    bound: StepBound
    estimate_seconds: Interval | None
    fits: bool

    @property
    def tokens_per_second(self) -> float:
        """The bound: no engine does more."""
        return self.batch / self.bound.seconds


@dataclass(frozen=True, slots=True)
class FormatChange:
    """What another format of weights or of the KV cache would change, all else equal."""

    weight_format: str
    kv_format: str
    weight_bytes: int
    kv_bytes_per_token: int
    max_concurrency: int
    decode: StepBound | None
    fits: bool


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes it fit. option: as typed (`--context 8192`); sentence: for people."""

    option: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything `pagoda plan` reports.

    num_parameters: the model's, or what `--parameters` said. active_parameters: those that one token passes through.
    memory_bytes: of all devices together; budget_bytes: the share of it that may be used. weight_bytes, workspace_bytes: of
        all devices together (with replicated parts counted on each).
    kv_bytes_per_token: over all layers, of a token that every layer keeps. kv_bytes_total: of `concurrency` requests of
        `context` tokens, in whole blocks, on all devices. kv_bytes_seen: the same without what lies outside of windows.
    max_concurrency: how many requests of `context` tokens fit; max_context: the longest for `concurrency` requests, never
        above the model's own.
    estimate_source: where the estimates' figures are from, in words; "" where there are none.
    decode, prefill: one step of `concurrency` requests at `context` tokens; `context` tokens of one prompt.
    compute_bound_from: the batch from which decode is bound by compute at this context; None if KV reading prevents it.
    formulas: in the order they build on each other.
    """

    model: str
    spec: ModelSpec
    num_parameters: int
    active_parameters: int
    device: Hardware
    num_devices: int
    weight_format: str
    kv_format: str
    context: int
    concurrency: int
    block_size: int
    weights_only: bool
    memory_bytes: int
    budget_bytes: int
    weight_bytes: int
    workspace_bytes: int
    kv_bytes_per_token: int
    kv_bytes_total: int
    kv_bytes_seen: int
    left_bytes: int
    fits: bool
    max_concurrency: int
    max_context: int
    decode: StepBound
    decode_estimate: Interval | None
    prefill: StepBound
    prefill_estimate: Interval | None
    estimate_source: str
    ridge: float
    compute_bound_from: int | None
    throughput: tuple[ThroughputPoint, ...]
    formats: tuple[FormatChange, ...]
    remedies: tuple[Remedy, ...]
    recommendation: str
    serve_command: str
    formulas: tuple[Formula, ...]
