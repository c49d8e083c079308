"""Deployment: a question with all that follows from it worked out: how each device holds its share, and what a step costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.planning.costs import CostModel, StepCost, head_weight
from pagoda.planning.cpu_formats import cpu_holding
from pagoda.planning.formats import FORMATS
from pagoda.planning.gpu_holding import DENSE, activation_format, gpu_holding
from pagoda.planning.hardware import main_format
from pagoda.planning.holding import Holding, weight_size
from pagoda.planning.memory import Demand, budget_bytes, num_blocks_for
from pagoda.planning.model_spec import ModelSpec
from pagoda.planning.plan import StepBound
from pagoda.planning.question import Question
from pagoda.planning.roofline import bandwidth, compute_peak, step_bound
from pagoda.planning.tensor_parallel import Communication, communication, shard


@dataclass(frozen=True)
class Deployment:
    """`spec`, `holding`, `costs` and `budget_bytes` are one device's; what methods return is all devices' together.

    weight_format, kv_format: as people type them, those of the files by their own names ("Q4_0").
    compute_format: what products are computed in, a key of the device's peaks; peak: of one device.
    """

    question: Question
    spec: ModelSpec
    holding: Holding
    links: Communication
    budget_bytes: int
    weight_format: str
    kv_format: str
    compute_format: str
    peak: float
    bandwidth: float

    @cached_property
    def costs(self) -> CostModel:
        return CostModel(self.spec, self.holding.format_of, self.holding.kv_held)

    @property
    def num_parameters(self) -> int:
        return self.question.parameters or self.question.spec.num_parameters

    @property
    def active_parameters(self) -> int:
        """Those that a token passes through; of a count that was asked for the same share as of the model's own."""
        own = self.question.spec
        return own.active_parameters * self.num_parameters // own.num_parameters

    @property
    def ridge(self) -> float:
        return self.peak / self.bandwidth

    def demand(self, concurrency: int, context: int) -> Demand:
        """What so many requests of so many tokens ask of one device's memory."""
        question = self.question
        return Demand(
            holding=self.holding,
            block_size=question.block_size,
            max_num_seqs=concurrency,
            max_batched_tokens=max(question.max_batched_tokens, concurrency),  # each takes a token of a step
            max_model_len=context,
            num_kv_blocks=concurrency * num_blocks_for(context, question.block_size),
        )

    def needed(self, concurrency: int, context: int) -> int:
        """Bytes of one device's memory."""
        demand = self.demand(concurrency, context)
        return demand.total(demand.least_blocks)

    def fits(self, concurrency: int, context: int) -> bool:
        return self.needed(concurrency, context) <= self.budget_bytes

    def decode_cost(self, batch: int, context: int) -> StepCost:
        """One step of `batch` requests, each computing its token number `context`."""
        one = self.costs.step_cost([(context - 1, 1)])
        step = StepCost(
            batch,
            batch * one.flops,
            self.costs.weight_bytes_read(batch, batch),
            batch * one.kv_read_bytes,
            batch * one.kv_written_bytes,
            batch * one.attention_flops,
            batch,
        )
        if self.question.weights_only:
            step = replace(
                step, flops=step.flops - step.attention_flops, kv_read_bytes=0, kv_written_bytes=0, attention_flops=0
            )
        return self._together(step)

    def decode_bound(self, batch: int, context: int) -> StepBound:
        return self.bound(self.decode_cost(batch, context), num_logit_rows=batch)

    def prefill_cost(self, start: int, num_tokens: int, *, ends: bool) -> StepCost:
        """A part of one prompt. ends: with its last token, whose logits are wanted."""
        return self._together(self.costs.step_cost([(start, num_tokens)], num_logit_rows=int(ends)))

    def bound(self, cost: StepCost, num_logit_rows: int) -> StepBound:
        num_devices = self.question.num_devices
        return step_bound(
            cost,
            peak=self.peak * num_devices,
            bandwidth=self.bandwidth * num_devices,
            communication=self.links.seconds(cost.num_tokens, num_logit_rows),
        )

    def _together(self, cost: StepCost) -> StepCost:
        """One device's step as that of all, and as that of a model of the parameters asked for."""
        num_devices = self.question.num_devices
        whole = replace(
            cost,
            flops=cost.flops * num_devices,
            weight_bytes=cost.weight_bytes * num_devices,
            kv_read_bytes=cost.kv_read_bytes * num_devices,
            kv_written_bytes=cost.kv_written_bytes * num_devices,
            attention_flops=cost.attention_flops * num_devices,
        )
        if self.question.parameters is None:
            return whole
        # Such a count says nothing of tables: each parameter is multiplied with each token, and read once a step.
        own = self.question.spec.num_parameters
        read = (cost.weight_bytes + _unread(self.spec, self.holding)) * num_devices * self.question.parameters // own
        return replace(
            whole,
            flops=2 * self.active_parameters * cost.num_tokens + whole.attention_flops,
            weight_bytes=min(read, self.holding.weight_bytes * num_devices),
        )


def deploy(question: Question) -> Deployment:
    """Raises `InvalidValueError` for a question that no device could answer, or whose device's figures are not known."""
    _check(question)
    device, num_devices = question.device, question.num_devices
    spec = shard(question.spec, num_devices)
    if question.threads is None:
        holding = gpu_holding(spec, question.stored, question.weight_format, question.kv_format, question.block_size)
        activations = activation_format(spec, holding.format_of)
        kv_format = activations if question.kv_format is None else question.kv_format
        element_bytes = FORMATS[DENSE[activations]].block_bytes
    else:
        holding = cpu_holding(question)
        kv_format, element_bytes = question.kv_format or "bf16", 4
    if question.parameters is not None:
        # Rounded up, so that what is said to fit does.
        scaled = -(-holding.weight_bytes * question.parameters // question.spec.num_parameters)
        holding = replace(holding, weight_bytes=scaled)
    held = main_format(spec, holding.format_of)
    compute_format, peak = compute_peak(device, held)
    typed = {name: short for short, name in DENSE.items()}
    return Deployment(
        question=question,
        spec=spec,
        holding=holding,
        links=communication(spec, device, num_devices, element_bytes),
        budget_bytes=budget_bytes(device.memory_bytes, question.memory_fraction),
        weight_format=question.weight_format or typed.get(held, held),
        kv_format=kv_format,
        compute_format=compute_format,
        peak=peak,
        bandwidth=bandwidth(device),
    )


def _unread(spec: ModelSpec, holding: Holding) -> int:
    """Bytes of tables that a step reads rows of only: all but a tied head."""
    head = head_weight(spec)
    tables: Sequence[int] = [
        weight_size(weight, holding.format_of)
        for weight in spec.weights
        if weight.part == "embedding" and weight is not head
    ]
    return sum(tables)


def _check(question: Question) -> None:
    checks.integer("--devices", question.num_devices, 1, 1024)
    checks.integer("--context", question.context, 1)
    checks.integer("--concurrency", question.concurrency, 1, 1_000_000)
    checks.integer("--block-size", question.block_size, 1, 1024)
    checks.integer("--max-batched-tokens", question.max_batched_tokens, 1, 1 << 20)
    checks.number("--memory-fraction", question.memory_fraction, 0.01, 1.0)
    if question.parameters is not None:
        checks.integer("--parameters", question.parameters, 1, 10**15)
    if question.context > question.spec.context_length:
        limit = f"at most {question.spec.context_length:,}, the context length the model was made for"
        raise InvalidValueError("--context", question.context, limit)
    if question.threads is not None and question.num_devices > 1:
        raise InvalidValueError("--devices", question.num_devices, "1 on a CPU")
