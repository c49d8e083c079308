"""From a model to a native program: its `forward` runs once, over symbols, and what it asked for becomes commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagoda.errors import DoesNotFitError
from pagoda.ops.cpu import Command, CpuOps, Numbers, Step, Symbol
from pagoda.ops.cpu_lowering import Lowered, lower
from pagoda.ops.rope import inverse_frequencies
from pagoda.planning.model_spec import ModelSpec, RopeSpec
from pagoda.planning.native_formats import NATIVE_KV_FORMATS
from pagoda.planning.native_workspace import logit_slice_rows

if TYPE_CHECKING:
    from pagoda._native import KVCache, Program, Threads


@dataclass(frozen=True, slots=True)
class NativeModel:
    """A model ready to run: `program.run(…)` is one step over `cache`.

    max_logit_rows: rows of one slice of logits. arena_bytes: what all activations share.
    """

    program: Program
    cache: KVCache
    max_logit_rows: int
    arena_bytes: int


def build_program(
    forward: Callable[[CpuOps, Step], Symbol],
    spec: ModelSpec,
    threads: Threads,
    *,
    kv_dtype: str,
    num_blocks: int,
    block_size: int,
    max_tokens: int,
    max_seqs: int,
) -> NativeModel:
    """Record the model and build its program and cache.

    forward: `model.forward` of a model whose weights `cpu_weights.CpuWeightOps` took, with the same threads.
    kv_dtype: of the cache, one of `NATIVE_KV_FORMATS`. block_size: a multiple of 16.
    max_tokens, max_seqs: the most of one step.
    Raises `DoesNotFitError` when memory ends.
    """
    from pagoda import _native

    lowered = lower(record(forward), max_tokens)
    max_logit_rows = logit_slice_rows(max_tokens, max_seqs)
    layers = [(layer.attention.num_kv_heads, layer.attention.head_dim) for layer in spec.layers]
    try:
        cache = _native.KVCache(layers, num_blocks, block_size, NATIVE_KV_FORMATS[kv_dtype].name)
        program = _native.Program(threads, cache, max_tokens, max_seqs, max_logit_rows, lowered.arena_bytes)
    except MemoryError as error:
        raise DoesNotFitError(
            f"memory ran out while {num_blocks:,} KV blocks and the workspace were taken; "
            "choose fewer num_kv_blocks or a smaller memory_fraction"
        ) from error
    emit(lowered, program)
    return NativeModel(program, cache, max_logit_rows, lowered.arena_bytes)


def record(forward: Callable[[CpuOps, Step], Symbol]) -> list[Command]:
    """What the model asks for in one step, in order."""
    ops = CpuOps()
    forward(ops, Step())
    return ops.commands


def emit(lowered: Lowered, program: Program) -> None:
    """Declare the tensors and RoPEs, each once, and add the commands."""
    numbers = {symbol: program.tensor(symbol.width, **forms) for symbol, forms in lowered.tensors.items()}
    ropes: dict[RopeSpec | None, int] = {None: -1}
    for command in lowered.commands:
        if command.rope is not None and command.rope not in ropes:
            ropes[command.rope] = program.rope(inverse_frequencies(command.rope))
        command.emit(
            program,
            Numbers(
                [numbers[symbol] for symbol, _ in command.reads],
                [numbers[symbol] for symbol, _ in command.writes],
                ropes[command.rope],
            ),
        )
