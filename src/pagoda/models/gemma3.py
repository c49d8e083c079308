"""Gemma 3, text: norms before and after each sublayer, q/k norm, GeGLU, local and global attention (arXiv:2503.19786)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from pagoda.errors import UnsupportedModelError
from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family, Model, Source, Weights
from pagoda.models.transforms import AS_STORED, PLUS_ONE
from pagoda.ops.interface import AttentionLayer, B, Ops, T, W
from pagoda.planning.model_spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, Part, RopeSpec, WeightSpec

# weight → (name in Hugging Face's files, name in GGUF files); a layer's ones without the layer's prefix
_NAMES = {
    "embedding": ("embed_tokens.weight", "token_embd.weight"),
    "norm": ("norm.weight", "output_norm.weight"),
}
_LAYER_NAMES = {
    "attention_norm": ("input_layernorm.weight", "attn_norm.weight"),
    "q": ("self_attn.q_proj.weight", "attn_q.weight"),
    "k": ("self_attn.k_proj.weight", "attn_k.weight"),
    "v": ("self_attn.v_proj.weight", "attn_v.weight"),
    "q_norm": ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    "k_norm": ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    "attention_output": ("self_attn.o_proj.weight", "attn_output.weight"),
    "post_attention_norm": ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    "feed_forward_norm": ("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    "gate": ("mlp.gate_proj.weight", "ffn_gate.weight"),
    "up": ("mlp.up_proj.weight", "ffn_up.weight"),
    "down": ("mlp.down_proj.weight", "ffn_down.weight"),
    "post_feed_forward_norm": ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
}
# The decoder's place in files of a text model, and of a multimodal one in its two layouts.
_PREFIXES = ("model.", "language_model.model.", "model.language_model.")
_REFUSED = {
    "attention_bias": "biases are not supported in this family",
    "attn_logit_softcapping": "capped attention scores are not supported",
    "final_logit_softcapping": "capped logits are not supported",
    "use_bidirectional_attention": "only causal attention is supported",
}
# The 27B model scales its scores by hidden_size / heads, all others by head_dim; a GGUF file does not say so.
_LAYERS_OF_27B = 62


class Gemma3Family(Family):
    name = "gemma3"
    model_types = ("gemma3", "gemma3_text")

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader(config)
        reader.refuse(_REFUSED)
        hidden, num_layers, vocab = reader.size("hidden_size"), reader.num_layers(), reader.vocab_size()
        num_heads, num_kv_heads, head_dim = reader.head_counts()
        scalar = hidden / num_heads if num_layers == _LAYERS_OF_27B else head_dim
        scale = reader.positive("query_pre_attn_scalar", scalar) ** -0.5
        far, near = reader.rope(head_dim, 1_000_000.0), _local_rope(reader, head_dim)
        period = reader.size("sliding_window_pattern", 6)
        windows = reader.windows([(index + 1) % period != 0 for index in range(num_layers)])
        feed_forward = FeedForwardSpec(
            reader.size("intermediate_size"), reader.activation("hidden_activation", "gelu_pytorch_tanh"), gated=True
        )
        layers = tuple(
            LayerSpec(
                AttentionSpec(num_heads, num_kv_heads, head_dim, scale, near if window else far, window, qk_norm=True),
                feed_forward,
            )
            for window in windows
        )
        if not reader.flag("tie_word_embeddings", True):
            reader.fail("tie_word_embeddings is false, but this family has only tied heads")
        weights = [WeightSpec("embedding", (vocab, hidden), "embedding")]
        for index, layer in enumerate(layers):
            weights += _layer_weights(index, layer, hidden)
        weights.append(WeightSpec("norm", (hidden,), "norm"))
        return ModelSpec(
            family=self.name,
            hidden_size=hidden,
            vocab_size=vocab,
            context_length=reader.context_length(),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            tied_embeddings=True,
            layers=layers,
            weights=tuple(weights),
            embedding_scale=hidden**0.5,
        )

    def sources(self, spec: ModelSpec) -> dict[str, Source]:
        return {weight.name: _source(weight) for weight in spec.weights}

    def ignored(self, spec: ModelSpec) -> tuple[str, ...]:
        # The vision part of a multimodal model; a tied head stored a second time.
        return (r"(model\.)?(vision_tower|multi_modal_projector)\..*", r"(language_model\.)?lm_head\.weight")

    def build(self, spec: ModelSpec, weights: Weights[W]) -> Model[W]:
        return Gemma3Model(spec, weights)


@dataclass(frozen=True, slots=True)
class Gemma3Layer(Generic[W]):
    attention_norm: W
    qkv: W
    attention: AttentionLayer[W]
    attention_output: W
    post_attention_norm: W
    feed_forward_norm: W
    gate_up: W
    down: W
    post_feed_forward_norm: W


class Gemma3Model(Model[W]):
    def __init__(self, spec: ModelSpec, weights: Weights[W]) -> None:
        self.spec = spec
        self.embedding = weights.table("embedding")
        self.layers = [_layer(index, spec, weights) for index in range(spec.num_layers)]
        self.norm = weights.vector("norm")

    def forward(self, ops: Ops[T, W, B], batch: B) -> T:
        eps, activation = self.spec.norm_eps, self.spec.layers[0].feed_forward.activation
        x = ops.embed(batch, self.embedding, self.spec.embedding_scale)
        normed = ops.rms_norm(x, self.layers[0].attention_norm, eps)
        next_norms = [layer.attention_norm for layer in self.layers[1:]] + [self.norm]
        for layer, next_norm in zip(self.layers, next_norms, strict=True):
            q = ops.rope_and_store_kv(batch, ops.linear(normed, layer.qkv), layer.attention)
            attended = ops.linear(ops.paged_attention(batch, q, layer.attention), layer.attention_output)
            attended = ops.rms_norm(attended, layer.post_attention_norm, eps)
            x, normed = ops.add_rms_norm(x, attended, layer.feed_forward_norm, eps)
            inner = ops.gated_activation(ops.linear(normed, layer.gate_up), activation)
            added = ops.rms_norm(ops.linear(inner, layer.down), layer.post_feed_forward_norm, eps)
            x, normed = ops.add_rms_norm(x, added, next_norm, eps)
        return ops.logits(batch, normed, self.embedding)


def _local_rope(reader: ConfigReader, head_dim: int) -> RopeSpec:
    """Layers with a window have a RoPE base of their own and no scaling."""
    parameters = reader.config.get("rope_parameters")
    local = parameters.get("sliding_attention") if isinstance(parameters, Mapping) else None
    kind = local.get("rope_type", "default") if isinstance(local, Mapping) else "default"
    if kind != "default":
        raise UnsupportedModelError("RoPE scaling of local attention", kind, ("default",))
    return RopeSpec(head_dim, reader.rope_base("rope_local_base_freq", 10_000.0))


def _layer_weights(index: int, layer: LayerSpec, hidden: int) -> list[WeightSpec]:
    attention, inner = layer.attention, layer.feed_forward.intermediate_size
    q_size, kv_size = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    table: list[tuple[str, tuple[int, ...], Part]] = [
        ("attention_norm", (hidden,), "norm"),
        ("q", (q_size, hidden), "attention"),
        ("k", (kv_size, hidden), "attention"),
        ("v", (kv_size, hidden), "attention"),
        ("q_norm", (attention.head_dim,), "norm"),
        ("k_norm", (attention.head_dim,), "norm"),
        ("attention_output", (hidden, q_size), "attention"),
        ("post_attention_norm", (hidden,), "norm"),
        ("feed_forward_norm", (hidden,), "norm"),
        ("gate", (inner, hidden), "feed_forward"),
        ("up", (inner, hidden), "feed_forward"),
        ("down", (hidden, inner), "feed_forward"),
        ("post_feed_forward_norm", (hidden,), "norm"),
    ]
    return [WeightSpec(f"layers.{index}.{name}", shape, part, index) for name, shape, part in table]


def _source(weight: WeightSpec) -> Source:
    if weight.layer is None:
        huggingface, gguf = _NAMES[weight.name]
    else:
        short = _LAYER_NAMES[weight.name.rpartition(".")[2]]
        huggingface, gguf = f"layers.{weight.layer}.{short[0]}", f"blk.{weight.layer}.{short[1]}"
    names = tuple(f"{prefix}{huggingface}" for prefix in _PREFIXES)
    # Hugging Face's files store gains minus one; GGUF's have it added.
    return Source(names, gguf, from_huggingface=PLUS_ONE if weight.part == "norm" else AS_STORED)


def _layer(index: int, spec: ModelSpec, weights: Weights[W]) -> Gemma3Layer[W]:
    def vector(short: str) -> W:
        return weights.vector(f"layers.{index}.{short}")

    def linear(*short: str) -> W:
        return weights.linear([f"layers.{index}.{name}" for name in short])

    return Gemma3Layer(
        attention_norm=vector("attention_norm"),
        qkv=linear("q", "k", "v"),
        attention=AttentionLayer(
            index, spec.layers[index].attention, vector("q_norm"), vector("k_norm"), spec.norm_eps
        ),
        attention_output=linear("attention_output"),
        post_attention_norm=vector("post_attention_norm"),
        feed_forward_norm=vector("feed_forward_norm"),
        gate_up=linear("gate", "up"),
        down=linear("down"),
        post_feed_forward_norm=vector("post_feed_forward_norm"),
    )
