"""CalibratedTimer: what steps took on one machine with one model, as `pagoda bench calibrate` measured and saved it.

A step's time is the sum of four, each of which never falls as its argument grows:

    products(flops - attention_flops) + a × (K and V read) + b × attention_flops + c × rows

products is piecewise linear between measured points: it holds the time to read the weights, the number of rows from which
products are bound by compute, and all that is the same for every step. The first two of attention's coefficients share it
between decoding, where reading K and V counts, and prompts, where operations do.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.saved_file import read_saved, save

KIND = "pagoda-step-times"
KIND_VERSION = 1
MAX_POINTS = 64
MAX_SECONDS = 1e6  # of a point
MAX_PARAMETER = 1.0  # seconds a byte, an operation, a row
MAX_TEXT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedTimer:
    """product_flops, product_seconds: the points, of which the first ascend and the second never fall; at least two.

    model, machine, version: what was measured, for people. flops_per_token: of the model's layers (`CostModel`).
    See `StepTimer` for request_seconds and spread.
    """

    model: str
    flops_per_token: int
    machine: str
    version: str
    product_flops: tuple[float, ...]
    product_seconds: tuple[float, ...]
    seconds_per_kv_byte: float
    seconds_per_attention_flop: float
    seconds_per_row: float
    request_seconds: float
    spread: tuple[float, float]

    def seconds(self, cost: StepCost) -> float:
        """Below the first point its time; above the last, on along the last two."""
        xs, ys = self.product_flops, self.product_seconds
        flops = cost.flops - cost.attention_flops
        if flops <= xs[0]:
            products = ys[0]
        else:
            right = min(bisect_right(xs, flops), len(xs) - 1)
            x, y = xs[right - 1], ys[right - 1]
            products = y + (flops - x) * (ys[right] - y) / (xs[right] - x)
        return (
            products
            + self.seconds_per_kv_byte * cost.kv_read_bytes
            + self.seconds_per_attention_flop * cost.attention_flops
            + self.seconds_per_row * cost.num_rows
        )

    @property
    def source(self) -> str:
        return f"measured by pagoda bench calibrate: {self.model} on {self.machine}, Pagoda {self.version}"

    def check_model(self, costs: CostModel) -> None:
        """Raises `InvalidValueError` where the times are another model's."""
        if costs.flops_per_token != self.flops_per_token:
            limit = f"of a model of {costs.flops_per_token:,} FLOP a token; these are {self.model}'s: measure this one"
            raise InvalidValueError("flops_per_token", self.flops_per_token, limit)

    def save(self, path: Path) -> None:
        """For `load_timer`. Raises OSError."""
        save(path, KIND, KIND_VERSION, asdict(self))


def load_timer(path: Path) -> CalibratedTimer:
    """The timer that `pagoda bench calibrate` saved. Raises `PagodaError` for a file that is none, or not a sound one."""
    saved = read_saved(path, KIND, KIND_VERSION)
    where = f"{path}: "
    flops = _numbers(where, saved, "product_flops", 0, 1e24)
    seconds = _numbers(where, saved, "product_seconds", 0, MAX_SECONDS)
    if not 2 <= len(flops) <= MAX_POINTS or len(flops) != len(seconds):
        raise InvalidValueError(
            where + "product_flops", flops, f"2 to {MAX_POINTS} numbers, as many as product_seconds"
        )
    if any(after <= before for before, after in pairwise(flops)):
        raise InvalidValueError(where + "product_flops", flops, "ascending")
    if any(after < before for before, after in pairwise(seconds)) or not seconds[0] > 0:
        raise InvalidValueError(where + "product_seconds", seconds, "above 0, and never falling")
    low, high = _pair(where, saved)
    return CalibratedTimer(
        model=checks.text(where + "model", saved.get("model"), MAX_TEXT),
        machine=checks.text(where + "machine", saved.get("machine"), MAX_TEXT),
        flops_per_token=checks.integer(where + "flops_per_token", saved.get("flops_per_token"), 1, 1 << 60),
        version=checks.text(where + "version", saved.get("version"), MAX_TEXT),
        product_flops=flops,
        product_seconds=seconds,
        seconds_per_kv_byte=_number(where, saved, "seconds_per_kv_byte", MAX_PARAMETER),
        seconds_per_attention_flop=_number(where, saved, "seconds_per_attention_flop", MAX_PARAMETER),
        seconds_per_row=_number(where, saved, "seconds_per_row", MAX_PARAMETER),
        request_seconds=_number(where, saved, "request_seconds", MAX_SECONDS),
        spread=(low, high),
    )


def _number(where: str, saved: Mapping[str, Any], name: str, maximum: float) -> float:
    return checks.number(where + name, saved.get(name), 0, maximum)


def _numbers(where: str, saved: Mapping[str, Any], name: str, minimum: float, maximum: float) -> tuple[float, ...]:
    values = saved.get(name)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise InvalidValueError(where + name, values, "a list of numbers")
    return tuple(checks.number(f"{where}{name}[{i}]", value, minimum, maximum) for i, value in enumerate(values))


def _pair(where: str, saved: Mapping[str, Any]) -> tuple[float, float]:
    values = _numbers(where, saved, "spread", 0, 1000)
    if len(values) != 2 or not 0 < values[0] <= 1 <= values[1] or not all(map(math.isfinite, values)):
        raise InvalidValueError(where + "spread", values, "two factors, one up to 1 and one from 1 on")
    return values[0], values[1]
