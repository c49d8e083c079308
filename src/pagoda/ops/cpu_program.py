"""From a model to a native program: its `forward` runs once, over symbols, and what it asked for becomes commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagoda.planning.model_spec import ModelSpec

if TYPE_CHECKING:
    from pagoda import _native


@dataclass(frozen=True, slots=True)
class NativeModel:
    """A model ready to run: `program.run(…)` is one step over `cache`.

    max_logit_rows: rows of one slice of logits. workspace_bytes: arena, logits and scratch together.
    """

    program: _native.Program
    cache: _native.KVCache
    max_logit_rows: int


def build_program(
    forward: Callable[..., object],
    spec: ModelSpec,
    threads: _native.Threads,
    *,
    num_blocks: int,
    block_size: int,
    max_tokens: int,
    max_seqs: int,
) -> NativeModel:
    """Record and build. forward: `model.forward` of a model whose weights `ops.cpu_weights.CpuWeightOps(threads, quantization)`
    took; quantization: None, "int8" or "int4". max_tokens, max_seqs: the most of one step."""
    raise NotImplementedError
