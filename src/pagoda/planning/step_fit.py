"""Fitting a `CalibratedTimer` to measured steps: non-negative least squares that a noisy neighbour does not spoil.

Relative errors count; small ones by their squares, so that the ordinary unrest of a machine is averaged, and those of more
than `TOLERANCE` only linearly (Huber, Annals of Mathematical Statistics 35, 1964), by iteratively reweighted least squares.
The non-negative solution of each round is Lawson and Hanson's (Solving Least Squares Problems, 1974, chapter 23).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pagoda.errors import PagodaError
from pagoda.planning.calibrated_time import CalibratedTimer
from pagoda.planning.costs import StepCost

Array = npt.NDArray[np.float64]

ROUNDS = 40
TOLERANCE = 0.2
LEAST_SECONDS = 1e-9
POINTS_PER_OCTAVE = 1.0
MAX_POINTS = 24


def fit(
    costs: Sequence[StepCost],
    seconds: Sequence[float],
    *,
    model: str,
    flops_per_token: int,
    machine: str,
    version: str,
    request_seconds: float,
) -> CalibratedTimer:
    """The timer that these steps (each with tokens) and their times (above 0) speak for. Raises `PagodaError` for too few."""
    flops = np.array([cost.flops - cost.attention_flops for cost in costs], np.float64)
    times = np.array(seconds, np.float64)
    knots = _knots(flops)
    if len(knots) < 2 or len(costs) < 2 * len(knots):
        raise PagodaError(f"{len(costs):,} steps were measured: too few, or too much alike, to calibrate with")
    others = np.array([(cost.kv_read_bytes, cost.attention_flops, cost.num_rows) for cost in costs], np.float64)
    columns = np.concatenate([np.ones((len(times), 1)), _ramps(flops, knots), others], axis=1)
    found = robust_nonnegative(columns, times, _balanced(flops))
    rises, (kv, attention, row) = found[: len(knots)], found[len(knots) :]
    predicted = columns @ found
    low, high = np.quantile(times / predicted, [0.05, 0.95])
    return CalibratedTimer(
        model=model,
        flops_per_token=flops_per_token,
        machine=machine,
        version=version,
        product_flops=tuple(knots.tolist()),
        product_seconds=tuple(np.maximum(np.cumsum(rises), LEAST_SECONDS).tolist()),
        seconds_per_kv_byte=float(kv),
        seconds_per_attention_flop=float(attention),
        seconds_per_row=float(row),
        request_seconds=request_seconds,
        spread=(min(1.0, float(low)), max(1.0, float(high))),
    )


def robust_nonnegative(columns: Array, values: Array, importance: Array) -> Array:
    """x ≥ 0 with the least sum of importance × Huber's loss of values / (columns @ x) - 1.

    columns: [steps, coefficients]; values > 0. Errors are relative to what is fitted: relative to the values, which scatter,
    they would favour fits that are too low.
    """
    scale = np.maximum(columns.max(axis=0), 1e-300)
    unit = columns / scale
    predicted, weights = values, importance
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weights) / predicted
        found = nonnegative(unit * root[:, None], values * root)
        predicted = np.maximum(unit @ found, LEAST_SECONDS)
        weights = importance / np.maximum(np.abs(values / predicted - 1), TOLERANCE)
    return np.asarray(found / scale)


def nonnegative(columns: Array, values: Array) -> Array:
    """x ≥ 0 with the least |columns @ x - values|²: Lawson and Hanson's active sets."""
    products, target = columns.T @ columns, columns.T @ values
    tolerance = 1e-10 * max(1.0, float(np.abs(target).max()))
    found = np.zeros(len(target))
    free = np.zeros(len(target), bool)
    for _ in range(10 * len(target)):
        gradient = np.where(free, -np.inf, target - products @ found)
        best = int(gradient.argmax())
        if gradient[best] <= tolerance:
            break
        free[best] = True
        while True:
            there = np.flatnonzero(free)
            step = np.zeros(len(target))
            step[there] = np.linalg.lstsq(products[np.ix_(there, there)], target[there], rcond=1e-12)[0]
            negative = free & (step <= 0)
            if not negative.any():
                found = step
                break
            # As far towards it as none turns negative; whoever reaches 0 is held there.
            ratio = found[negative] / np.maximum(found[negative] - step[negative], 1e-300)
            found = found + ratio.min() * (step - found)
            free &= found > 1e-15
            found[~free] = 0
    return found


def _balanced(flops: Array) -> Array:
    """So that each octave of the products' operations counts alike, however many steps it has."""
    _, octave, counts = np.unique(np.floor(np.log2(flops)), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[octave])


def _knots(flops: Array) -> Array:
    """About one an octave from the least to the most that was measured, each between measured ones."""
    there = np.unique(flops)
    if len(there) < 2:
        return there
    low, high = there[0], there[-1]
    count = min(MAX_POINTS, max(2, 1 + round(POINTS_PER_OCTAVE * float(np.log2(high / low)))))
    ideal = np.geomspace(low, high, count)
    nearest = there[np.abs(np.log(there[None, :] / ideal[:, None])).argmin(axis=1)]
    return np.unique(nearest)


def _ramps(flops: Array, knots: Array) -> Array:
    """[steps, knots - 1]: how far each step is from one knot to the next, 0 to 1, and beyond after the last."""
    progress = (flops[:, None] - knots[None, :-1]) / np.diff(knots)[None, :]
    limit = np.ones(len(knots) - 1)
    limit[-1] = np.inf
    return np.clip(progress, 0, limit)
