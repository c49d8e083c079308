"""The recorder: a model's `forward` runs once over symbols, and each op becomes a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from pagoda.ops.cuda.cache import CudaKVCache
from pagoda.ops.cuda.commands import (
    Activate,
    Add,
    Angles,
    Attention,
    Embed,
    Gate,
    Norm,
    Product,
    RopeAndStore,
    SelectRows,
)
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.symbols import Command, Symbol
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import Activation, AttentionLayer
from pagoda.ops.rope import inverse_frequencies
from pagoda.planning.model_spec import RopeSpec


class Recording:
    """Stands for the batch while a model is recorded: its arrays come with each step."""


@dataclass(slots=True)
class CudaOps:
    """`Ops` over symbols."""

    cache: CudaKVCache
    machine: Machine
    commands: list[Command] = field(default_factory=list)
    _angles: dict[RopeSpec, tuple[Symbol, Symbol]] = field(default_factory=dict)

    def embed(self, batch: Recording, table: CudaWeight, scale: float = 1.0) -> Symbol:
        out = Symbol(table.in_features)
        self.commands.append(Embed(out, table, scale))
        return out

    def embed_positions(self, batch: Recording, table: CudaWeight) -> Symbol:
        out = Symbol(table.in_features)
        self.commands.append(Embed(out, table, by_position=True))
        return out

    def add(self, x: Symbol, y: Symbol) -> Symbol:
        out = Symbol(x.width)
        self.commands.append(Add(x, y, out))
        return out

    def rms_norm(self, x: Symbol, gain: CudaWeight, eps: float) -> Symbol:
        return self._norm(x, gain, None, eps)

    def add_rms_norm(self, x: Symbol, y: Symbol, gain: CudaWeight, eps: float) -> tuple[Symbol, Symbol]:
        return self._add_norm(x, y, gain, None, eps)

    def layer_norm(self, x: Symbol, gain: CudaWeight, bias: CudaWeight, eps: float) -> Symbol:
        return self._norm(x, gain, bias, eps)

    def add_layer_norm(
        self, x: Symbol, y: Symbol, gain: CudaWeight, bias: CudaWeight, eps: float
    ) -> tuple[Symbol, Symbol]:
        return self._add_norm(x, y, gain, bias, eps)

    def linear(self, x: Symbol, weight: CudaWeight) -> Symbol:
        out = Symbol(weight.out_features)
        self.commands.append(Product(x, out, weight, self.machine))
        return out

    def rope_and_store_kv(self, batch: Recording, qkv: Symbol, layer: AttentionLayer[CudaWeight]) -> Symbol:
        q = Symbol(layer.spec.num_heads * layer.spec.head_dim)
        cosines, sines = self._turned_by(layer.spec.rope)
        self.commands.append(RopeAndStore(qkv, q, cosines, sines, layer, self.cache.layers[layer.index]))
        return q

    def paged_attention(self, batch: Recording, q: Symbol, layer: AttentionLayer[CudaWeight]) -> Symbol:
        out = Symbol(q.width)
        self.commands.append(Attention(q, out, layer, self.cache.layers[layer.index], self.machine))
        return out

    def gated_activation(self, gate_up: Symbol, activation: Activation) -> Symbol:
        out = Symbol(gate_up.width // 2)
        self.commands.append(Gate(gate_up, out, activation))
        return out

    def activation(self, x: Symbol, activation: Activation) -> Symbol:
        out = Symbol(x.width)
        self.commands.append(Activate(x, out, activation))
        return out

    def logits(self, batch: Recording, x: Symbol, head: CudaWeight) -> Symbol:
        chosen = Symbol(x.width, "logits")
        logits = Symbol(head.out_features, "logits", is_wide=True)
        self.commands += [SelectRows(x, chosen), Product(chosen, logits, head, self.machine)]
        return logits

    def _norm(self, x: Symbol, gain: CudaWeight, bias: CudaWeight | None, eps: float) -> Symbol:
        out = Symbol(x.width)
        self.commands.append(Norm(x, out, gain, bias, eps))
        return out

    def _add_norm(
        self, x: Symbol, y: Symbol, gain: CudaWeight, bias: CudaWeight | None, eps: float
    ) -> tuple[Symbol, Symbol]:
        total, out = Symbol(x.width), Symbol(x.width)
        self.commands.append(Norm(x, out, gain, bias, eps, addend=y, total=total))
        return total, out

    def _turned_by(self, rope: RopeSpec | None) -> tuple[Symbol | None, Symbol | None]:
        """Cosines and sines [T, dim / 2], worked out once in a step, before the first layer that needs them."""
        if rope is None:
            return None, None
        if rope not in self._angles:
            cosines, sines = Symbol(rope.dim // 2, is_wide=True), Symbol(rope.dim // 2, is_wide=True)
            frequencies = torch.from_numpy(inverse_frequencies(rope)).to(self.machine.device)
            self.commands.append(Angles(cosines, sines, frequencies))
            self._angles[rope] = (cosines, sines)
        return self._angles[rope]


def record(
    forward: Callable[[CudaOps, Recording], Symbol], cache: CudaKVCache, machine: Machine
) -> tuple[list[Command], Symbol]:
    """What the model asks for in one step, in order; and its logits."""
    ops = CudaOps(cache, machine)
    logits = forward(ops, Recording())
    return ops.commands, logits
