"""Lowering: neighbouring commands become one kernel where there is one that does both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pagoda.ops.cuda.commands import (
    Attention,
    DecodeAttention,
    Gate,
    Norm,
    NormSymbols,
    Product,
    ResidualSymbols,
    RopeAndStore,
    SelectRows,
)
from pagoda.ops.cuda.products import can_gate, can_join
from pagoda.ops.cuda.symbols import Command, Symbol
from pagoda.planning.cuda_workspace import most_sums


def with_gates(commands: Sequence[Command]) -> list[Command]:
    """A product whose only reader is a gate becomes one command with it: its outputs never go to memory."""
    readers = _readers(commands)
    gates = {command.x: command for command in commands if isinstance(command, Gate) and readers[command.x] == 1}
    joined = {
        command.out: replace(command, out=gates[command.out].out, gate=gates[command.out].activation)
        for command in commands
        if isinstance(command, Product) and command.out in gates and can_gate(command.weight)
    }
    result: list[Command] = []
    for command in commands:
        if isinstance(command, Product) and command.out in joined:
            result.append(joined[command.out])
        elif not (isinstance(command, Gate) and command.x in joined):
            result.append(command)
    return result


def with_decode_attention(commands: Sequence[Command]) -> list[Command]:
    """RoPE, storing K and V, and attention become one command. For steps in which each request computes one token."""
    readers = _readers(commands)
    result: list[Command] = []
    turned: dict[Symbol, RopeAndStore] = {}
    for command in commands:
        if isinstance(command, RopeAndStore) and readers[command.q] == 1:
            turned[command.q] = command
        elif isinstance(command, Attention) and command.q in turned:
            rope = turned[command.q]
            joined = DecodeAttention(
                rope.qkv, command.out, rope.cosines, rope.sines, command.layer, command.kv, command.machine
            )
            result.append(joined)
        else:
            result.append(command)
    return result


def with_residuals(commands: Sequence[Command]) -> list[Command]:
    """A product, the addition of its outputs to the residual stream and the RMS norm of the sum become one command.

    It cannot finish the norm, which needs whole rows; so it writes sum × gain, and each tile's sum of squares, and every
    product that reads the norm multiplies its outputs by 1 / sqrt(mean of squares + eps): the order of the two does not
    matter, as that factor is one for a whole row.
    """
    readers = _readers(commands)
    products = {command.out: command for command in commands if isinstance(command, Product) and command.gate is None}
    finishing = _finishing(commands)
    result: list[Command] = []
    joined: set[Symbol] = set()
    pending: dict[Symbol, NormSymbols] = {}
    for command in commands:
        source = _joinable(command, products, readers, finishing)
        if source is not None and isinstance(command, Norm) and command.total is not None:
            sums = Symbol(most_sums(command.x.width), is_wide=True)
            residual = ResidualSymbols(command.x, command.gain, command.out, sums)
            joined.add(source.out)
            pending[command.out] = NormSymbols(sums, command.x.width, command.eps, source.weight)
            result.append(replace(source, out=command.total, residual=residual, norm=pending.get(source.x)))
        elif isinstance(command, SelectRows) and command.x in pending:
            norm = pending[command.x]
            sums = Symbol(norm.sums.width, "logits", is_wide=True)
            pending[command.out] = replace(norm, sums=sums)
            result += [command, SelectRows(norm.sums, sums)]
        elif isinstance(command, Product) and command.x in pending:
            result.append(replace(command, norm=pending[command.x]))
        else:
            result.append(command)
    return [command for command in result if not (isinstance(command, Product) and command.out in joined)]


def _joinable(
    command: Command, products: dict[Symbol, Product], readers: Counter[Symbol], finishing: dict[Symbol, bool]
) -> Product | None:
    """The product that may take in this norm."""
    if not isinstance(command, Norm) or command.addend is None or command.bias is not None:
        return None
    source = products.get(command.addend)
    if source is None or readers[command.addend] != 1 or not finishing.get(command.out, False):
        return None
    return source if can_join(source.weight) else None


def _finishing(commands: Sequence[Command]) -> dict[Symbol, bool]:
    """Of each tensor, whether all that reads it are products, at once or after rows were selected."""
    selected = {command.out: command.x for command in commands if isinstance(command, SelectRows)}
    result: dict[Symbol, bool] = {}
    for command in commands:
        for symbol in command.reads:
            fits = isinstance(command, Product | SelectRows)
            for each in (symbol, selected.get(symbol)):
                if each is not None:
                    result[each] = result.get(each, True) and fits
    return result


def _readers(commands: Sequence[Command]) -> Counter[Symbol]:
    return Counter(symbol for command in commands for symbol in command.reads)
