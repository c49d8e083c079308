"""The commands of a program: what each reads and writes, and the kernel that does it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pagoda.ops.cuda import elementwise
from pagoda.ops.cuda.attention import paged_attention
from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.decode_attention import decode_attention
from pagoda.ops.cuda.embed import embed
from pagoda.ops.cuda.epilogue import DeferredNorm, Residual
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.norm import norm
from pagoda.ops.cuda.products import num_sums, product
from pagoda.ops.cuda.rope import rope_and_store_kv
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.cuda.symbols import At, Symbol
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import Activation, AttentionLayer


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """Rows of a table at the step's input ids, or at its positions."""

    out: Symbol
    table: CudaWeight
    scale: float = 1.0
    by_position: bool = False
    reads: tuple[Symbol, ...] = ()

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        embed(step.positions if self.by_position else step.input_ids, self.table, self.scale, at(self.out))


@dataclass(frozen=True, slots=True, eq=False)
class Angles:
    """Cosines and sines of the step's positions under one RoPE. frequencies [dim / 2]."""

    cosines: Symbol
    sines: Symbol
    frequencies: torch.Tensor
    reads: tuple[Symbol, ...] = ()

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.cosines, self.sines)

    def launch(self, at: At, step: CudaStep) -> None:
        elementwise.angles(step.positions, self.frequencies, at(self.cosines), at(self.sines))


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    x: Symbol
    y: Symbol
    out: Symbol

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.x, self.y)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        elementwise.add(at(self.x), at(self.y), at(self.out))


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """RMS norm, or layer norm where there is a bias; of x, or of x + addend, which `total` keeps."""

    x: Symbol
    out: Symbol
    gain: CudaWeight
    bias: CudaWeight | None
    eps: float
    addend: Symbol | None = None
    total: Symbol | None = None

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.x,) if self.addend is None else (self.x, self.addend)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,) if self.total is None else (self.total, self.out)

    def launch(self, at: At, step: CudaStep) -> None:
        norm(
            at(self.x),
            self.gain.values,
            None if self.bias is None else self.bias.values,
            self.eps,
            at(self.out),
            addend=None if self.addend is None else at(self.addend),
            total=None if self.total is None else at(self.total),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A linear layer, with what follows it where lowering has joined that.

    gate: the outputs' halves become activation(first) × second. residual: the outputs are added to the residual stream,
    `out` is their sum, and the next RMS norm is prepared. norm: x is such a prepared norm, to be finished here.
    """

    x: Symbol
    out: Symbol
    weight: CudaWeight
    machine: Machine
    gate: Activation | None = None
    residual: ResidualSymbols | None = None
    norm: NormSymbols | None = None

    @property
    def reads(self) -> tuple[Symbol, ...]:
        stream = () if self.residual is None else (self.residual.stream,)
        sums = () if self.norm is None else (self.norm.sums,)
        return (self.x, *stream, *sums)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,) if self.residual is None else (self.out, self.residual.scaled, self.residual.sums)

    def launch(self, at: At, step: CudaStep) -> None:
        residual, norm_ = self.residual, self.norm
        product(
            at(self.x),
            self.weight,
            at(self.out),
            self.machine,
            gate=self.gate,
            residual=None
            if residual is None
            else Residual(at(residual.stream), residual.gain.values, at(residual.scaled), at(residual.sums)),
            norm=None
            if norm_ is None
            else DeferredNorm(
                at(norm_.sums)[:, : num_sums(norm_.source, step.num_tokens, self.machine)], norm_.size, norm_.eps
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ResidualSymbols:
    """stream: the residual stream before. gain: of the RMS norm that follows. scaled, sums: see `epilogue.Residual`."""

    stream: Symbol
    gain: CudaWeight
    scaled: Symbol
    sums: Symbol


@dataclass(frozen=True, slots=True, eq=False)
class NormSymbols:
    """See `epilogue.DeferredNorm`. source: whose product, of the step's tokens, wrote the sums."""

    sums: Symbol
    size: int
    eps: float
    source: CudaWeight


@dataclass(frozen=True, slots=True, eq=False)
class RopeAndStore:
    """Q turned, K turned and stored, V stored. cosines, sines: None without RoPE."""

    qkv: Symbol
    q: Symbol
    cosines: Symbol | None
    sines: Symbol | None
    layer: AttentionLayer[CudaWeight]
    kv: LayerKV

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.qkv,) if self.cosines is None or self.sines is None else (self.qkv, self.cosines, self.sines)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.q,)

    def launch(self, at: At, step: CudaStep) -> None:
        rope_and_store_kv(at(self.qkv), _angles(self, at), step, self.kv, self.layer, q=at(self.q))


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    q: Symbol
    out: Symbol
    layer: AttentionLayer[CudaWeight]
    kv: LayerKV
    machine: Machine

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.q,)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        paged_attention(at(self.q), step, self.kv, self.layer.spec, out=at(self.out), machine=self.machine)


@dataclass(frozen=True, slots=True, eq=False)
class DecodeAttention:
    """`RopeAndStore` and `Attention` in one kernel, where each request computes one token."""

    qkv: Symbol
    out: Symbol
    cosines: Symbol | None
    sines: Symbol | None
    layer: AttentionLayer[CudaWeight]
    kv: LayerKV
    machine: Machine

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.qkv,) if self.cosines is None or self.sines is None else (self.qkv, self.cosines, self.sines)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        decode_attention(
            at(self.qkv), _angles(self, at), step, self.kv, self.layer, out=at(self.out), machine=self.machine
        )


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """activation(first half) × second half."""

    x: Symbol
    out: Symbol
    activation: Activation

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        elementwise.gated_activation(at(self.x), self.activation, at(self.out))


@dataclass(frozen=True, slots=True, eq=False)
class Activate:
    x: Symbol
    out: Symbol
    activation: Activation

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        elementwise.activation(at(self.x), self.activation, at(self.out))


@dataclass(frozen=True, slots=True, eq=False)
class SelectRows:
    """The rows of the step that get logits. x may be a prepared norm: its sums are selected by another of these."""

    x: Symbol
    out: Symbol

    @property
    def reads(self) -> tuple[Symbol, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Symbol, ...]:
        return (self.out,)

    def launch(self, at: At, step: CudaStep) -> None:
        out = at(self.out)
        elementwise.select_rows(at(self.x), step.logit_rows[: out.shape[0]], out)


def _angles(command: RopeAndStore | DecodeAttention, at: At) -> tuple[torch.Tensor, torch.Tensor] | None:
    if command.cosines is None or command.sines is None:
        return None
    return at(command.cosines), at(command.sines)
