"""The recorder: a model's `forward` runs once over symbols, and each op becomes a command of a native program.

A command says which forms of its inputs it needs (csrc/format.h: float32; bf16; codes of 8 bits per 32) and which forms of
its outputs it can write. `cpu_lowering` decides from that which forms each tensor gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pagoda.ops.cpu_weights import CpuWeight, Float32
from pagoda.ops.interface import Activation, AttentionLayer
from pagoda.planning.model_spec import RopeSpec
from pagoda.planning.native_formats import F32, GROUP, Forms

if TYPE_CHECKING:
    from pagoda._native import Program

UNQUANTIZED: Forms = frozenset({"f32", "bf16"})
ANY: Forms = frozenset({"f32", "bf16", "q8"})


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A tensor of the program to be, [rows of the step, width]."""

    width: int


class Step:
    """Stands for the batch while a model is recorded: its arrays come with each run."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the program calls a command's tensors and its RoPE."""

    reads: Sequence[int]
    writes: Sequence[int]
    rope: int


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """reads: inputs, each with all forms it is needed in. writes: outputs, each with the forms it can be written in.

    emit: adds it to a program. in_place: its first output may take the place of its first input, where that dies here.
    rope: the one it turns by. weight, activation: of products and gated activations, which may become one command.
    """

    name: str
    reads: tuple[tuple[Symbol, Forms], ...]
    writes: tuple[tuple[Symbol, Forms], ...]
    emit: Callable[[Program, Numbers], None]
    in_place: bool = False
    rope: RopeSpec | None = None
    weight: CpuWeight | None = None
    activation: Activation | None = None


