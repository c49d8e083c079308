"""What a step costs: floating-point operations, and bytes moved to and from memory.

FLOPs count matrix products and attention, a multiplication and an addition as two (Kaplan et al., arXiv:2001.08361,
appendix B: 2 per parameter and token, and 4 × heads × head_dim per query, key and layer, here with the causal mask
counted exactly). Norms, RoPE, softmax, activations and sampling are left out: less than 1% together.

Bytes are the least that must move (Pope et al., arXiv:2211.05102): every weight of a product once a step whatever the
number of tokens, one row of a table per token, K and V of each request's visible context once, and new K and V once.

Of a mixture of experts a token computes its own experts' products. A step reads those experts that at least one of its
tokens is sent to: their expected number, if tokens choose independently and evenly (`experts_touched`); a router that
favours some experts, or a text whose tokens choose alike, touches fewer.

Latent attention can be computed in two ways that give the same numbers; `latent.py` says which one is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pagoda.planning.holding import FormatOf, row_size, weight_size
from pagoda.planning.kv_format import KVHeld, kv_size
from pagoda.planning.latent import latent_flops
from pagoda.planning.mask import attended_pairs, visible_keys
from pagoda.planning.memory import kv_bytes_per_token
from pagoda.planning.model_spec import AttentionSpec, ExpertsSpec, ModelSpec, WeightSpec

PRODUCTS = ("attention", "feed_forward", "experts", "head")


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step. bytes: weights read, K and V read, K and V written; activations are not counted.

    attention_flops: those of `flops` that are scores and weighted values. num_rows: requests that the step computes for.
    """

    num_tokens: int
    flops: int
    weight_bytes: int
    kv_read_bytes: int
    kv_written_bytes: int
    attention_flops: int = 0
    num_rows: int = 0

    @property
    def num_bytes(self) -> int:
        return self.weight_bytes + self.kv_read_bytes + self.kv_written_bytes


class CostModel:
    """`step_cost` for one model: all that does not depend on the step is worked out here, once.

    format_of: how weights are held (see `holding.weight_bytes`). kv_held: how K and V are (see `kv_format.KVHeld`).
    """

    def __init__(self, spec: ModelSpec, format_of: FormatOf, kv_held: KVHeld) -> None:
        head = head_weight(spec)
        self.flops_per_token = sum(product_flops(spec, weight) for weight in spec.weights if weight is not head)
        self.flops_per_logit_row = linear_flops(1, *head.shape)
        self.head_bytes = weight_size(head, format_of)
        tables = [weight for weight in spec.weights if weight.part == "embedding"]
        self.embedding_bytes_per_token = sum(row_size(weight, format_of) for weight in tables)
        held_by_tables = sum(weight_size(weight, format_of) for weight in tables)
        everything = sum(weight_size(weight, format_of) for weight in spec.weights)
        # Experts' matrices of equal size are read alike: (experts, bytes of all of one matrix, how many such matrices).
        stacks: Counter[tuple[ExpertsSpec, int]] = Counter()
        for weight in spec.weights:
            if (experts := spec.experts_of(weight)) is not None:
                stacks[experts, weight_size(weight, format_of)] += 1
        self._experts = tuple((experts, size, count) for (experts, size), count in stacks.items())
        held_by_experts = sum(size * count for _, size, count in self._experts)
        self.layer_bytes = (
            everything - held_by_tables - held_by_experts - (0 if spec.tied_embeddings else self.head_bytes)
        )
        self.kv_bytes_per_token = kv_bytes_per_token(spec, kv_held)
        # Layers with the same window see the same keys: (window, FLOPs per query and key, KV bytes per key).
        flops: Counter[int | None] = Counter()
        sizes: Counter[int | None] = Counter()
        for layer in spec.layers:
            flops[layer.attention.window] += 0 if layer.attention.latent else attention_flops(layer.attention, 1)
            sizes[layer.attention.window] += kv_size(layer.attention, kv_held)
        self._windows = tuple((window, flops[window], sizes[window]) for window in flops)
        self._latents = tuple(Counter(layer.attention for layer in spec.layers if layer.attention.latent).items())

    def step_cost(self, rows: Iterable[tuple[int, int]], num_logit_rows: int | None = None) -> StepCost:
        """The cost of computing positions start … start + num_tokens - 1 of each row (start, num_tokens).

        num_logit_rows: how many positions get logits; by default one a row, as when no row is an unfinished prompt.
        """
        single: list[int] = []  # starts of rows with one token: most rows; they come by the hundred, in every step
        longer: list[tuple[int, int]] = []
        for start, count in rows:
            if count == 1:
                single.append(start)
            else:
                longer.append((start, count))
        num_rows = len(single) + len(longer)
        num_tokens = len(single) + sum([count for _, count in longer])
        attention = read = 0
        for window, flops, size in self._windows:
            if window is None:
                pairs = sum(single) + len(single)
            else:
                pairs = sum([start + 1 if start < window else window for start in single])
            keys = pairs
            for start, count in longer:
                pairs += attended_pairs(start, count, window)
                keys += visible_keys(start, count, window)
            attention += flops * pairs
            read += size * keys
        for latent, num_layers in self._latents:
            alone = sum([latent_flops(latent, start, 1).total for start in single])
            attention += num_layers * (
                alone + sum([latent_flops(latent, start, count).total for start, count in longer])
            )
        logit_rows = num_rows if num_logit_rows is None else num_logit_rows
        if not num_tokens:
            return StepCost(0, 0, 0, 0, 0)
        return StepCost(
            num_tokens=num_tokens,
            flops=num_tokens * self.flops_per_token + attention + logit_rows * self.flops_per_logit_row,
            weight_bytes=self.weight_bytes_read(num_tokens, logit_rows),
            kv_read_bytes=read,
            kv_written_bytes=num_tokens * self.kv_bytes_per_token,
            attention_flops=attention,
            num_rows=num_rows,
        )

    def weight_bytes_read(self, num_tokens: int, num_logit_rows: int) -> int:
        """Of a step of at least one token: all layers, a row of each table for a token, the head, the experts touched."""
        return (
            self.layer_bytes
            + num_tokens * self.embedding_bytes_per_token
            + (self.head_bytes if num_logit_rows else 0)
            + sum(count * touched_bytes(size, experts, num_tokens) for experts, size, count in self._experts)
        )


