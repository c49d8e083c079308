"""GPT-2: pre-norm decoder with LayerNorm, learned positions, biases everywhere and GELU (Radford et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family, Model, Source, Weights
from pagoda.models.transforms import AS_STORED, TRANSPOSED
from pagoda.ops.interface import AttentionLayer, B, Ops, T, W
from pagoda.planning.model_spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, Part, WeightSpec

# weight → (name in Hugging Face's files, name in GGUF files); a layer's ones without the layer's prefix
_NAMES = {
    "embedding": ("wte.weight", "token_embd.weight"),
    "positions": ("wpe.weight", "position_embd.weight"),
    "norm": ("ln_f.weight", "output_norm.weight"),
    "norm_bias": ("ln_f.bias", "output_norm.bias"),
}
_LAYER_NAMES = {
    "attention_norm": ("ln_1.weight", "attn_norm.weight"),
    "attention_norm_bias": ("ln_1.bias", "attn_norm.bias"),
    "qkv": ("attn.c_attn.weight", "attn_qkv.weight"),
    "qkv_bias": ("attn.c_attn.bias", "attn_qkv.bias"),
    "attention_output": ("attn.c_proj.weight", "attn_output.weight"),
    "attention_output_bias": ("attn.c_proj.bias", "attn_output.bias"),
    "feed_forward_norm": ("ln_2.weight", "ffn_norm.weight"),
    "feed_forward_norm_bias": ("ln_2.bias", "ffn_norm.bias"),
    "up": ("mlp.c_fc.weight", "ffn_up.weight"),
    "up_bias": ("mlp.c_fc.bias", "ffn_up.bias"),
    "down": ("mlp.c_proj.weight", "ffn_down.weight"),
    "down_bias": ("mlp.c_proj.bias", "ffn_down.bias"),
}


class Gpt2Family(Family):
    name = "gpt2"
    model_types = ("gpt2",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        reader = ConfigReader(config)
        reader.refuse({"add_cross_attention": "cross attention is not supported"})
        hidden, num_layers, vocab = reader.size("hidden_size"), reader.num_layers(), reader.vocab_size()
        num_heads, _, head_dim = reader.head_counts()
        if num_heads * head_dim != hidden:
            reader.fail(f"hidden_size, {hidden:,}, is not num_attention_heads × head_dim, {num_heads:,} × {head_dim:,}")
        context_length = reader.context_length()
        scale = head_dim**-0.5 if reader.flag("scale_attn_weights", True) else 1.0
        by_layer = reader.flag("scale_attn_by_inverse_layer_idx", False)
        feed_forward = FeedForwardSpec(
            reader.size("intermediate_size", 4 * hidden), reader.activation("hidden_act", "gelu_new"), gated=False
        )
        layers = tuple(
            LayerSpec(
                AttentionSpec(num_heads, num_heads, head_dim, scale / (index + 1) if by_layer else scale, rope=None),
                feed_forward,
            )
            for index in range(num_layers)
        )
        tied = reader.flag("tie_word_embeddings", True)
        weights = [
            WeightSpec("embedding", (vocab, hidden), "embedding"),
            WeightSpec("positions", (context_length, hidden), "embedding"),
        ]
        for index in range(num_layers):
            weights += _layer_weights(index, hidden, feed_forward.intermediate_size)
        weights += [WeightSpec("norm", (hidden,), "norm"), WeightSpec("norm_bias", (hidden,), "norm")]
        if not tied:
            weights.append(WeightSpec("head", (vocab, hidden), "head"))
        return ModelSpec(
            family=self.name,
            hidden_size=hidden,
            vocab_size=vocab,
            context_length=context_length,
            norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
            tied_embeddings=tied,
            layers=layers,
            weights=tuple(weights),
            learned_positions=True,
        )

    def sources(self, spec: ModelSpec) -> dict[str, Source]:
        return {weight.name: _source(weight) for weight in spec.weights}

    def ignored(self, spec: ModelSpec) -> tuple[str, ...]:
        # Old files carry the causal mask; a tied head may be stored a second time.
        masks = r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"
        return (masks, r"lm_head\.weight|output\.weight") if spec.tied_embeddings else (masks,)

    def build(self, spec: ModelSpec, weights: Weights[W]) -> Model[W]:
        return Gpt2Model(spec, weights)


@dataclass(frozen=True, slots=True)
class Gpt2Layer(Generic[W]):
    attention_norm: W
    attention_norm_bias: W
    qkv: W
    attention: AttentionLayer[W]
    attention_output: W
    feed_forward_norm: W
    feed_forward_norm_bias: W
    up: W
    down: W


class Gpt2Model(Model[W]):
    def __init__(self, spec: ModelSpec, weights: Weights[W]) -> None:
        self.spec = spec
        self.embedding = weights.table("embedding")
        self.positions = weights.table("positions")
        self.layers = [_layer(index, spec, weights) for index in range(spec.num_layers)]
        self.norm, self.norm_bias = weights.vector("norm"), weights.vector("norm_bias")
        self.head = self.embedding if spec.tied_embeddings else weights.head("head")

    def forward(self, ops: Ops[T, W, B], batch: B) -> T:
        eps, activation = self.spec.norm_eps, self.spec.layers[0].feed_forward.activation
        x = ops.add(ops.embed(batch, self.embedding), ops.embed_positions(batch, self.positions))
        normed = ops.layer_norm(x, self.layers[0].attention_norm, self.layers[0].attention_norm_bias, eps)
        next_norms = [(layer.attention_norm, layer.attention_norm_bias) for layer in self.layers[1:]]
        next_norms.append((self.norm, self.norm_bias))
        for layer, (gain, bias) in zip(self.layers, next_norms, strict=True):
            q = ops.rope_and_store_kv(batch, ops.linear(normed, layer.qkv), layer.attention)
            attended = ops.linear(ops.paged_attention(batch, q, layer.attention), layer.attention_output)
            x, normed = ops.add_layer_norm(x, attended, layer.feed_forward_norm, layer.feed_forward_norm_bias, eps)
            inner = ops.activation(ops.linear(normed, layer.up), activation)
            x, normed = ops.add_layer_norm(x, ops.linear(inner, layer.down), gain, bias, eps)
        return ops.logits(batch, normed, self.head)


def _layer_weights(index: int, hidden: int, inner: int) -> list[WeightSpec]:
    table: list[tuple[str, tuple[int, ...], Part]] = [
        ("attention_norm", (hidden,), "norm"),
        ("attention_norm_bias", (hidden,), "norm"),
        ("qkv", (3 * hidden, hidden), "attention"),
        ("qkv_bias", (3 * hidden,), "attention"),
        ("attention_output", (hidden, hidden), "attention"),
        ("attention_output_bias", (hidden,), "attention"),
        ("feed_forward_norm", (hidden,), "norm"),
        ("feed_forward_norm_bias", (hidden,), "norm"),
        ("up", (inner, hidden), "feed_forward"),
        ("up_bias", (inner,), "feed_forward"),
        ("down", (hidden, inner), "feed_forward"),
        ("down_bias", (hidden,), "feed_forward"),
    ]
    return [WeightSpec(f"layers.{index}.{name}", shape, part, index) for name, shape, part in table]


def _source(weight: WeightSpec) -> Source:
    if weight.name == "head":
        return Source(("lm_head.weight",), "output.weight")
    if weight.layer is None:
        huggingface, gguf = _NAMES[weight.name]
    else:
        short = _LAYER_NAMES[weight.name.rpartition(".")[2]]
        huggingface, gguf = f"h.{weight.layer}.{short[0]}", f"blk.{weight.layer}.{short[1]}"
    # The matrices of the layers are Conv1D, the tables are not. Files of the bare decoder have no prefix.
    transform = TRANSPOSED if weight.layer is not None and len(weight.shape) == 2 else AS_STORED
    return Source((f"transformer.{huggingface}", huggingface), gguf, from_huggingface=transform)


def _layer(index: int, spec: ModelSpec, weights: Weights[W]) -> Gpt2Layer[W]:
    def vector(short: str) -> W:
        return weights.vector(f"layers.{index}.{short}")

    def linear(short: str) -> W:
        return weights.linear([f"layers.{index}.{short}"], [f"layers.{index}.{short}_bias"])

    return Gpt2Layer(
        attention_norm=vector("attention_norm"),
        attention_norm_bias=vector("attention_norm_bias"),
        qkv=linear("qkv"),
        attention=AttentionLayer(index, spec.layers[index].attention),
        attention_output=linear("attention_output"),
        feed_forward_norm=vector("feed_forward_norm"),
        feed_forward_norm_bias=vector("feed_forward_norm_bias"),
        up=linear("up"),
        down=linear("down"),
    )
