"""Model descriptions built by hand, so that planning is tested without files, families or weights."""

from pagoda.planning.model_spec import (
    AttentionSpec,
    FeedForwardSpec,
    LayerSpec,
    ModelSpec,
    Part,
    RopeSpec,
    WeightSpec,
)


def llama_spec(
    *,
    hidden_size: int,
    intermediate_size: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    vocab_size: int,
    context_length: int,
    tied: bool = False,
    windows: tuple[int | None, ...] = (None,),
) -> ModelSpec:
    """A LLaMA-shaped model; layer i has window `windows[i % len(windows)]`."""
    head_dim = hidden_size // num_heads
    kv_size = num_kv_heads * head_dim
    rope = RopeSpec(head_dim, 10_000.0)
    layers = tuple(
        LayerSpec(
            AttentionSpec(num_heads, num_kv_heads, head_dim, head_dim**-0.5, rope, windows[i % len(windows)]),
            FeedForwardSpec(intermediate_size, "silu", gated=True),
        )
        for i in range(num_layers)
    )

    def layer_weights(i: int) -> list[WeightSpec]:
        shapes: list[tuple[str, tuple[int, ...], Part]] = [
            ("attention_norm", (hidden_size,), "norm"),
            ("q", (num_heads * head_dim, hidden_size), "attention"),
            ("k", (kv_size, hidden_size), "attention"),
            ("v", (kv_size, hidden_size), "attention"),
            ("attention_output", (hidden_size, num_heads * head_dim), "attention"),
            ("feed_forward_norm", (hidden_size,), "norm"),
            ("gate", (intermediate_size, hidden_size), "feed_forward"),
            ("up", (intermediate_size, hidden_size), "feed_forward"),
            ("down", (hidden_size, intermediate_size), "feed_forward"),
        ]
        return [WeightSpec(f"layers.{i}.{name}", shape, part, i) for name, shape, part in shapes]

    weights = [WeightSpec("embedding", (vocab_size, hidden_size), "embedding")]
    weights += [weight for i in range(num_layers) for weight in layer_weights(i)]
    weights.append(WeightSpec("norm", (hidden_size,), "norm"))
    if not tied:
        weights.append(WeightSpec("head", (vocab_size, hidden_size), "head"))
    return ModelSpec("llama", hidden_size, vocab_size, context_length, 1e-5, tied, layers, tuple(weights))


def llama_7b() -> ModelSpec:
    return llama_spec(
        hidden_size=4096,
        intermediate_size=11008,
        num_layers=32,
        num_heads=32,
        num_kv_heads=32,
        vocab_size=32_000,
        context_length=2048,
    )


def smollm2() -> ModelSpec:
    """SmolLM2-135M: tied head, grouped-query attention."""
    return llama_spec(
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        vocab_size=49_152,
        context_length=8192,
        tied=True,
    )


def tiny(windows: tuple[int | None, ...] = (None,)) -> ModelSpec:
    return llama_spec(
        hidden_size=8,
        intermediate_size=16,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        vocab_size=32,
        context_length=1024,
        windows=windows,
    )
