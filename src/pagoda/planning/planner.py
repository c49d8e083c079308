"""The planner: from a question to a Plan, by arithmetic alone. Nothing is opened or measured."""

from __future__ import annotations

from pagoda.planning.capacity import compute_bound_from, max_concurrency, max_context
from pagoda.planning.deployment import Deployment, deploy
from pagoda.planning.format_changes import format_changes
from pagoda.planning.formulas import formulas
from pagoda.planning.memory import kv_block_bytes, kv_bytes_per_token, kv_bytes_seen, num_blocks_for
from pagoda.planning.plan import Interval, Plan, ThroughputPoint
from pagoda.planning.question import Question
from pagoda.planning.recommendation import recommendation, serve_command
from pagoda.planning.remedies import remedies
from pagoda.planning.step_time import StepTimer


def make_plan(question: Question) -> Plan:
    """Raises `InvalidValueError` for a figure outside of its limit, formats or heads that the device cannot have, or a device
    whose bandwidth or peak nobody knows. What does not fit is a plan as well: it says what would."""
    deployment = deploy(question)
    context, concurrency, num_devices = question.context, question.concurrency, question.num_devices
    demand = deployment.demand(concurrency, context)
    blocks = num_blocks_for(context, question.block_size)
    kv_held = deployment.holding.kv_held
    block = kv_block_bytes(deployment.spec, question.block_size, kv_held)
    memory, budget = question.device.memory_bytes * num_devices, deployment.budget_bytes * num_devices
    weights = deployment.holding.weight_bytes * num_devices
    workspace = demand.workspace(concurrency * blocks) * num_devices
    kv_total = concurrency * blocks * block * num_devices
    fits, requests = deployment.fits(concurrency, context), max_concurrency(deployment)
    decode = deployment.decode_bound(concurrency, context)
    turning = compute_bound_from(deployment)
    formats = format_changes(deployment)
    tried = () if fits else remedies(deployment)
    return Plan(
        model=question.model,
        spec=question.spec,
        num_parameters=deployment.num_parameters,
        active_parameters=deployment.active_parameters,
        device=question.device,
        num_devices=num_devices,
        weight_format=deployment.weight_format,
        kv_format=deployment.kv_format,
        context=context,
        concurrency=concurrency,
        block_size=question.block_size,
        weights_only=question.weights_only,
        memory_bytes=memory,
        budget_bytes=budget,
        weight_bytes=weights,
        workspace_bytes=workspace,
        kv_bytes_per_token=kv_bytes_per_token(deployment.spec, kv_held) * num_devices,
        kv_bytes_total=kv_total,
        kv_bytes_seen=concurrency * num_devices * kv_bytes_seen(deployment.spec, kv_held, context, question.block_size),
        left_bytes=budget - weights - workspace - kv_total,
        fits=fits,
        max_concurrency=requests,
        max_context=max_context(deployment),
        decode=decode,
        decode_estimate=_decode_estimate(deployment, concurrency),
        prefill=deployment.bound(deployment.prefill_cost(0, context, ends=True), num_logit_rows=1),
        prefill_estimate=_prefill_estimate(deployment),
        estimate_source=question.timer.source if question.timer is not None else "",
        ridge=deployment.ridge,
        compute_bound_from=turning,
        throughput=_throughput(deployment, requests),
        formats=formats,
        remedies=tuple(one.remedy for one in tried),
        recommendation=recommendation(deployment, decode, requests, formats, tried),
        serve_command=serve_command(tried[0].deployment if tried else deployment),
        formulas=formulas(deployment, requests, turning),
    )


def _throughput(deployment: Deployment, requests: int) -> tuple[ThroughputPoint, ...]:
    """Batches of 1, 2, 4, … up to what fits or is asked, and those two."""
    asked, context = deployment.question.concurrency, deployment.question.context
    batches = {1 << power for power in range(max(requests, asked).bit_length())} | {asked, requests or 1}
    return tuple(
        ThroughputPoint(
            batch, deployment.decode_bound(batch, context), _decode_estimate(deployment, batch), batch <= requests
        )
        for batch in sorted(batches)
    )


def _decode_estimate(deployment: Deployment, batch: int) -> Interval | None:
    timer = deployment.question.timer
    if timer is None:
        return None
    return _interval(timer, timer.seconds(deployment.decode_cost(batch, deployment.question.context)))


def _prefill_estimate(deployment: Deployment) -> Interval | None:
    """The engine cuts a prompt into chunks of `max_batched_tokens`; each reads all weights again."""
    question, timer = deployment.question, deployment.question.timer
    if timer is None:
        return None
    chunk, end = question.max_batched_tokens, question.context
    steps = [
        deployment.prefill_cost(start, min(chunk, end - start), ends=start + chunk >= end)
        for start in range(0, end, chunk)
    ]
    return _interval(timer, sum(timer.seconds(step) for step in steps))


def _interval(timer: StepTimer, seconds: float) -> Interval:
    low, high = timer.spread
    return Interval(low * seconds, seconds, high * seconds)
