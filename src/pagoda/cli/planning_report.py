"""A Plan as the object that `pagoda plan --json` prints. Sizes are bytes; times end in `_ms`; rates are per second."""

from __future__ import annotations

from typing import Any

from pagoda.planning.plan import FormatChange, Interval, Plan, StepBound, ThroughputPoint


def plan_report(plan: Plan) -> dict[str, Any]:
    """Everything in the plan. `decode_…` and `prefill_…_ms` are bounds, which nothing can be faster than; what this engine
    is expected to take stands apart, under `…_estimate_ms`: {low, expected, high}, or null where nothing is known."""
    device = plan.device
    return {
        "model": plan.model,
        "parameters": plan.num_parameters,
        "active_parameters": plan.active_parameters,
        "device": {
            "name": device.name,
            "memory_bytes": device.memory_bytes,
            "bandwidth": device.bandwidth,
            "peak_flops": dict(device.peak_flops),
            "source": device.source,
        },
        "num_devices": plan.num_devices,
        "weight_format": plan.weight_format,
        "kv_format": plan.kv_format,
        "context": plan.context,
        "concurrency": plan.concurrency,
        "block_size": plan.block_size,
        "weights_only": plan.weights_only,
        "memory_bytes": plan.memory_bytes,
        "budget_bytes": plan.budget_bytes,
        "weight_bytes": plan.weight_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "kv_bytes_per_token": plan.kv_bytes_per_token,
        "kv_bytes_total": plan.kv_bytes_total,
        "kv_bytes_seen": plan.kv_bytes_seen,
        "kv_share_of_memory_in_use": plan.kv_bytes_total / bytes_in_use(plan),
        "bytes_in_use": bytes_in_use(plan),
        "left_bytes": plan.left_bytes,
        "fits": plan.fits,
        "max_concurrency": plan.max_concurrency,
        "max_context": plan.max_context,
        **_step("decode", plan.decode, plan.decode_estimate),
        "decode_bound": plan.decode.limit,
        **_step("prefill", plan.prefill, plan.prefill_estimate),
        "prefill_bound": plan.prefill.limit,
        "prefill_ms": 1e3 * plan.prefill.seconds,
        "estimate_source": plan.estimate_source,
        "ridge": plan.ridge,
        "compute_bound_from": plan.compute_bound_from,
        "throughput": [_throughput(point) for point in plan.throughput],
        "formats": [_format(change) for change in plan.formats],
        "remedies": [{"option": remedy.option, "sentence": remedy.sentence} for remedy in plan.remedies],
        "recommendation": plan.recommendation,
        "serve_command": plan.serve_command,
        "formulas": [
            {"name": formula.name, "formula": str(formula), "value": formula.value, "unit": formula.unit}
            for formula in plan.formulas
        ],
    }


def bytes_in_use(plan: Plan) -> int:
    """Weights, workspace and the KV cache of the requests asked for, on all devices."""
    return plan.weight_bytes + plan.workspace_bytes + plan.kv_bytes_total


def _step(name: str, bound: StepBound, estimate: Interval | None) -> dict[str, Any]:
    return {
        f"{name}_flops": bound.flops,
        f"{name}_weight_bytes": bound.weight_bytes,
        f"{name}_kv_bytes": bound.kv_bytes,
        f"{name}_compute_ms": 1e3 * bound.compute_seconds,
        f"{name}_memory_ms": 1e3 * bound.memory_seconds,
        f"{name}_communication_ms": 1e3 * bound.communication_seconds,
        f"{name}_least_ms": 1e3 * bound.seconds,
        f"{name}_intensity": bound.intensity,
        f"{name}_estimate_ms": _interval(estimate),
    }


def _throughput(point: ThroughputPoint) -> dict[str, Any]:
    estimate = point.estimate_seconds
    return {
        "batch": point.batch,
        "fits": point.fits,
        "compute_ms": 1e3 * point.bound.compute_seconds,
        "memory_ms": 1e3 * point.bound.memory_seconds,
        "least_ms": 1e3 * point.bound.seconds,
        "bound": point.bound.limit,
        "intensity": point.bound.intensity,
        "tokens_per_second": point.tokens_per_second,
        "estimate_ms": _interval(estimate),
        "estimate_tokens_per_second": None if estimate is None else point.batch / estimate.expected,
    }


def _format(change: FormatChange) -> dict[str, Any]:
    return {
        "weight_format": change.weight_format,
        "kv_format": change.kv_format,
        "weight_bytes": change.weight_bytes,
        "kv_bytes_per_token": change.kv_bytes_per_token,
        "max_concurrency": change.max_concurrency,
        "decode_least_ms": None if change.decode is None else 1e3 * change.decode.seconds,
        "decode_bound": None if change.decode is None else change.decode.limit,
        "fits": change.fits,
    }


def _interval(estimate: Interval | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"low": 1e3 * estimate.low, "expected": 1e3 * estimate.expected, "high": 1e3 * estimate.high}
