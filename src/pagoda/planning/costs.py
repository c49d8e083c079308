"""What a step costs: floating-point operations, and bytes moved to and from memory.

FLOPs count matrix products and attention, a multiplication and an addition as two (Kaplan et al., arXiv:2001.08361,
appendix B: 2 per parameter and token, and 4 × heads × head_dim per query, key and layer, here with the causal mask
counted exactly). Norms, RoPE, softmax, activations and sampling are left out: less than 1% together.

Bytes are the least that must move (Pope et al., arXiv:2211.05102): every weight of a product once a step whatever the
number of tokens, one row of a table per token, K and V of each request's visible context once, and new K and V once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pagoda.planning.holding import FormatOf, row_size, weight_size
from pagoda.planning.memory import kv_bytes_per_token
from pagoda.planning.model_spec import AttentionSpec, ModelSpec, WeightSpec

PRODUCTS = ("attention", "feed_forward", "head")


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

    format_of: how weights are held (see `holding.weight_bytes`). kv_element_bytes: of K and V in the cache.
    """

    def __init__(self, spec: ModelSpec, format_of: FormatOf, kv_element_bytes: int) -> None:
        head = head_weight(spec)
        layer_products = [weight for weight in spec.weights if is_product(weight) and weight is not head]
        self.flops_per_token = sum(linear_flops(1, *weight.shape) for weight in layer_products)
        self.flops_per_logit_row = linear_flops(1, *head.shape)
        self.head_bytes = weight_size(head, format_of)
        tables = [weight for weight in spec.weights if weight.part == "embedding"]
        self.embedding_bytes_per_token = sum(row_size(weight, format_of) for weight in tables)
        held_by_tables = sum(weight_size(weight, format_of) for weight in tables)
        everything = sum(weight_size(weight, format_of) for weight in spec.weights)
        self.layer_bytes = everything - held_by_tables - (0 if spec.tied_embeddings else self.head_bytes)
        self.kv_bytes_per_token = kv_bytes_per_token(spec, kv_element_bytes)
        # Layers with the same window see the same keys: (window, FLOPs per query and key, KV bytes per key).
        flops: Counter[int | None] = Counter()
        sizes: Counter[int | None] = Counter()
        for layer in spec.layers:
            flops[layer.attention.window] += attention_flops(layer.attention, 1)
            sizes[layer.attention.window] += kv_size(layer.attention, kv_element_bytes)
        self._windows = tuple((window, flops[window], sizes[window]) for window in flops)

    def step_cost(self, rows: Iterable[tuple[int, int]], num_logit_rows: int | None = None) -> StepCost:
        """The cost of computing positions start … start + num_tokens - 1 of each row (start, num_tokens).

        num_logit_rows: how many positions get logits; by default one a row, as when no row is an unfinished prompt.
        """
        num_tokens = num_rows = attention = read = 0
        for start, count in rows:
            num_rows += 1
            num_tokens += count
            for window, flops, size in self._windows:
                if count == 1:  # most rows; they come by the hundred, in every step
                    pairs = keys = start + 1 if window is None or start < window else window
                else:
                    pairs, keys = attended_pairs(start, count, window), visible_keys(start, count, window)
                attention += flops * pairs
                read += size * keys
        logit_rows = num_rows if num_logit_rows is None else num_logit_rows
        if not num_tokens:
            return StepCost(0, 0, 0, 0, 0)
        return StepCost(
            num_tokens=num_tokens,
            flops=num_tokens * self.flops_per_token + attention + logit_rows * self.flops_per_logit_row,
            weight_bytes=self.layer_bytes
            + num_tokens * self.embedding_bytes_per_token
            + (self.head_bytes if logit_rows else 0),
            kv_read_bytes=read,
            kv_written_bytes=num_tokens * self.kv_bytes_per_token,
            attention_flops=attention,
            num_rows=num_rows,
        )


def linear_flops(num_tokens: int, out_features: int, in_features: int) -> int:
    """[num_tokens, in] times [in, out]: one multiplication and one addition per token and weight."""
    return 2 * num_tokens * out_features * in_features


def attention_flops(attention: AttentionSpec, pairs: int) -> int:
    """Scores and weighted values of so many (query, key) pairs, over all heads: 2 × 2 × heads × head_dim a pair."""
    return 4 * attention.num_heads * attention.head_dim * pairs


def attended_pairs(start: int, num_tokens: int, window: int | None) -> int:
    """(query, key) pairs of positions start … start + num_tokens - 1: a token sees itself and all before it in its window."""
    return _pairs_before(start + num_tokens, window) - _pairs_before(start, window)


def visible_keys(start: int, num_tokens: int, window: int | None) -> int:
    """How many keys at least one of the positions start … start + num_tokens - 1 sees."""
    end = start + num_tokens
    return end if window is None or not num_tokens else min(end, window + num_tokens - 1)


def kv_size(attention: AttentionSpec, element_bytes: int) -> int:
    """Bytes of K and V of one token in one layer."""
    return 2 * attention.num_kv_heads * attention.head_dim * element_bytes


def head_weight(spec: ModelSpec) -> WeightSpec:
    """The matrix behind the logits: the head, or the embedding table where they are tied."""
    part = "embedding" if spec.tied_embeddings else "head"
    return next(weight for weight in spec.weights if weight.part == part and len(weight.shape) == 2)


def is_product(weight: WeightSpec) -> bool:
    """Whether tokens are multiplied by it: a matrix, and no table."""
    return weight.part in PRODUCTS and len(weight.shape) == 2


def _pairs_before(end: int, window: int | None) -> int:
    """Pairs of the queries 0 … end - 1: the sum of min(position + 1, window)."""
    ramp = end if window is None else min(end, window)
    return ramp * (ramp + 1) // 2 + (end - ramp) * ramp