def linear_flops(num_tokens: int, out_features: int, in_features: int) -> int:
    """[num_tokens, in] times [in, out]: one multiplication and one addition per token and weight."""
    return 2 * num_tokens * out_features * in_features


def product_flops(spec: ModelSpec, weight: WeightSpec) -> int:
    """Of one token through one weight: 0 for what is no product; of experts through those that it is sent to."""
    return 2 * spec.active_elements(weight) if is_product(weight) else 0


def experts_touched(experts: ExpertsSpec, num_tokens: int) -> float:
    """How many different experts num_tokens tokens are sent to, expected: count × (1 - (1 - per_token / count) ^ num_tokens).

    Assumes that each token chooses independently of the others, and every expert equally often.
    """
    return experts.count * (1.0 - (1.0 - experts.per_token / experts.count) ** num_tokens)


def touched_bytes(stack_bytes: int, experts: ExpertsSpec, num_tokens: int) -> int:
    """Bytes read of one matrix of all experts, [experts, out, in] of stack_bytes, in a step of num_tokens tokens."""
    return round(stack_bytes * experts_touched(experts, num_tokens) / experts.count)


def attention_flops(attention: AttentionSpec, pairs: int) -> int:
    """Scores and weighted values of so many (query, key) pairs, over all heads: 2 × 2 × heads × head_dim a pair.

    Of a latent attention see `latent_flops`.
    """
    return 4 * attention.num_heads * attention.head_dim * pairs


def head_weight(spec: ModelSpec) -> WeightSpec:
    """The matrix behind the logits: the head, or the embedding table where they are tied."""
    part = "embedding" if spec.tied_embeddings else "head"
    return next(weight for weight in spec.weights if weight.part == part and len(weight.shape) == 2)


def is_product(weight: WeightSpec) -> bool:
    """Whether tokens are multiplied by it: a matrix (or one of each expert), and no table."""
    return weight.part in PRODUCTS and len(weight.shape) >= 2
