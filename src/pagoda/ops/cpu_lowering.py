"""Lowering: from what a model asked for to commands that a native program has, over tensors in an arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pagoda.ops.cpu import Command, Numbers, Symbol, writable
from pagoda.planning.arena import Buffer, place
from pagoda.planning.native_formats import F32, Form, Forms, form_bytes, in_order

if TYPE_CHECKING:
    from pagoda._native import Program

Plane = tuple[Symbol, Form]


@dataclass(frozen=True, slots=True)
class Lowered:
    """Commands in order; for each tensor its forms, with their byte offsets in the arena."""

    commands: tuple[Command, ...]
    tensors: dict[Symbol, dict[Form, int]]
    arena_bytes: int


def lower(commands: Sequence[Command], max_tokens: int) -> Lowered:
    """max_tokens: rows that every tensor has room for."""
    final = converted(fused(commands))
    offsets, arena_bytes = _offsets(final, max_tokens)
    tensors: dict[Symbol, dict[Form, int]] = {}
    for (symbol, form), offset in offsets.items():
        tensors.setdefault(symbol, {})[form] = offset
    return Lowered(tuple(final), tensors, arena_bytes)


def fused(commands: Sequence[Command]) -> list[Command]:
    """A product whose only reader is a gated activation becomes one command with it, where each half of its outputs is
    a segment: then a tile's gate and up are at hand together, and their float32 never goes to memory."""
    readers: dict[Symbol, int] = {}
    for command in commands:
        for symbol, _ in command.reads:
            readers[symbol] = readers.get(symbol, 0) + 1
    products = {command.writes[0][0]: command for command in commands if command.name == "linear"}
    gated = {command.reads[0][0]: command for command in commands if command.name == "gated_activation"}
    whole = {
        symbol
        for symbol, product in products.items()
        if symbol in gated and readers[symbol] == 1 and product.weight and _halves(product.weight.segments)
    }
    result: list[Command] = []
    for command in commands:
        if command.name == "linear" and command.writes[0][0] in whole:
            continue
        if command.name == "gated_activation" and command.reads[0][0] in whole:
            result.append(_gated_linear(products[command.reads[0][0]], command))
        else:
            result.append(command)
    return result


def _gated_linear(product: Command, gated: Command) -> Command:
    weight, activation = product.weight, gated.activation
    assert weight is not None
    assert activation is not None
    matrix, kind = weight.matrix, activation

    def emit(program: Program, n: Numbers) -> None:
        program.gated_linear(n.writes[0], n.reads[0], matrix, kind)

    return Command("gated_linear", product.reads, gated.writes, emit, weight=weight, activation=kind)


def _halves(segments: Sequence[int]) -> bool:
    return len(segments) == 2 and segments[0] == segments[1]


def converted(commands: Sequence[Command]) -> list[Command]:
    """Where a tensor is needed in a form that its command cannot write, it is written in float32, and a further command
    makes a tensor of the other forms for those that read them. Then every output has just the forms that are read."""
    needs = _needs(commands)
    result: list[Command] = []
    copies: dict[Symbol, Symbol] = {}
    for command in commands:
        reads = tuple(
            (copies[symbol] if symbol in copies and forms != F32 else symbol, forms) for symbol, forms in command.reads
        )
        result.append(replace(command, reads=reads))
        for symbol, possible in command.writes:
            missing = needs.get(symbol, F32) - possible
            if missing:
                copy = Symbol(symbol.width)
                copies[symbol] = copy
                result.append(
                    Command(
                        "convert",
                        ((symbol, F32),),
                        ((copy, writable(symbol.width)),),
                        lambda program, n: program.convert(n.writes[0], n.reads[0]),
                    )
                )
    needs = _needs(result)
    return [
        replace(command, writes=tuple((symbol, needs.get(symbol, F32)) for symbol, _ in command.writes))
        for command in result
    ]


def _needs(commands: Sequence[Command]) -> dict[Symbol, Forms]:
    """For each tensor that is read, every form it is read in."""
    needs: dict[Symbol, Forms] = {}
    for command in commands:
        for symbol, forms in command.reads:
            needs[symbol] = needs.get(symbol, frozenset()) | forms
    return needs


def _offsets(commands: Sequence[Command], max_tokens: int) -> tuple[dict[Plane, int], int]:
    """Where each form of each tensor lies. Forms are planes of their own, and live as long as they are read."""
    last: dict[Plane, int] = {}
    for index, command in enumerate(commands):
        last.update({(symbol, form): index for symbol, forms in command.writes for form in forms})
        last.update({(symbol, form): index for symbol, forms in command.reads for form in forms})
    homes: dict[Plane, int] = {}
    buffers: list[Buffer] = []
    for index, command in enumerate(commands):
        for place_of_output, (symbol, forms) in enumerate(command.writes):
            for form in in_order(forms):
                plane = (symbol, form)
                home = _replaced(command, index, last, homes) if place_of_output == 0 and form == "f32" else None
                if home is None:
                    homes[plane] = len(buffers)
                    buffers.append(Buffer(form_bytes(form, symbol.width, max_tokens), index, last[plane]))
                else:
                    homes[plane] = home
                    buffers[home] = replace(buffers[home], last=last[plane])
    offsets, size = place(buffers)
    return {plane: offsets[home] for plane, home in homes.items()}, size


def _replaced(command: Command, index: int, last: dict[Plane, int], homes: dict[Plane, int]) -> int | None:
    """The buffer of the input whose place the command's first output takes, if it may."""
    if not command.in_place:
        return None
    first, *others = (symbol for symbol, _ in command.reads)
    plane: Plane = (first, "f32")
    return homes[plane] if last[plane] == index and first not in others else None
