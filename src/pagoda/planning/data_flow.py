"""The decoder's data flow: what each part of a step computes and moves. `costs.py` says what is counted and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pagoda.planning.costs import attention_flops, head_weight, linear_flops, product_flops, touched_bytes
from pagoda.planning.holding import FormatOf, row_size, weight_size
from pagoda.planning.kv_format import KVHeld, key_size, kv_size, value_size
from pagoda.planning.latent import LatentFlops, latent_flops
from pagoda.planning.mask import attended_pairs, visible_keys
from pagoda.planning.model_spec import AttentionSpec, ModelSpec, WeightSpec

FLOAT32 = 4

# Of queries, keys and latents; every other norm is of the residual stream.
_INNER_NORMS = ("q_norm", "k_norm", "q_a_norm", "kv_a_norm")


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
    kv_held: KVHeld | None = None,
    num_logit_rows: int | None = None,
) -> tuple[PartCost, ...]:
    """The parts of a step in the order they run; FLOPs, weights and KV sum to what `CostModel.step_cost` says.

    rows: (start, num_tokens) of each request. format_of: how weights are held. element_bytes: of activations.
    kv_held: how K and V are cached (see `kv_format.KVHeld`); by default as activations.
    num_logit_rows: how many positions get logits and are sampled from; by default one a row.
    """
    held = element_bytes if kv_held is None else kv_held
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
        parts += _layer(spec, index, weights, rows, format_of, element_bytes=element_bytes, kv_held=held)
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
    kv_held: KVHeld,
) -> list[PartCost]:
    attention, ffn = spec.layers[index].attention, spec.layers[index].feed_forward
    num_tokens = sum(count for _, count in rows)
    q_size = attention.num_heads * attention.head_dim
    inner = ffn.active_size
    widened = 2 * inner if ffn.gated else inner
    keys = sum(visible_keys(start, count, attention.window) for start, count in rows)
    scores, values = _attention(attention, rows)

    def part(name: str, elements: int, held: Sequence[WeightSpec] = (), **others: int) -> PartCost:
        """elements: of activations, read and written, per token."""
        return PartCost(
            name,
            index,
            flops=num_tokens * sum(product_flops(spec, weight) for weight in held) + others.pop("flops", 0),
            weight_bytes=sum(_read_bytes(spec, weight, num_tokens, format_of) for weight in held),
            activation_bytes=num_tokens * elements * element_bytes,
            **others,
        )

    hidden = spec.hidden_size
    of = _grouped(weights)
    num_norms = sum(not _short_name(weight).endswith("_bias") for weight in of["norms"])
    router = [part("router", hidden + ffn.experts.count, of["router"])] if ffn.experts else []
    return [
        # Stream and sublayer output in, their sum and its norm out.
        part("norms", 4 * hidden * num_norms, of["norms"]),
        part("q, k, v", hidden + attention.projected_size, of["q, k, v"]),
        part(
            "RoPE, KV write",
            attention.projected_size + q_size,
            of["inner norms"],
            kv_written_bytes=num_tokens * kv_size(attention, kv_held),
        ),
        part("attention scores", q_size, flops=scores, kv_read_bytes=keys * key_size(attention, kv_held)),
        part(
            "attention values", attention.output_size, flops=values, kv_read_bytes=keys * value_size(attention, kv_held)
        ),
        part("attention output", attention.output_size + hidden, of["attention output"]),
        *router,
        part("gate, up" if ffn.gated else "up", hidden + widened, of["widening"]),
        part("activation", widened + inner),
        part("down", inner + hidden, of["down"]),
    ]


def _attention(attention: AttentionSpec, rows: Sequence[tuple[int, int]]) -> LatentFlops:
    """FLOPs of scores and of weighted values, over all rows."""
    if attention.latent is not None:
        ways = [latent_flops(attention, start, count) for start, count in rows]
        return LatentFlops(sum(way.scores for way in ways), sum(way.values for way in ways))
    half = attention_flops(attention, sum(attended_pairs(start, count, attention.window) for start, count in rows)) // 2
    return LatentFlops(half, half)


def _grouped(weights: Sequence[WeightSpec]) -> dict[str, list[WeightSpec]]:
    """A layer's weights by the part of a step that reads them."""
    groups: dict[str, list[WeightSpec]] = {
        name: [] for name in ("norms", "inner norms", "q, k, v", "attention output", "router", "widening", "down")
    }
    for weight in weights:
        name = _short_name(weight)
        if weight.part == "norm":
            groups["inner norms" if name in _INNER_NORMS else "norms"].append(weight)
        elif weight.part == "attention":
            groups["attention output" if name.startswith("attention_output") else "q, k, v"].append(weight)
        elif name.startswith("router"):
            groups["router"].append(weight)
        else:
            groups["down" if "down" in name else "widening"].append(weight)
    return groups


def _read_bytes(spec: ModelSpec, weight: WeightSpec, num_tokens: int, format_of: FormatOf) -> int:
    """Bytes of one weight that a step reads: all, or the experts that its tokens are sent to."""
    size, experts = weight_size(weight, format_of), spec.experts_of(weight)
    return size if experts is None else touched_bytes(size, experts, num_tokens)


def _short_name(weight: WeightSpec) -> str:
    """A layer's weight without its layer: `layers.3.q_norm` → `q_norm`."""
    return weight.name.rpartition(".")[2]


def _size(weights: Iterable[WeightSpec], format_of: FormatOf) -> int:
    return sum(weight_size(weight, format_of) for weight in weights)
