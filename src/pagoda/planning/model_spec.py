"""ModelSpec: what an architecture is made of, in plain numbers. No files, no devices, no tensors.

Everything that plans, sizes or builds a model starts from this one description.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Part = Literal["embedding", "attention", "feed_forward", "experts", "norm", "head"]


@dataclass(frozen=True, slots=True)
class Llama3RopeScaling:
    """Llama 3.1's RoPE scaling: low frequencies divided by `factor`, high ones kept, a ramp between (arXiv:2407.21783)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding (arXiv:2104.09864) of the first `dim` elements of each head, halves paired (NeoX style)."""

    dim: int
    base: float
    linear_factor: float = 1.0
    llama3: Llama3RopeScaling | None = None
    # One divisor per frequency (dim / 2 of them), as a GGUF file carries them instead of the scaling's parameters.
    divisors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class LatentSpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds one vector of `kv_rank` + `rope_dim`
    elements a token, whatever the number of heads, and no V of its own.

    value_dim: of a head's output. q_rank: width that queries are squeezed through; None: they are not. The head_dim of the
    attention is that of queries and keys, `rope_dim` included; its num_kv_heads is 1, since all heads share that vector.
    """

    kv_rank: int
    rope_dim: int
    value_dim: int
    q_rank: int | None = None


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """A mixture of experts: a router sends each token through `per_token` of `count` networks, and through a shared one
    of `shared_size` (0: there is none)."""

    count: int
    per_token: int
    shared_size: int = 0


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One layer's attention. `window`: a token sees itself and so many minus one before it; None: all before it."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    rope: RopeSpec | None
    window: int | None = None
    qk_norm: bool = False
    latent: LatentSpec | None = None

    @property
    def output_size(self) -> int:
        """Elements a token of what attention gives, over all heads."""
        return self.num_heads * (self.latent.value_dim if self.latent else self.head_dim)

    @property
    def projected_size(self) -> int:
        """Elements a token that the products before attention give: q, k and v; of a latent one those on the way as well."""
        q_size = self.num_heads * self.head_dim
        if self.latent is None:
            return q_size + 2 * self.num_kv_heads * self.head_dim
        expanded = self.num_heads * (self.head_dim - self.latent.rope_dim) + self.output_size
        return (self.latent.q_rank or 0) + q_size + self.latent.kv_rank + self.latent.rope_dim + expanded


@dataclass(frozen=True, slots=True)
class FeedForwardSpec:
    """One layer's feed-forward network; `gated` has two input projections (SwiGLU, GeGLU), plain has one.

    intermediate_size: of one expert, where there are `experts`.
    """

    intermediate_size: int
    activation: Literal["silu", "gelu_tanh"]
    gated: bool
    experts: ExpertsSpec | None = None

    @property
    def active_size(self) -> int:
        """Inner elements that a token computes: of its experts and the shared one together."""
        if self.experts is None:
            return self.intermediate_size
        return self.experts.per_token * self.intermediate_size + self.experts.shared_size


@dataclass(frozen=True, slots=True)
class LayerSpec:
    attention: AttentionSpec
    feed_forward: FeedForwardSpec


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """One weight as the model needs it: canonical name, shape ([out, in] for a matrix), the part it belongs to, its layer.

    Matrices of a layer's experts are one weight [experts, out, in], of the part "experts"; a shared expert's are not among
    them. A layer's names end in what costs tell apart: `.attention_output`, `down`, `.router`, `_norm`, and `_bias` of any.
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    layer: int | None = None

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One decoder-only model.

    vocab_size       rows of the embedding table; the tokenizer may have fewer (the rest is padding)
    context_length   the longest sequence the model was made for, in tokens
    weights          every weight, once (a tied head has no entry of its own)
    """

    family: str
    hidden_size: int
    vocab_size: int
    context_length: int
    norm_eps: float
    tied_embeddings: bool
    layers: tuple[LayerSpec, ...]
    weights: tuple[WeightSpec, ...]
    embedding_scale: float = 1.0
    learned_positions: bool = False

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def widest_window(self) -> int | None:
        """How many tokens, itself included, a token sees in that layer where it sees most; None: all before it."""
        windows = [layer.attention.window for layer in self.layers]
        return None if None in windows else max(window for window in windows if window is not None)

    @property
    def num_parameters(self) -> int:
        """All parameters, tied ones counted once."""
        return sum(weight.num_elements for weight in self.weights)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes through: of experts only those that it is sent to.

        Tables count whole, although a token reads one row of them: so do the figures that are published (Mixtral 8x7B 12.9e9,
        arXiv:2401.04088; Qwen3-30B-A3B 3.3e9, arXiv:2505.09388; DeepSeek-V3 37e9, arXiv:2412.19437).
        """
        return sum(self.active_elements(weight) for weight in self.weights)

    def active_elements(self, weight: WeightSpec) -> int:
        """Elements of one weight that one token is multiplied by."""
        experts = self.experts_of(weight)
        return weight.num_elements if experts is None else weight.num_elements // experts.count * experts.per_token

    def experts_of(self, weight: WeightSpec) -> ExpertsSpec | None:
        """What the weight's layer says of experts, if the weight is theirs."""
        if weight.part != "experts" or weight.layer is None:
            return None
        return self.layers[weight.layer].feed_forward.experts
