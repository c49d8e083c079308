"""The memory formula: planning, admission and the runner's allocation all call these functions.

Everything is exact integer arithmetic over a `ModelSpec`; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError, InvalidValueError
from pagoda.planning.holding import Holding
from pagoda.planning.kv_format import KVHeld, kv_size, kv_tokens_held
from pagoda.planning.ledger import LedgerEntry, MemoryPlan, binary_size
from pagoda.planning.model_spec import ModelSpec

# A fitted context shorter than this is refused instead: nobody who left max_model_len open wants it.
LEAST_DEFAULT_CONTEXT = 256

# Steps of fewer tokens than this are not advised: prefill would read all weights for next to nothing.
LEAST_ADVISED_STEP = 64

# A remedy prefers to leave the process this share of what it may use; only if nothing else helps it takes it all.
COMFORTABLE_FRACTION = 0.9


def kv_bytes_per_token(spec: ModelSpec, held: KVHeld) -> int:
    """Bytes of K and V of one token: the sum over layers of 2 × kv_heads × head_dim × bytes of an element; of a latent
    attention (kv_rank + rope_dim) × bytes of an element.

    A layer with a window has all its tokens too: its blocks are those of every other layer.
    """
    return sum(kv_size(layer.attention, held) for layer in spec.layers)


def kv_bytes_seen(spec: ModelSpec, held: KVHeld, num_tokens: int, block_size: int) -> int:
    """Bytes of K and V of one sequence of num_tokens tokens that some later token can see, in whole blocks: what it would
    take if each layer with a window let go of what is outside of it. The engine gives up whole blocks, of all layers, so only
    where every layer has a window, and only while a request runs: the plan counts all its tokens (`kv_bytes_per_token`)."""
    return sum(
        kv_size(layer.attention, held) * kv_tokens_held(layer.attention.window, num_tokens, block_size)
        for layer in spec.layers
    )


def kv_block_bytes(spec: ModelSpec, block_size: int, held: KVHeld) -> int:
    """Bytes of one KV block of block_size tokens, over all layers."""
    return block_size * kv_bytes_per_token(spec, held)


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold num_tokens tokens."""
    return -(-num_tokens // block_size)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model and its limits ask of memory. `max_model_len` and `num_kv_blocks`: None where they are to be fitted."""

    holding: Holding
    block_size: int
    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int | None
    num_kv_blocks: int | None

    @property
    def spec(self) -> ModelSpec:
        return self.holding.spec

    def model_len(self, num_blocks: int) -> int:
        """The longest sequence with so many blocks, in tokens."""
        return self.max_model_len or min(self.spec.context_length, num_blocks * self.block_size)

    def workspace(self, num_blocks: int) -> int:
        return self.holding.workspace(
            max_batched_tokens=self.max_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            max_model_len=self.model_len(num_blocks),
        )

    def cache(self, num_blocks: int) -> int:
        return num_blocks * kv_block_bytes(self.spec, self.block_size, self.holding.kv_held)

    def total(self, num_blocks: int) -> int:
        """Bytes needed with so many blocks. It never shrinks as they grow, so there is one answer to "how many fit".

        Loading is over before cache and workspace are taken, so it is the larger of the two that counts.
        """
        running = self.workspace(num_blocks) + self.cache(num_blocks)
        return self.holding.weight_bytes + max(running, self.holding.loading_bytes)

    @property
    def least_blocks(self) -> int:
        """Fewer than this are refused: one sequence of the longest length allowed must fit."""
        context = self.max_model_len or min(self.spec.context_length, LEAST_DEFAULT_CONTEXT)
        return self.num_kv_blocks or num_blocks_for(context, self.block_size)

    @property
    def most_blocks(self) -> int:
        """More than this could never be used: every sequence at the longest length."""
        context = self.max_model_len or self.spec.context_length
        return self.num_kv_blocks or self.max_num_seqs * num_blocks_for(context, self.block_size)

    def fits(self, budget_bytes: int) -> bool:
        return self.total(self.least_blocks) <= budget_bytes

    def solve(self, budget_bytes: int) -> int:
        """The most blocks, up to `most_blocks`, whose total is within the budget; `least_blocks` must fit."""
        return largest(lambda blocks: self.total(blocks) <= budget_bytes, self.least_blocks, self.most_blocks)


def plan_memory(holding: Holding, config: EngineConfig, *, usable_bytes: int) -> MemoryPlan:
    """How the usable memory is divided, before anything is loaded.

    holding: how the backend holds the model. usable_bytes: what this process may use (or what is free on the GPU);
    `config.memory_fraction` of it is the budget.

    Raises `InvalidValueError` if max_model_len exceeds the model's context length or what num_kv_blocks hold, and
    `DoesNotFitError`, with the figures and the one setting that fixes it, if the budget is too small.
    """
    _check_limits(holding.spec, config)
    demand = Demand(
        holding=holding,
        block_size=config.block_size,
        max_num_seqs=min(config.max_num_seqs, config.max_batched_tokens),  # each takes a token of a step
        max_batched_tokens=config.max_batched_tokens,
        max_model_len=config.max_model_len,
        num_kv_blocks=config.num_kv_blocks,
    )
    budget = budget_bytes(usable_bytes, config.memory_fraction)
    if not demand.fits(budget):
        raise DoesNotFitError(refusal(demand, usable_bytes, config.memory_fraction))
    num_blocks = demand.solve(budget)
    return _plan(demand, num_blocks, usable_bytes, config.memory_fraction)


def budget_bytes(usable_bytes: int, memory_fraction: float) -> int:
    """The share of usable memory that weights, workspace and KV cache may take."""
    return int(usable_bytes * memory_fraction)


def _plan(demand: Demand, num_blocks: int, usable_bytes: int, memory_fraction: float) -> MemoryPlan:
    budget = budget_bytes(usable_bytes, memory_fraction)
    block_bytes = kv_block_bytes(demand.spec, demand.block_size, demand.holding.kv_held)
    weights, workspace, cache = demand.holding.weight_bytes, demand.workspace(num_blocks), demand.cache(num_blocks)
    max_model_len = demand.model_len(num_blocks)
    cached = f"{num_blocks:,} blocks of {demand.block_size} tokens, {block_bytes:,} B each"
    step = f"for up to {demand.max_batched_tokens:,} tokens a step, max_num_seqs {demand.max_num_seqs:,}"
    left = "less than a block" if num_blocks < demand.most_blocks else "more blocks could never be used"
    entries = (
        LedgerEntry("not used", usable_bytes - budget, f"memory_fraction is {memory_fraction:g}"),
        LedgerEntry("weights", weights, f"{demand.spec.num_parameters:,} parameters"),
        LedgerEntry("workspace", workspace, step),
        LedgerEntry("KV cache", cache, cached),
        LedgerEntry("left", budget - weights - workspace - cache, left),
    )
    return MemoryPlan(
        entries=entries,
        usable_bytes=usable_bytes,
        budget_bytes=budget,
        memory_fraction=memory_fraction,
        weight_bytes=weights,
        workspace_bytes=workspace,
        block_size=demand.block_size,
        block_bytes=block_bytes,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        max_num_seqs=demand.max_num_seqs,
        max_batched_tokens=demand.max_batched_tokens,
    )


def _check_limits(spec: ModelSpec, config: EngineConfig) -> None:
    asked, blocks = config.max_model_len, config.num_kv_blocks
    if asked is None:
        return
    if asked > spec.context_length:
        limit = f"at most {spec.context_length:,}, the context length the model was made for"
        raise InvalidValueError("max_model_len", asked, limit)
    if blocks is not None and blocks * config.block_size < asked:
        held = (
            f"at most {blocks * config.block_size:,}, what num_kv_blocks {blocks:,} of {config.block_size} tokens hold"
        )
        remedy = f"or num_kv_blocks at least {num_blocks_for(asked, config.block_size):,}"
        raise InvalidValueError("max_model_len", asked, f"{held}, {remedy}")


def refusal(demand: Demand, usable_bytes: int, memory_fraction: float) -> str:
    """One sentence: what is needed, what there is, and the one setting that fixes it."""
    blocks = demand.least_blocks
    workspace, cache, holding = demand.workspace(blocks), demand.cache(blocks), demand.holding
    needed, budget = demand.total(blocks), budget_bytes(usable_bytes, memory_fraction)
    remedy = next(_remedies(demand, usable_bytes, budget), None)
    advice = (
        f"set {remedy[0]} to {remedy[1]}"
        if remedy
        else f"no one setting changes that; a smaller model would, or {binary_size(int(needed / memory_fraction))} usable"
    )
    parts = (
        f"workspace {binary_size(workspace)} and a KV cache for {blocks * demand.block_size:,} tokens "
        f"({blocks:,} blocks) {binary_size(cache)}"
        if workspace + cache >= holding.loading_bytes
        else f"and {holding.loading_note} {binary_size(holding.loading_bytes)},"
    )
    return (
        f"the model does not fit: weights {binary_size(holding.weight_bytes)}, {parts} need {needed:,} B, "
        f"but memory_fraction {memory_fraction:g} of {usable_bytes:,} B usable is {budget:,} B; {advice}"
    )


def _remedies(demand: Demand, usable_bytes: int, budget: int) -> Iterator[tuple[str, str]]:
    """Settings that would make it fit, each alone, best first: (name, value). Each was tried before it is named."""
    fraction = _least_fraction(demand.total(demand.least_blocks), usable_bytes)
    if fraction is not None and fraction <= COMFORTABLE_FRACTION:
        yield "memory_fraction", f"{fraction:g}"
    if demand.num_kv_blocks is not None:
        least = num_blocks_for(demand.max_model_len or 1, demand.block_size)
        yield from _lowered("num_kv_blocks", lambda value: replace(demand, num_kv_blocks=value), least, demand, budget)
    if demand.max_model_len is not None:
        least = min(demand.max_model_len, LEAST_DEFAULT_CONTEXT)
        yield from _lowered("max_model_len", lambda value: replace(demand, max_model_len=value), least, demand, budget)
    least = min(demand.max_batched_tokens, LEAST_ADVISED_STEP)
    yield from _lowered(
        "max_batched_tokens", lambda value: replace(demand, max_batched_tokens=value), least, demand, budget
    )
    yield from _lowered("max_num_seqs", lambda value: replace(demand, max_num_seqs=value), 1, demand, budget)
    for field, value, smaller in demand.holding.alternatives:
        if replace(demand, holding=smaller).fits(budget):
            yield field, value
    if fraction is not None:
        yield "memory_fraction", f"{fraction:g}"


def _lowered(
    name: str, changed: Callable[[int], Demand], least: int, demand: Demand, budget: int
) -> Iterator[tuple[str, str]]:
    """The largest value of a setting, from `least` up to its present one, with which the demand fits; if any does."""
    if changed(least).fits(budget):
        yield name, str(largest(lambda value: changed(value).fits(budget), least, getattr(demand, name)))


def _least_fraction(needed: int, usable_bytes: int) -> float | None:
    """The smallest memory_fraction of two decimals with which `needed` bytes fit; None if all of it is too little."""
    hundredths = (value / 100 for value in range(1, 101))
    return next((value for value in hundredths if budget_bytes(usable_bytes, value) >= needed), None)


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest value in [low, high] that fits, where all below it fit as well and `low` does."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
