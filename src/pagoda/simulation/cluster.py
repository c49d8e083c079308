"""ClusterConfig: the replicas that a simulation runs, and how they work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

Routing = Literal["round-robin", "least-loaded", "prefix-aware"]
Allocation = Literal["paged", "contiguous"]
Batching = Literal["continuous", "static"]
Order = Literal["mixed", "prefill-first", "decode-first"]
# Fields of `ClusterConfig` that take one of several names: what can be compared.
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "allocation": get_args(Allocation),
        "batching": get_args(Batching),
        "order": get_args(Order),
        "routing": get_args(Routing),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Alike replicas, each an engine with a scheduler and KV blocks of its own.

    num_blocks, block_size: of one replica's KV cache. max_num_seqs, max_batched_tokens, prefill_chunk: as in `EngineConfig`.
    allocation: paged, or one run of consecutive blocks for prompt and output at admission (first fit).
    batching: continuous, or static: a batch is filled, and nobody enters until all of it have ended.
    order: mixed as the engine does it (every step holds all decodes, and prompts in what is left of its budget);
        prefill-first (while there are prompts to compute, steps hold nothing else); decode-first (prompts are computed
        only in steps in which nobody decodes).
    prefill_replicas: so many of `num_replicas` compute prompts and hand their K and V over `transfer_bandwidth` (bytes a
        second) to the others, which decode; 0: all do both.
    window: of the model, where every layer has one (`ModelSpec.widest_window`): running requests give up what fell out of it.
    prefix_cache: K and V of full blocks are kept and shared by prompts that begin alike (`Arrival.prefix`); paged only.
    """

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_batched_tokens: int
    prefill_chunk: int
    num_replicas: int = 1
    routing: Routing = "round-robin"
    allocation: Allocation = "paged"
    batching: Batching = "continuous"
    order: Order = "mixed"
    prefill_replicas: int = 0
    transfer_bandwidth: float | None = None
    prefix_cache: bool = False
    window: int | None = None
