"""Architectures that can be planned and not yet run: their configurations become a ModelSpec, and nothing else.

Mixtral (arXiv:2401.04088), Qwen3-MoE (arXiv:2505.09388) and DeepSeek-V3 (arXiv:2412.19437; without its multi-token-prediction
module, 11.5e9 more parameters of its files, which the decoder does not need). Scalings of RoPE change no size: not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pagoda.errors import shown
from pagoda.models.config_reader import ConfigReader
from pagoda.planning.model_spec import (
    AttentionSpec,
    ExpertsSpec,
    FeedForwardSpec,
    LatentSpec,
    LayerSpec,
    ModelSpec,
    Part,
    RopeSpec,
    WeightSpec,
)

# Limits of what a configuration may say; see `config_reader`.
_MOST_EXPERTS = 4096

Shapes = list[tuple[str, tuple[int, ...], Part]]


def mixtral_spec(config: Mapping[str, Any]) -> ModelSpec:
    reader = ConfigReader(config)
    attention = _attention(reader, qk_norm=False)
    feed_forward = FeedForwardSpec(
        reader.size("intermediate_size"),
        reader.activation("hidden_act", "silu"),
        gated=True,
        experts=_experts(reader, "num_local_experts"),
    )
    windows = reader.windows([reader.config.get("sliding_window") is not None] * reader.num_layers())
    return _spec(reader, [LayerSpec(replace(attention, window=window), feed_forward) for window in windows])


def qwen3_moe_spec(config: Mapping[str, Any]) -> ModelSpec:
    reader = ConfigReader(config)
    reader.refuse(
        {"use_sliding_window": "windows of this architecture are not known", "attention_bias": "biases are not"}
    )
    attention = _attention(reader, qk_norm=True)
    activation = reader.activation("hidden_act", "silu")
    dense = FeedForwardSpec(reader.size("intermediate_size"), activation, gated=True)
    count = "num_experts" if "num_experts" in config else "num_local_experts"  # as configurations of GGUF files have it
    sparse = FeedForwardSpec(
        reader.size("moe_intermediate_size"), activation, gated=True, experts=_experts(reader, count)
    )
    period, plain = reader.size("decoder_sparse_step", 1), _indices(reader, "mlp_only_layers")
    return _spec(
        reader,
        [
            LayerSpec(attention, dense if index in plain or (index + 1) % period else sparse)
            for index in range(reader.num_layers())
        ],
    )


def deepseek_v3_spec(config: Mapping[str, Any]) -> ModelSpec:
    reader = ConfigReader(config)
    reader.refuse({"attention_bias": "biases are not supported"})
    attention = _latent_attention(reader)
    activation = reader.activation("hidden_act", "silu")
    inner = reader.size("moe_intermediate_size")
    shared = inner * reader.size("n_shared_experts", 1, _MOST_EXPERTS)
    dense = FeedForwardSpec(reader.size("intermediate_size"), activation, gated=True)
    sparse = FeedForwardSpec(inner, activation, gated=True, experts=_experts(reader, "n_routed_experts", shared))
    first = reader.count("first_k_dense_replace", 0)
    layers = [LayerSpec(attention, dense if index < first else sparse) for index in range(reader.num_layers())]
    return _spec(reader, layers, router_bias=True)


# model_type → its builder
PLANNED: Mapping[str, Callable[[Mapping[str, Any]], ModelSpec]] = {
    "mixtral": mixtral_spec,
    "qwen3_moe": qwen3_moe_spec,
    "deepseek_v3": deepseek_v3_spec,
}


def _spec(reader: ConfigReader, layers: list[LayerSpec], *, router_bias: bool = False) -> ModelSpec:
    hidden, vocab = reader.size("hidden_size"), reader.size("vocab_size")
    tied = reader.flag("tie_word_embeddings", False)
    weights = [WeightSpec("embedding", (vocab, hidden), "embedding")]
    for index, layer in enumerate(layers):
        shapes = _attention_weights(layer.attention, hidden) + _feed_forward_weights(
            layer.feed_forward, hidden, router_bias
        )
        weights += [WeightSpec(f"layers.{index}.{name}", shape, part, index) for name, shape, part in shapes]
    weights.append(WeightSpec("norm", (hidden,), "norm"))
    if not tied:
        weights.append(WeightSpec("head", (vocab, hidden), "head"))
    return ModelSpec(
        family=reader.name("model_type"),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=reader.context_length(),
        norm_eps=reader.positive("rms_norm_eps", 1e-6),
        tied_embeddings=tied,
        layers=tuple(layers),
        weights=tuple(weights),
    )


def _attention(reader: ConfigReader, *, qk_norm: bool) -> AttentionSpec:
    heads, kv_heads, head_dim = reader.head_counts()
    rope = RopeSpec(head_dim, reader.rope_base("rope_theta", 10_000.0))
    return AttentionSpec(heads, kv_heads, head_dim, head_dim**-0.5, rope, qk_norm=qk_norm)


def _latent_attention(reader: ConfigReader) -> AttentionSpec:
    rope_dim = reader.size("qk_rope_head_dim")
    head_dim = reader.size("qk_nope_head_dim") + rope_dim
    q_rank = None if reader.config.get("q_lora_rank") is None else reader.size("q_lora_rank")
    latent = LatentSpec(reader.size("kv_lora_rank"), rope_dim, reader.size("v_head_dim"), q_rank)
    rope = RopeSpec(rope_dim, reader.rope_base("rope_theta", 10_000.0))
    heads = reader.size("num_attention_heads")
    return AttentionSpec(heads, 1, head_dim, head_dim**-0.5, rope, latent=latent)


def _experts(reader: ConfigReader, name: str, shared_size: int = 0) -> ExpertsSpec:
    count = reader.size(name, maximum=_MOST_EXPERTS)
    return ExpertsSpec(count, reader.size("num_experts_per_tok", maximum=count), shared_size)


def _indices(reader: ConfigReader, name: str) -> frozenset[int]:
    values = reader.config.get(name) or []
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        reader.fail(f"{name} is {shown(values)}, must be a list of layers")
    return frozenset(values)


def _attention_weights(attention: AttentionSpec, hidden: int) -> Shapes:
    q_size, latent = attention.num_heads * attention.head_dim, attention.latent
    shapes: Shapes = [("attention_norm", (hidden,), "norm")]
    if latent is None:
        kv_size = attention.num_kv_heads * attention.head_dim
        shapes += [
            ("q", (q_size, hidden), "attention"),
            ("k", (kv_size, hidden), "attention"),
            ("v", (kv_size, hidden), "attention"),
        ]
    else:
        shapes += _latent_weights(attention, latent, hidden)
    if attention.qk_norm:
        shapes += [("q_norm", (attention.head_dim,), "norm"), ("k_norm", (attention.head_dim,), "norm")]
    return [*shapes, ("attention_output", (hidden, attention.output_size), "attention")]


def _latent_weights(attention: AttentionSpec, latent: LatentSpec, hidden: int) -> Shapes:
    q_size = attention.num_heads * attention.head_dim
    expanded = attention.num_heads * (attention.head_dim - latent.rope_dim) + attention.output_size
    shapes: Shapes = [("q", (q_size, hidden), "attention")]
    if latent.q_rank is not None:
        shapes = [
            ("q_a", (latent.q_rank, hidden), "attention"),
            ("q_a_norm", (latent.q_rank,), "norm"),
            ("q_b", (q_size, latent.q_rank), "attention"),
        ]
    return [
        *shapes,
        ("kv_a", (latent.kv_rank + latent.rope_dim, hidden), "attention"),
        ("kv_a_norm", (latent.kv_rank,), "norm"),
        ("kv_b", (expanded, latent.kv_rank), "attention"),
    ]


def _feed_forward_weights(ffn: FeedForwardSpec, hidden: int, router_bias: bool) -> Shapes:
    inner, experts = ffn.intermediate_size, ffn.experts
    norm: Shapes = [("feed_forward_norm", (hidden,), "norm")]
    if experts is None:
        return norm + _gated("", (), inner, hidden, "feed_forward")
    shapes = [*norm, ("router", (experts.count, hidden), "feed_forward")]
    if router_bias:
        shapes.append(("router_bias", (experts.count,), "feed_forward"))
    shapes += _gated("experts_", (experts.count,), inner, hidden, "experts")
    return shapes + (_gated("shared_", (), experts.shared_size, hidden, "feed_forward") if experts.shared_size else [])


def _gated(prefix: str, stacked: tuple[int, ...], inner: int, hidden: int, part: Part) -> Shapes:
    """The three matrices of a gated network, or of each of so many."""
    return [
        (f"{prefix}gate", (*stacked, inner, hidden), part),
        (f"{prefix}up", (*stacked, inner, hidden), part),
        (f"{prefix}down", (*stacked, hidden, inner), part),
    ]
