"""Workspace of the native path: what one step needs beside weights and KV cache.

The arena is that of the recorded program (`ops.cpu_lowering`), worked out from the description alone: the same buffers with
the same lives, placed by the same function. The rest is bounded from above.

Models with experts or latent attention do not run yet: theirs is an estimate, of a feed-forward network as wide as what a
token computes, and of expanded attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pagoda.planning.arena import Buffer, place
from pagoda.planning.costs import head_weight
from pagoda.planning.model_spec import AttentionSpec, ModelSpec, WeightSpec
from pagoda.planning.native_formats import F32, GROUP, LINE, Form, Forms, form_bytes, in_order

MOST_LOGIT_ROWS = 64
FLOAT32 = 4

# Choosing tokens may copy a slice of logits twice: the rows that sample, and those with penalties.
LOGIT_COPIES = 3
# Of a worker that chooses at random from a flat row, for each token (csrc/chooser.h): its weight (8) and bucket (2); its
# place (8, and as much again while that list grows), and its logit and weight (12) in the line.
CANDIDATE_BYTES = 38
# Of one worker: scores of 32 queries and the like; rows of gate and of up, of so many columns at least and of more
# where the matrix has few inputs.
WORKER_BYTES = 96 << 10
PANEL_ROWS = 2 * 64
PANEL_COLUMNS = 96
PANEL_WEIGHTS = 234_000
# Attention over long contexts leaves what each part of the keys gave in memory, of at most so much for a kind of layer.
PARTIAL_BYTES = 16 << 20
KEYS_OF_A_PART = 256
ITEMS_OF_A_WORKER = 4
ROWS_OF_AN_ITEM = 128


def logit_slice_rows(max_batched_tokens: int, max_num_seqs: int) -> int:
    """How many rows of logits exist at once; a step that has more goes over them in slices."""
    return min(max_batched_tokens, max_num_seqs, MOST_LOGIT_ROWS)


def native_workspace_bytes(
    spec: ModelSpec,
    arena: int,
    *,
    threads: int,
    max_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
) -> int:
    """Workspace of the largest step. arena: see `arena_bytes`."""
    attentions = {replace(layer.attention, rope=None, scale=1.0, qk_norm=False) for layer in spec.layers}
    ropes = {layer.attention.rope for layer in spec.layers if layer.attention.rope}
    inner = max(layer.feed_forward.active_size for layer in spec.layers)
    panel = PANEL_ROWS * (FLOAT32 * max(PANEL_COLUMNS, min(inner, PANEL_WEIGHTS // spec.hidden_size)) + 2 * LINE)
    partials = [_partial_bytes(attention, threads, max_num_seqs * max_model_len) for attention in attentions]
    row = FLOAT32 * max(spec.hidden_size, inner)
    attending = max(_worker_bytes(attention) for attention in attentions)
    worker = WORKER_BYTES + row + panel + attending + CANDIDATE_BYTES * spec.vocab_size
    logits = logit_slice_rows(max_batched_tokens, max_num_seqs) * spec.vocab_size * FLOAT32
    angles = sum(max_batched_tokens * rope.dim * FLOAT32 for rope in ropes)  # cosines and sines of half as many
    return arena + LOGIT_COPIES * logits + angles + sum(partials) + threads * worker


def _partial_bytes(attention: AttentionSpec, threads: int, num_keys: int) -> int:
    items = -(-ITEMS_OF_A_WORKER * threads // attention.num_kv_heads)
    parts = num_keys // KEYS_OF_A_PART + 2
    return min(PARTIAL_BYTES, items * parts * attention.num_heads * (attention.head_dim + 2) * FLOAT32)


def _worker_bytes(attention: AttentionSpec) -> int:
    """Two partials of one item, and a line of its heads."""
    group = attention.num_heads // attention.num_kv_heads
    rows = max(ROWS_OF_AN_ITEM, 8 * group)
    return (2 * rows * (attention.head_dim + 2) + group * attention.head_dim) * FLOAT32


def arena_bytes(spec: ModelSpec, form_of: Callable[[WeightSpec], Form], max_tokens: int) -> int:
    """The arena of a step of max_tokens tokens. form_of: what a matrix wants its inputs in."""
    life = _Lives(max_tokens)
    hidden = spec.hidden_size
    forms = [_layer_forms(spec, index, form_of) for index in range(spec.num_layers)]
    names = {weight.name for weight in spec.weights}
    head = frozenset({form_of(head_weight(spec))})
    (stream,) = life.step((), (hidden, F32))
    if spec.learned_positions:
        (positions,) = life.step((), (hidden, F32))
        (stream,) = life.step((stream, positions), (hidden, F32))
    (normed,) = life.step((stream,), (hidden, forms[0][0]))
    for index, layer in enumerate(spec.layers):
        attention, inner = layer.attention, layer.feed_forward.active_size
        q_size = attention.num_heads * attention.head_dim
        _, output_form, widening_form, down_form = forms[index]
        (qkv,) = life.step((normed,), (attention.projected_size, F32))
        (q,) = life.step((qkv,), (q_size, F32))
        if "q8" in output_form and attention.head_dim % GROUP:
            (narrow,) = life.step((q,), (q_size, F32))
            (attended,) = life.step((narrow,), (q_size, output_form))
        else:
            (attended,) = life.step((q,), (q_size, output_form))
        (added,) = life.step((attended,), (hidden, F32))
        if f"layers.{index}.post_attention_norm" in names:
            (added,) = life.step((added,), (hidden, F32))
        (normed,) = life.step((stream, added), (hidden, widening_form))
        if layer.feed_forward.gated:
            (fed,) = life.step((normed,), (inner, down_form))
        else:
            (wide,) = life.step((normed,), (inner, F32))
            (fed,) = life.step((wide,), (inner, down_form))
        (added,) = life.step((fed,), (hidden, F32))
        if f"layers.{index}.post_feed_forward_norm" in names:
            (added,) = life.step((added,), (hidden, F32))
        after = forms[index + 1][0] if index + 1 < spec.num_layers else head
        (normed,) = life.step((stream, added), (hidden, after))
    (chosen,) = life.step((normed,), (hidden, head))
    life.step((chosen,))
    return place(life.buffers())[1]


class _Lives:
    """The lives of tensors, command by command. A tensor is the range of its forms' buffers."""

    def __init__(self, rows: int) -> None:
        self._rows, self._now = rows, 0
        self._sizes: list[int] = []
        self._first: list[int] = []
        self._last: list[int] = []

    def step(self, reads: Iterable[range], *writes: tuple[int, Forms]) -> list[range]:
        """One command: what it reads lives until here, what it writes, (width, forms), from here on."""
        for tensor in reads:
            for buffer in tensor:
                self._last[buffer] = self._now
        written = [self._new(width, in_order(forms)) for width, forms in writes]
        self._now += 1
        return written

    def _new(self, width: int, forms: Sequence[Form]) -> range:
        start = len(self._sizes)
        self._sizes += [form_bytes(form, width, self._rows) for form in forms]
        self._first += [self._now] * len(forms)
        self._last += [self._now] * len(forms)
        return range(start, len(self._sizes))

    def buffers(self) -> list[Buffer]:
        return [Buffer(*life) for life in zip(self._sizes, self._first, self._last, strict=True)]


def _layer_forms(
    spec: ModelSpec, index: int, form_of: Callable[[WeightSpec], Form]
) -> tuple[Forms, Forms, Forms, Forms]:
    """The forms of what a layer's products read: Q, K and V; the attention's output; gate and up; down."""
    forms: tuple[set[Form], set[Form], set[Form], set[Form]] = (set(), set(), set(), set())
    for weight in spec.weights:
        if weight.layer == index and len(weight.shape) >= 2:
            attends, name = weight.part == "attention", weight.name.rpartition(".")[2]
            place_of = (1 if name == "attention_output" else 0) if attends else (3 if "down" in name else 2)
            forms[place_of].add(form_of(weight))
    first, second, third, fourth = map(frozenset, forms)
    return first, second, third, fourth
