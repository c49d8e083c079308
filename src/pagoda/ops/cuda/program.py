"""From a model to what runs it: its `forward` is recorded once and lowered to a program for each kind of step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from pagoda.ops.cuda.cache import CudaKVCache
from pagoda.ops.cuda.lowering import with_decode_attention, with_gates, with_residuals
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.recorder import CudaOps, Recording, record
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.cuda.symbols import Command, Symbol
from pagoda.planning.arena import Buffer, place
from pagoda.planning.cuda_workspace import few_rows, logit_slice_rows


class Program:
    """Commands in order over tensors whose places in the arena are fixed, so that a captured step finds them again.

    places: of each tensor, its bytes in the arena.
    """

    def __init__(
        self, commands: Sequence[Command], logits: Symbol, max_tokens: int, max_logit_rows: int, dtype: torch.dtype
    ) -> None:
        """max_tokens, max_logit_rows: rows that each tensor has room for."""
        self.commands, self.max_tokens = tuple(commands), max_tokens
        self._rows = {"tokens": max_tokens, "logits": max_logit_rows}
        self._logits, self._dtype = logits, dtype
        first_of_end = next(
            index for index, command in enumerate(commands) if any(each.rows == "logits" for each in command.writes)
        )
        self._body, self._end = self.commands[:first_of_end], self.commands[first_of_end:]
        self.places, self.arena_bytes = self._placed()
        self._views: dict[Symbol, torch.Tensor] = {}

    def attach(self, arena: torch.Tensor) -> None:
        """Lay the tensors out in the arena, uint8 [at least arena_bytes]."""
        for symbol, span in self.places.items():
            self._views[symbol] = arena[span.start : span.stop].view(self._dtype_of(symbol)).view(-1, symbol.width)

    def run(self, step: CudaStep) -> torch.Tensor:
        """One step. Returns the first slice of its logits, float32 [rows, vocabulary with padding]: until the next call."""

        def at(symbol: Symbol) -> torch.Tensor:
            return self._views[symbol][: step.num_tokens]

        for command in self._body:
            command.launch(at, step)
        return self.logits(step, 0)

    def logits(self, step: CudaStep, first: int) -> torch.Tensor:
        """The slice of the step's logits that begins with row `first`, right after `run`."""
        rows = min(step.logit_rows.shape[0] - first, self._rows["logits"])
        sliced = replace(step, logit_rows=step.logit_rows[first : first + rows])

        def at(symbol: Symbol) -> torch.Tensor:
            return self._views[symbol][: rows if symbol.rows == "logits" else step.num_tokens]

        if rows:
            for command in self._end:
                command.launch(at, sliced)
        return at(self._logits)

    def first_logits(self, step: CudaStep) -> torch.Tensor:
        """Where `run` leaves the first slice of the step's logits."""
        return self._views[self._logits][: min(step.logit_rows.shape[0], self._rows["logits"])]

    def _placed(self) -> tuple[dict[Symbol, range], int]:
        last: dict[Symbol, int] = {}
        first: dict[Symbol, int] = {}
        for index, command in enumerate(self.commands):
            for symbol in (*command.writes, *command.reads):
                first.setdefault(symbol, index)
                last[symbol] = index
        end = len(self.commands)
        last[self._logits] = end
        for command in self._end:  # what a later slice of the logits reads once more
            last.update({symbol: end for symbol in command.reads if symbol.rows == "tokens"})
        buffers = [Buffer(self._bytes(symbol), first[symbol], last[symbol]) for symbol in first]
        offsets, size = place(buffers)
        placed = zip(first, buffers, offsets, strict=True)
        return {symbol: range(offset, offset + buffer.num_bytes) for symbol, buffer, offset in placed}, size

    def _bytes(self, symbol: Symbol) -> int:
        return self._rows[symbol.rows] * symbol.width * self._dtype_of(symbol).itemsize

    def _dtype_of(self, symbol: Symbol) -> torch.dtype:
        return torch.float32 if symbol.is_wide else self._dtype


@dataclass(frozen=True, slots=True)
class CudaModel:
    """A model ready to run.

    mixed: for any step. decode: where each request computes one token; few: the same for a few of them, where whatever
    can be joined is. They share the arena, so only one of them is under way at a time.
    """

    mixed: Program
    decode: Program
    few: Program
    cache: CudaKVCache
    machine: Machine
    arena: torch.Tensor

    def program_for(self, step: CudaStep) -> Program:
        if not step.is_decode or self.machine.is_deterministic:
            return self.mixed
        # Joined, a norm's rows are multiplied by its gain before they are scaled down: too much for float16's range.
        is_few = step.num_tokens <= self.few.max_tokens and self.machine.dtype != torch.float16
        return self.few if is_few else self.decode


def build_model(
    forward: Callable[[CudaOps, Recording], Symbol],
    cache: CudaKVCache,
    machine: Machine,
    *,
    max_tokens: int,
    max_seqs: int,
) -> CudaModel:
    """Record the model and lower it.

    forward: `model.forward` of a model whose weights are `CudaWeight`s on the machine's device.
    max_tokens, max_seqs: the most of one step.
    """
    commands, logits = record(forward, cache, machine)
    rows = logit_slice_rows(max_tokens, max_seqs)
    decode = with_decode_attention(with_gates(commands))
    few = few_rows(max_tokens, max_seqs)
    programs = [
        Program(lowered, logits, most, min(rows, most), machine.dtype)
        for lowered, most in (
            (commands, max_tokens),
            (decode, min(max_tokens, max_seqs)),
            (with_residuals(decode), few),
        )
    ]
    size = max(program.arena_bytes for program in programs)
    arena = torch.empty(size, dtype=torch.uint8, device=machine.device)
    for program in programs:
        program.attach(arena)
    mixed, decoding, fused = programs
    return CudaModel(mixed, decoding, fused, cache, machine, arena)
