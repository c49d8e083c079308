"""The vocabulary in which every model is written. A backend gives each word its execution; `ops/reference.py` its meaning.

A model file calls these and nothing else, so the same file runs eagerly in torch or is recorded into a native
program. `T` is a backend's tensor (or the symbol for one), `W` its form of a weight.

Shapes: T tokens of all requests of the step, flattened and concatenated; H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from pagoda.loading.checkpoint import StoredTensor
from pagoda.planning.model_spec import AttentionSpec

T = TypeVar("T")
W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)
B = TypeVar("B", contravariant=True)
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class AttentionLayer(Generic[W]):
    """What attention needs of one layer: which KV cache, which shape, and the gains of its q/k norm where it has one."""

    index: int
    spec: AttentionSpec
    q_norm: W | None = None
    k_norm: W | None = None
    norm_eps: float = 0.0


class WeightOps(Protocol[W_co]):
    """How a backend takes weights from a checkpoint into its own form. Runs at load only."""

    def vector(self, stored: StoredTensor) -> W_co:
        """A gain or bias, [n]."""
        ...

    def table(self, stored: StoredTensor) -> W_co:
        """An embedding table, [rows, H]; may also serve as the (tied) head of `logits`."""
        ...

    def head(self, stored: StoredTensor) -> W_co:
        """An output head that is not the embedding table, [vocab, H]: only `logits` reads it."""
        ...

    def linear(self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor] = ()) -> W_co:
        """Matrices [out_i, in] stacked along their outputs, which may be stored in different formats; biases [out_i]."""
        ...


class Ops(Protocol[T, W, B]):
    """The forward pass. `batch` is what the runner prepared for this step."""

    def embed(self, batch: B, table: W, scale: float = 1.0) -> T:
        """Rows of `table` at the step's input ids, times `scale`: [T, H]."""
        ...

    def embed_positions(self, batch: B, table: W) -> T:
        """Rows of `table` at the step's positions (learned position embedding): [T, H]."""
        ...

    def add(self, x: T, y: T) -> T: ...

    def rms_norm(self, x: T, gain: W, eps: float) -> T:
        """x / sqrt(mean(x²) + eps) × gain over the last dimension (arXiv:1910.07467), computed in float32."""
        ...

    def add_rms_norm(self, x: T, y: T, gain: W, eps: float) -> tuple[T, T]:
        """(x + y, rms_norm(x + y)): the residual stream and what the next sublayer reads, in one pass over memory."""
        ...

    def layer_norm(self, x: T, gain: W, bias: W, eps: float) -> T:
        """(x - mean) / sqrt(variance + eps) × gain + bias over the last dimension, computed in float32."""
        ...

    def add_layer_norm(self, x: T, y: T, gain: W, bias: W, eps: float) -> tuple[T, T]:
        """(x + y, layer_norm(x + y))."""
        ...

    def linear(self, x: T, weight: W) -> T:
        """x [T, in] times the stacked matrices' transposes, plus their biases: [T, sum of out_i]."""
        ...

    def rope_and_store_kv(self, batch: B, qkv: T, layer: AttentionLayer[W]) -> T:
        """Split [T, (heads + 2 kv_heads) × head_dim], apply q/k norm and RoPE where the layer has them, write K and V
        into the step's cache slots, and return q [T, heads × head_dim]."""
        ...

    def paged_attention(self, batch: B, q: T, layer: AttentionLayer[W]) -> T:
        """Causal attention of each token over its own request's K and V, read back from the paged cache:
        [T, heads × head_dim]. With a window, over the last `window` positions only."""
        ...

    def gated_activation(self, gate_up: T, activation: Activation) -> T:
        """activation(first half) × second half: [T, 2 n] → [T, n] (SwiGLU and GeGLU, arXiv:2002.05202)."""
        ...

    def activation(self, x: T, activation: Activation) -> T: ...

    def logits(self, batch: B, x: T, head: W) -> T:
        """Scores over the vocabulary of the rows the step selected: [rows, vocab] in float32."""
        ...
