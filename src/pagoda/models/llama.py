"""LLaMA and its kin: pre-norm decoders with RMSNorm, RoPE, grouped-query attention and SwiGLU.

LLaMA 1, 2 and 3 (arXiv:2302.13971, 2307.09288, 2407.21783), Mistral (a sliding window, arXiv:2310.06825), Qwen2 and Qwen2.5
(biases on Q, K, V, arXiv:2407.10671), Qwen3 (RMSNorm of each head's q and k, arXiv:2505.09388).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family, Model, Source, Weights
from pagoda.models.transforms import AS_STORED, halves_from_pairs
from pagoda.ops.interface import AttentionLayer, B, Ops, T, W
from pagoda.planning.model_spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, Part, WeightSpec

# weight of a layer → (name in Hugging Face's files, name in GGUF files)
_LAYER_NAMES = {
    "attention_norm": ("input_layernorm.weight", "attn_norm.weight"),
    "q": ("self_attn.q_proj.weight", "attn_q.weight"),
    "k": ("self_attn.k_proj.weight", "attn_k.weight"),
    "v": ("self_attn.v_proj.weight", "attn_v.weight"),
    "q_bias": ("self_attn.q_proj.bias", "attn_q.bias"),
    "k_bias": ("self_attn.k_proj.bias", "attn_k.bias"),
    "v_bias": ("self_attn.v_proj.bias", "attn_v.bias"),
    "q_norm": ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    "k_norm": ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    "attention_output": ("self_attn.o_proj.weight", "attn_output.weight"),
    "attention_output_bias": ("self_attn.o_proj.bias", "attn_output.bias"),
    "feed_forward_norm": ("post_attention_layernorm.weight", "ffn_norm.weight"),
    "gate": ("mlp.gate_proj.weight", "ffn_gate.weight"),
    "up": ("mlp.up_proj.weight", "ffn_up.weight"),
    "down": ("mlp.down_proj.weight", "ffn_down.weight"),
    "gate_bias": ("mlp.gate_proj.bias", "ffn_gate.bias"),
    "up_bias": ("mlp.up_proj.bias", "ffn_up.bias"),
    "down_bias": ("mlp.down_proj.bias", "ffn_down.bias"),
}
_INTERLEAVED = ("llama", "mistral")
# Settings of other models that share these names of architectures.
_REFUSED = {
    "num_local_experts": "a mixture of experts is not supported",
    "v_head_dim": "values as wide as keys are needed",
    "logit_scale": "scaled logits are not supported",
    "residual_multiplier": "a scaled residual stream is not supported",
    "embedding_multiplier": "scaled embeddings are not supported in this family",
    "attn_logit_softcapping": "capped attention scores are not supported",
    "final_logit_softcapping": "capped logits are not supported",
}


class LlamaFamily(Family):
    name = "llama"
    model_types = ("llama", "mistral", "qwen2", "qwen3")

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader(config)
        reader.refuse(_REFUSED)
        kind = reader.name("model_type")
        hidden, num_layers, vocab = reader.size("hidden_size"), reader.num_layers(), reader.vocab_size()
        num_heads, num_kv_heads, head_dim = reader.head_counts()
        rope = reader.rope(head_dim)
        scale = reader.positive("attention_scale", head_dim**-0.5)
        feed_forward = FeedForwardSpec(
            reader.size("intermediate_size"), reader.activation("hidden_act", "silu"), gated=True
        )
        layers = tuple(
            LayerSpec(
                AttentionSpec(num_heads, num_kv_heads, head_dim, scale, rope, window, qk_norm=kind == "qwen3"),
                feed_forward,
            )
            for window in _windows(reader, kind, num_layers)
        )
        tied = reader.flag("tie_word_embeddings", False)
        attention_bias = kind != "mistral" and reader.flag("attention_bias", False)
        weights = [WeightSpec("embedding", (vocab, hidden), "embedding")]
        for index, layer in enumerate(layers):
            weights += _layer_weights(
                index,
                layer,
                hidden,
                qkv_bias=attention_bias or kind == "qwen2",
                output_bias=attention_bias and kind != "qwen2",
                feed_forward_bias=kind == "llama" and reader.flag("mlp_bias", False),
            )
        weights.append(WeightSpec("norm", (hidden,), "norm"))
        if not tied:
            weights.append(WeightSpec("head", (vocab, hidden), "head"))
        return ModelSpec(
            family=kind,
            hidden_size=hidden,
            vocab_size=vocab,
            context_length=reader.context_length(),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            tied_embeddings=tied,
            layers=layers,
            weights=tuple(weights),
        )

    def sources(self, spec: ModelSpec) -> dict[str, Source]:
        return {weight.name: _source(weight, spec) for weight in spec.weights}

    def ignored(self, spec: ModelSpec) -> tuple[str, ...]:
        # RoPE's frequencies come with the config, and a tied head may be stored a second time.
        frequencies = r".*\.rotary_emb\.inv_freq|rope_freqs\.weight|blk\.\d+\.attn_rot_embd"
        return (frequencies, r"lm_head\.weight|output\.weight") if spec.tied_embeddings else (frequencies,)

    def build(self, spec: ModelSpec, weights: Weights[W]) -> Model[W]:
        return LlamaModel(spec, weights)


@dataclass(frozen=True, slots=True)
class LlamaLayer(Generic[W]):
    attention_norm: W
    qkv: W
    attention: AttentionLayer[W]
    attention_output: W
    feed_forward_norm: W
    gate_up: W
    down: W


class LlamaModel(Model[W]):
    def __init__(self, spec: ModelSpec, weights: Weights[W]) -> None:
        self.spec = spec
        self.embedding = weights.table("embedding")
        names = {weight.name for weight in spec.weights}
        self.layers = [_layer(index, spec, names, weights) for index in range(spec.num_layers)]
        self.norm = weights.vector("norm")
        self.head = self.embedding if spec.tied_embeddings else weights.head("head")

    def forward(self, ops: Ops[T, W, B], batch: B) -> T:
        eps, activation = self.spec.norm_eps, self.spec.layers[0].feed_forward.activation
        x = ops.embed(batch, self.embedding)
        normed = ops.rms_norm(x, self.layers[0].attention_norm, eps)
        next_norms = [layer.attention_norm for layer in self.layers[1:]] + [self.norm]
        for layer, next_norm in zip(self.layers, next_norms, strict=True):
            q = ops.rope_and_store_kv(batch, ops.linear(normed, layer.qkv), layer.attention)
            attended = ops.linear(ops.paged_attention(batch, q, layer.attention), layer.attention_output)
            x, normed = ops.add_rms_norm(x, attended, layer.feed_forward_norm, eps)
            inner = ops.gated_activation(ops.linear(normed, layer.gate_up), activation)
            x, normed = ops.add_rms_norm(x, ops.linear(inner, layer.down), next_norm, eps)
        return ops.logits(batch, normed, self.head)


def _windows(reader: ConfigReader, kind: str, num_layers: int) -> list[int | None]:
    if kind == "mistral":
        return reader.windows([reader.config.get("sliding_window") is not None] * num_layers)
    if kind in ("qwen2", "qwen3") and reader.flag("use_sliding_window", False):
        # max_window_layers: the first so many layers see everything.
        first = reader.config.get("max_window_layers", 28)
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            reader.fail(f"max_window_layers is {first!r}, must be an integer of at least 0")
        return reader.windows([layer >= first for layer in range(num_layers)])
    return [None] * num_layers


def _layer_weights(
    index: int, layer: LayerSpec, hidden: int, *, qkv_bias: bool, output_bias: bool, feed_forward_bias: bool
) -> list[WeightSpec]:
    attention, inner = layer.attention, layer.feed_forward.intermediate_size
    q_size, kv_size = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    table: list[tuple[str, tuple[int, ...], Part]] = [
        ("attention_norm", (hidden,), "norm"),
        ("q", (q_size, hidden), "attention"),
        ("k", (kv_size, hidden), "attention"),
        ("v", (kv_size, hidden), "attention"),
    ]
    if qkv_bias:
        table += [
            (f"{name}_bias", (size,), "attention") for name, size in zip("qkv", (q_size, kv_size, kv_size), strict=True)
        ]
    if attention.qk_norm:
        table += [("q_norm", (attention.head_dim,), "norm"), ("k_norm", (attention.head_dim,), "norm")]
    table.append(("attention_output", (hidden, q_size), "attention"))
    if output_bias:
        table.append(("attention_output_bias", (hidden,), "attention"))
    table += [
        ("feed_forward_norm", (hidden,), "norm"),
        ("gate", (inner, hidden), "feed_forward"),
        ("up", (inner, hidden), "feed_forward"),
        ("down", (hidden, inner), "feed_forward"),
    ]
    if feed_forward_bias:
        table += [("gate_bias", (inner,), "feed_forward"), ("up_bias", (inner,), "feed_forward")]
        table.append(("down_bias", (hidden,), "feed_forward"))
    return [WeightSpec(f"layers.{index}.{name}", shape, part, index) for name, shape, part in table]


def _source(weight: WeightSpec, spec: ModelSpec) -> Source:
    outside = {
        "embedding": Source(("model.embed_tokens.weight",), "token_embd.weight"),
        "norm": Source(("model.norm.weight",), "output_norm.weight"),
        "head": Source(("lm_head.weight",), "output.weight"),
    }
    if weight.layer is None:
        return outside[weight.name]
    short = weight.name.rpartition(".")[2]
    huggingface, gguf = _LAYER_NAMES[short]
    attention = spec.layers[weight.layer].attention
    # GGUF's architecture "llama" (Mistral's, too) has Q and K reordered for interleaved RoPE; the other ones do not.
    reordered = {"q": attention.num_heads, "k": attention.num_kv_heads} if spec.family in _INTERLEAVED else {}
    num_heads = reordered.get(short.removesuffix("_bias"))
    return Source(
        (f"model.layers.{weight.layer}.{huggingface}",),
        f"blk.{weight.layer}.{gguf}",
        from_gguf=AS_STORED if num_heads is None else halves_from_pairs(num_heads),
    )


def _layer(index: int, spec: ModelSpec, names: set[str], weights: Weights[W]) -> LlamaLayer[W]:
    def vector(short: str) -> W:
        return weights.vector(f"layers.{index}.{short}")

    def linear(*short: str) -> W:
        matrices = [f"layers.{index}.{name}" for name in short]
        return weights.linear(matrices, [bias for matrix in matrices if (bias := f"{matrix}_bias") in names])

    attention = spec.layers[index].attention
    return LlamaLayer(
        attention_norm=vector("attention_norm"),
        qkv=linear("q", "k", "v"),
        attention=AttentionLayer(
            index,
            attention,
            q_norm=vector("q_norm") if attention.qk_norm else None,
            k_norm=vector("k_norm") if attention.qk_norm else None,
            norm_eps=spec.norm_eps,
        ),
        attention_output=linear("attention_output"),
        feed_forward_norm=vector("feed_forward_norm"),
        gate_up=linear("gate", "up"),
        down=linear("down"),
    )
