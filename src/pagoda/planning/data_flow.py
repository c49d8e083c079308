"""The decoder's data flow: what each part of a step computes and moves. `costs.py` says what is counted and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pagoda.planning.costs import (
    attended_pairs,
    attention_flops,
    head_weight,
    is_product,
    kv_size,
    linear_flops,
    visible_keys,
)
from pagoda.planning.holding import FormatOf, row_size, weight_size
from pagoda.planning.model_spec import ModelSpec, WeightSpec

FLOAT32 = 4


@dataclass(frozen=True, slots=True)
class PartCost:
    """One part of one step. layer: None for what is outside of the layers, or summed over them.

    flops and bytes as in `costs.py`; activation_bytes: inputs read and outputs written once, as the ops pass them on.
    """

    name: str
    layer: int | None = None
    flops: int = 0
    weight_bytes: int = 0
    kv_read_bytes: int = 0
    kv_written_bytes: int = 0
    activation_bytes: int = 0


def data_flow(
    spec: ModelSpec,
    rows: Sequence[tuple[int, int]],
    *,
    format_of: FormatOf,
    element_bytes: int,
    kv_element_bytes: int | None = None,
    num_logit_rows: int | None = None,
) -> tuple[PartCost, ...]:
    """The parts of a step in the order they run; FLOPs, weights and KV sum to what `CostModel.step_cost` says.

    rows: (start, num_tokens) of each request. format_of: how weights are held. element_bytes: of activations.
    kv_element_bytes: of the KV cache; by default the same.
    num_logit_rows: how many positions get logits and are sampled from; by default one a row.
    """
    kv_bytes = element_bytes if kv_element_bytes is None else kv_element_bytes
    num_tokens = sum(count for _, count in rows)
    logit_rows = len(rows) if num_logit_rows is None else num_logit_rows
    hidden = num_tokens * spec.hidden_size * element_bytes
    outside = [weight for weight in spec.weights if weight.layer is None]
    tables = [weight for weight in outside if weight.part == "embedding"]
    norms = [weight for weight in outside if weight.part == "norm"]
    logits = logit_rows * spec.vocab_size * FLOAT32
    head = head_weight(spec)
    looked_up = num_tokens * sum(row_size(table, format_of) for table in tables)
    parts = [PartCost("embedding", weight_bytes=looked_up, activation_bytes=hidden)]
    by_layer: dict[int, list[WeightSpec]] = {index: [] for index in range(spec.num_layers)}
    for weight in spec.weights:
        if weight.layer is not None:
            by_layer[weight.layer].append(weight)
    for index, weights in by_layer.items():
        parts += _layer(spec, index, weights, rows, format_of, element_bytes=element_bytes, kv_element_bytes=kv_bytes)
    parts.append(PartCost("final norm", weight_bytes=_size(norms, format_of), activation_bytes=4 * hidden))
    parts.append(
        PartCost(
            "head",
            flops=linear_flops(logit_rows, *head.shape),
            weight_bytes=weight_size(head, format_of) if logit_rows else 0,
            activation_bytes=logit_rows * spec.hidden_size * element_bytes + logits,
        )
    )
    parts.append(PartCost("sampling", activation_bytes=logits))
    return tuple(parts)


def summed_over_layers(parts: Iterable[PartCost]) -> tuple[PartCost, ...]:
    """One entry per name, in order of first appearance: the parts of all layers added up."""
    totals: dict[str, PartCost] = {}
    for part in parts:
        total = totals.get(part.name, PartCost(part.name))
        totals[part.name] = replace(
            total,
            flops=total.flops + part.flops,
            weight_bytes=total.weight_bytes + part.weight_bytes,
            kv_read_bytes=total.kv_read_bytes + part.kv_read_bytes,
            kv_written_bytes=total.kv_written_bytes + part.kv_written_bytes,
            activation_bytes=total.activation_bytes + part.activation_bytes,
        )
    return tuple(totals.values())


def _layer(
    spec: ModelSpec,
    index: int,
    weights: Sequence[WeightSpec],
    rows: Sequence[tuple[int, int]],
    format_of: FormatOf,
    *,
    element_bytes: int,
    kv_element_bytes: int,
) -> list[PartCost]:
    attention, ffn = spec.layers[index].attention, spec.layers[index].feed_forward
    num_tokens = sum(count for _, count in rows)
    q_size = attention.num_heads * attention.head_dim
    qkv_size = q_size + 2 * attention.num_kv_heads * attention.head_dim
    inner = ffn.intermediate_size
    widened = 2 * inner if ffn.gated else inner
    pairs = sum(attended_pairs(start, count, attention.window) for start, count in rows)
    keys = sum(visible_keys(start, count, attention.window) for start, count in rows)
    kv = kv_size(attention, kv_element_bytes)

    def part(name: str, elements: int, held: Sequence[WeightSpec] = (), **others: int) -> PartCost:
        """elements: of activations, read and written, per token."""
        products = sum(linear_flops(num_tokens, *weight.shape) for weight in held if is_product(weight))
        return PartCost(
            name,
            index,
            flops=products + others.pop("flops", 0),
            weight_bytes=_size(held, format_of),
            activation_bytes=num_tokens * elements * element_bytes,
            **others,
        )

    hidden = spec.hidden_size
    norms = [weight for weight in weights if weight.part == "norm"]
    qk_norms = [weight for weight in norms if _short_name(weight) in ("q_norm", "k_norm")]
    stream_norms = [weight for weight in norms if weight not in qk_norms]
    num_norms = sum(not _short_name(weight).endswith("_bias") for weight in stream_norms)
    output = [weight for weight in weights if _short_name(weight).startswith("attention_output")]
    qkv = [weight for weight in weights if weight.part == "attention" and weight not in output]
    down = [weight for weight in weights if _short_name(weight).startswith("down")]
    widening = [weight for weight in weights if weight.part == "feed_forward" and weight not in down]
    half = attention_flops(attention, pairs) // 2
    return [
        # Stream and sublayer output in, their sum and its norm out.
        part("norms", 4 * hidden * num_norms, stream_norms),
        part("q, k, v", hidden + qkv_size, qkv),
        part("RoPE, KV write", qkv_size + q_size, qk_norms, kv_written_bytes=num_tokens * kv),
        part("attention scores", q_size, flops=half, kv_read_bytes=keys * kv // 2),
        part("attention values", q_size, flops=half, kv_read_bytes=keys * kv // 2),
        part("attention output", q_size + hidden, output),
        part("gate, up" if ffn.gated else "up", hidden + widened, widening),
        part("activation", widened + inner),
        part("down", inner + hidden, down),
    ]


def _short_name(weight: WeightSpec) -> str:
    """A layer's weight without its layer: `layers.3.q_norm` → `q_norm`."""
    return weight.name.rpartition(".")[2]


def _size(weights: Iterable[WeightSpec], format_of: FormatOf) -> int:
    return sum(weight_size(weight, format_of) for weight in weights)
