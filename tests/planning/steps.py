"""Costs of steps for tests of timers."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from pagoda.planning.costs import StepCost

MEASURES = ("num_tokens", "flops", "weight_bytes", "kv_read_bytes", "attention_flops", "num_rows")


@st.composite
def step_costs(draw: st.DrawFn) -> StepCost:
    """Of any step, whether a model has it or not."""
    products, attention = draw(st.integers(0, 1 << 42)), draw(st.integers(0, 1 << 42))
    return StepCost(
        num_tokens=draw(st.integers(1, 4096)),
        flops=products + attention,
        weight_bytes=draw(st.integers(0, 1 << 36)),
        kv_read_bytes=draw(st.integers(0, 1 << 36)),
        kv_written_bytes=0,
        attention_flops=attention,
        num_rows=draw(st.integers(1, 512)),
    )


def more(cost: StepCost, measure: str) -> StepCost:
    """The same with twice as much of one measure, and nothing else changed."""
    extra: int = getattr(cost, measure)
    if measure == "attention_flops":  # they are among the others
        cost = dataclasses.replace(cost, flops=cost.flops + extra)
    return dataclasses.replace(cost, **{measure: getattr(cost, measure) + extra})