@dataclass(slots=True)
class CpuOps:
    """`Ops` over symbols."""

    commands: list[Command] = field(default_factory=list)

    def embed(self, batch: Step, table: CpuWeight, scale: float = 1.0) -> Symbol:
        matrix = table.matrix
        return self._one(
            "embed", matrix.in_features, (), ANY, lambda program, n: program.embed(n.writes[0], matrix, scale)
        )

    def embed_positions(self, batch: Step, table: CpuWeight) -> Symbol:
        matrix = table.matrix
        return self._one(
            "embed_positions",
            matrix.in_features,
            (),
            ANY,
            lambda program, n: program.embed_positions(n.writes[0], matrix),
        )

    def add(self, x: Symbol, y: Symbol) -> Symbol:
        return self._one("add", x.width, (x, y), ANY, lambda program, n: program.add(n.writes[0], *n.reads))

    def rms_norm(self, x: Symbol, gain: CpuWeight, eps: float) -> Symbol:
        held = gain.vector
        return self._one(
            "rms_norm", x.width, (x,), ANY, lambda program, n: program.rms_norm(n.writes[0], n.reads[0], held, eps)
        )

    def add_rms_norm(self, x: Symbol, y: Symbol, gain: CpuWeight, eps: float) -> tuple[Symbol, Symbol]:
        held = gain.vector

        def emit(program: Program, n: Numbers) -> None:
            program.rms_norm(n.writes[1], n.reads[0], held, eps, n.reads[1], n.writes[0])

        return self._total_and_norm("add_rms_norm", x, y, emit)

    def layer_norm(self, x: Symbol, gain: CpuWeight, bias: CpuWeight, eps: float) -> Symbol:
        held, shift = gain.vector, bias.vector

        def emit(program: Program, n: Numbers) -> None:
            program.layer_norm(n.writes[0], n.reads[0], held, shift, eps)

        return self._one("layer_norm", x.width, (x,), ANY, emit)

    def add_layer_norm(
        self, x: Symbol, y: Symbol, gain: CpuWeight, bias: CpuWeight, eps: float
    ) -> tuple[Symbol, Symbol]:
        held, shift = gain.vector, bias.vector

        def emit(program: Program, n: Numbers) -> None:
            program.layer_norm(n.writes[1], n.reads[0], held, shift, eps, n.reads[1], n.writes[0])

        return self._total_and_norm("add_layer_norm", x, y, emit)

    def linear(self, x: Symbol, weight: CpuWeight) -> Symbol:
        matrix = weight.matrix
        out = Symbol(matrix.out_features)
        self.commands.append(
            Command(
                "linear",
                ((x, frozenset(matrix.input_forms)),),
                ((out, F32),),
                lambda program, n: program.linear(n.writes[0], n.reads[0], matrix),
                weight=weight,
            )
        )
        return out

    def rope_and_store_kv(self, batch: Step, qkv: Symbol, layer: AttentionLayer[CpuWeight]) -> Symbol:
        spec = layer.spec
        q_norm, k_norm = _optional(layer.q_norm), _optional(layer.k_norm)

        def emit(program: Program, n: Numbers) -> None:
            program.rope_and_store_kv(
                n.writes[0], n.reads[0], layer.index, spec.num_heads, n.rope, q_norm, k_norm, layer.norm_eps
            )

        q = Symbol(spec.num_heads * spec.head_dim)
        self.commands.append(Command("rope_and_store_kv", _f32(qkv), ((q, F32),), emit, rope=spec.rope))
        return q

    def paged_attention(self, batch: Step, q: Symbol, layer: AttentionLayer[CpuWeight]) -> Symbol:
        spec = layer.spec

        def emit(program: Program, n: Numbers) -> None:
            program.paged_attention(n.writes[0], n.reads[0], layer.index, spec.num_heads, spec.scale, spec.window or 0)

        # Each head is written by itself, and a group of 32 that share a scale must not span two.
        return self._one("paged_attention", q.width, (q,), ANY if spec.head_dim % GROUP == 0 else UNQUANTIZED, emit)

    def gated_activation(self, gate_up: Symbol, activation: Activation) -> Symbol:
        out = Symbol(gate_up.width // 2)

        def emit(program: Program, n: Numbers) -> None:
            program.gated_activation(n.writes[0], n.reads[0], activation)

        forms = writable(out.width)
        self.commands.append(Command("gated_activation", _f32(gate_up), ((out, forms),), emit, activation=activation))
        return out

    def activation(self, x: Symbol, activation: Activation) -> Symbol:
        return self._one(
            "activation",
            x.width,
            (x,),
            writable(x.width),
            lambda program, n: program.activation(n.writes[0], n.reads[0], activation),
        )

    def logits(self, batch: Step, x: Symbol, head: CpuWeight) -> Symbol:
        matrix = head.matrix
        forms = frozenset(matrix.input_forms)
        chosen, logits = Symbol(x.width), Symbol(matrix.out_features)
        self.commands += [
            Command(
                "select_rows",
                ((x, forms),),
                ((chosen, forms),),
                lambda program, n: program.select_rows(n.writes[0], n.reads[0]),
            ),
            Command(
                "logits_linear", ((chosen, forms),), (), lambda program, n: program.logits_linear(n.reads[0], matrix)
            ),
        ]
        return logits

    def _one(
        self, name: str, width: int, inputs: Iterable[Symbol], forms: Forms, emit: Callable[[Program, Numbers], None]
    ) -> Symbol:
        """Record a command that reads float32 and has one output."""
        out = Symbol(width)
        self.commands.append(Command(name, _f32(*inputs), ((out, forms & writable(width)),), emit))
        return out

    def _total_and_norm(
        self, name: str, x: Symbol, y: Symbol, emit: Callable[[Program, Numbers], None]
    ) -> tuple[Symbol, Symbol]:
        total, normed = Symbol(x.width), Symbol(x.width)
        writes = ((total, F32), (normed, writable(x.width)))
        self.commands.append(Command(name, _f32(x, y), writes, emit, in_place=True))
        return total, normed


def writable(width: int) -> Forms:
    """The forms that rows of so many numbers can have: codes come in whole groups."""
    return ANY if width % GROUP == 0 else UNQUANTIZED


def _f32(*symbols: Symbol) -> tuple[tuple[Symbol, Forms], ...]:
    return tuple((symbol, F32) for symbol in symbols)


def _optional(weight: CpuWeight | None) -> Float32 | None:
    return None if weight is None else weight.vector
