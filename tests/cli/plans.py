"""Plans made by hand from round figures, so that views are tested without the planner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pagoda.planning.hardware import Hardware
from pagoda.planning.plan import FormatChange, Formula, Interval, Plan, Remedy, StepBound, ThroughputPoint
from tests.planning.specs import llama_7b

PEAK, BANDWIDTH, WEIGHTS, KV_TOKEN = 312e12, 2e12, 14_000_000_000, 524_288


def bound(batch: int, tokens: int, context: int) -> StepBound:
    flops, kv = 14_000_000_000 * tokens, batch * context * KV_TOKEN
    compute, memory = flops / PEAK, (WEIGHTS + kv) / BANDWIDTH
    limit = "compute" if compute > memory else "memory"
    return StepBound(flops, WEIGHTS, kv, compute, memory, 0.0, flops / (WEIGHTS + kv), limit)  # type: ignore[arg-type]


def textbook_plan(**changes: Any) -> Plan:
    """7e9 parameters in fp16 on 80 GB, 2 TB/s, 312 TFLOP/s: 16 requests of 2,048 tokens."""
    decode = bound(16, 16, 2048)
    kv_total, budget = 16 * 2048 * KV_TOKEN, 72_000_000_000
    points = tuple(
        ThroughputPoint(
            batch,
            step := bound(batch, batch, 2048),
            Interval(1.05 * step.seconds, 1.2 * step.seconds, 1.4 * step.seconds),
            batch <= 53,
        )
        for batch in (1, 2, 4, 8, 16, 32, 53, 64)
    )
    plan = Plan(
        model="llama-7b",
        spec=llama_7b(),
        num_parameters=7_000_000_000,
        active_parameters=7_000_000_000,
        device=Hardware("A100 <80G>", 80_000_000_000, BANDWIDTH, {"fp16": PEAK}, source="NVIDIA's datasheet"),
        num_devices=1,
        weight_format="fp16",
        kv_format="fp16",
        context=2048,
        concurrency=16,
        block_size=16,
        weights_only=False,
        memory_bytes=80_000_000_000,
        budget_bytes=budget,
        weight_bytes=WEIGHTS,
        workspace_bytes=500_000_000,
        kv_bytes_per_token=KV_TOKEN,
        kv_bytes_total=kv_total,
        kv_bytes_seen=kv_total,
        left_bytes=budget - WEIGHTS - 500_000_000 - kv_total,
        fits=True,
        max_concurrency=53,
        max_context=6856,
        decode=decode,
        decode_estimate=Interval(0.016, 0.018, 0.021),
        prefill=bound(1, 2048, 2048),
        prefill_estimate=None,
        estimate_source="measured on a bench",
        ridge=156.0,
        compute_bound_from=None,
        throughput=points,
        formats=(
            FormatChange("fp16", "fp16", WEIGHTS, KV_TOKEN, 53, decode, True),
            FormatChange("int4", "fp16", WEIGHTS // 4, KV_TOKEN, 63, bound(16, 16, 2048), True),
            FormatChange("fp32", "fp32", WEIGHTS * 2, KV_TOKEN * 2, 0, None, False),
        ),
        remedies=(),
        recommendation="Batch more: memory binds.",
        serve_command="pagoda serve llama-7b --max-model-len 2048 --max-num-seqs 16",
        formulas=(
            Formula("KV per token", "2 × 32 layers × 32 heads × 128 × 2 B", 524_288, "B/token"),
            Formula("weights", "7,000,000,000 parameters × 2 B", 14e9, "B"),
        ),
    )
    return replace(plan, **changes)


def plan_that_does_not_fit() -> Plan:
    remedies = (
        Remedy("--weight-format int4", "Weights in 4 bits: 3.5 GB instead of 14 GB."),
        Remedy("--context 1024", "Half of the context."),
    )
    return textbook_plan(
        fits=False,
        left_bytes=-8_179_869_184,
        budget_bytes=23_500_000_000,
        memory_bytes=24_000_000_000,
        max_concurrency=8,
        max_context=1024,
        remedies=remedies,
    )
