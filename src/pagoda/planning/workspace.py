"""Workspace: what one step needs beside weights and KV cache. An upper estimate of what the torch reference allocates.

The estimate stays small only because attention is cut into tiles: gathering K and V for every sequence at full length
would take a share of memory that grows with max_num_seqs × context.
"""

from __future__ import annotations

from pagoda.planning.model_spec import AttentionSpec, LayerSpec, ModelSpec

ATTENTION_TILE_BYTES = 64 << 20
FLOAT32 = 4

# Sampling, in bytes a candidate, where a row has to order its whole vocabulary: two float32 copies of the logits; order
# keys, sorted keys and candidates in int64; weights, running sums and their float64 forms.
SAMPLING_BYTES = 56

# Log-probabilities are worked out for so many logits at a time: copy, log-softmax, comparisons, order keys.
LOGPROB_SLICE = 1 << 23
LOGPROB_BYTES = 28

# Requests of a step that compute about as many tokens are padded to one length: at most twice their own, but requests
# of few tokens up to this many.
SMALLEST_PADDED_QUERIES = 16


def attention_tile(
    spec: ModelSpec, *, num_rows: int, num_queries: int, context: int, element_bytes: int
) -> tuple[int, int]:
    """How many rows, and how many queries of each, attention takes at once: (rows, queries), each at least 1.

    num_rows sequences compute num_queries tokens each, over K and V of up to `context` tokens. A tile's buffers stay
    within `ATTENTION_TILE_BYTES`, unless a single query over one sequence already needs more. Softmax is per query, so
    the cut does not change what is computed.
    """
    buffers = [_attention_buffers(layer.attention, context, element_bytes) for layer in set(spec.layers)]
    gathered, scored = max(a for a, _ in buffers), max(b for _, b in buffers)
    if gathered + num_queries * scored <= ATTENTION_TILE_BYTES:
        return max(1, min(num_rows, ATTENTION_TILE_BYTES // (gathered + num_queries * scored))), num_queries
    return 1, max(1, min(num_queries, (ATTENTION_TILE_BYTES - gathered) // scored))


def activation_bytes(
    spec: ModelSpec, *, max_batched_tokens: int, max_num_seqs: int, max_model_len: int, element_bytes: int
) -> int:
    """Workspace of the largest step, in bytes: what lives through the whole step, and the larger of any one layer
    (`_layer_bytes`) and of the end (`_logits_bytes`).

    For the whole step: the hidden states, cosines and sines, and one attention mask a kind of window: an element for each
    (padded query, key), and two bytes while it is made.

    Assumes what the torch reference does: operations allocate their outputs and free their inputs once unused, one
    layer runs at a time, and memory freed is used again. It never shrinks as a limit grows.
    """
    num_tokens = min(max_batched_tokens, max_num_seqs * max_model_len)
    num_rows = min(max_num_seqs, num_tokens)
    kinds = set(spec.layers)  # layers are few kinds repeated: each is sized once
    windows = {layer.attention.window for layer in kinds}
    angles = max(layer.attention.rope.dim if layer.attention.rope else 0 for layer in kinds)
    # Twice the tokens; but a row of 2 tokens may be padded to 16, which is 12 more than twice its own.
    padded_queries = 2 * num_tokens + (SMALLEST_PADDED_QUERIES - 4) * num_rows
    masks = padded_queries * max_model_len * (len(windows) * element_bytes + 2)
    throughout = num_tokens * (spec.hidden_size * element_bytes + angles * FLOAT32) + masks
    layers = max(
        _layer_bytes(layer, spec.hidden_size, num_tokens, element_bytes)
        + _attention_bytes(layer.attention, padded_queries, num_rows, max_model_len, element_bytes)
        for layer in kinds
    )
    return throughout + max(layers, _logits_bytes(spec.vocab_size, num_tokens, num_rows, element_bytes))


def _layer_bytes(layer: LayerSpec, hidden_size: int, num_tokens: int, element_bytes: int) -> int:
    """The most one layer holds at a time, apart from attention's tiles: the residual stream and the larger of its halves.

    residual:   stream, sublayer output, their sum and its norm (4 × hidden), and the norm's float32 copies (2 × hidden)
    attention:  qkv; q, k and v turned, in float32 while they are; q and the output, padded to twice, and the output again
    ffn:        gate and up, the activation of gate, the product (4 × intermediate; plain: 2 ×); with experts of all that a
                token is sent to, and each one's input and output
    """
    attention, ffn = layer.attention, layer.feed_forward
    q_size = attention.num_heads * attention.head_dim
    qkv_size = attention.projected_size
    residual = hidden_size * (4 * element_bytes + 2 * FLOAT32)
    attending = (2 * qkv_size + 5 * q_size) * element_bytes + qkv_size * FLOAT32
    routed = 2 * ffn.experts.per_token * hidden_size if ffn.experts else 0
    feeding = ((4 if ffn.gated else 2) * ffn.active_size + routed) * element_bytes
    return num_tokens * (residual + max(attending, feeding))


def _attention_bytes(
    attention: AttentionSpec, num_queries: int, num_rows: int, context: int, element_bytes: int
) -> int:
    """The most one layer's attention holds beside its q and its output, for any step of num_queries queries (padded ones
    included) in num_rows sequences of up to `context` tokens: all of it at once where that is little, else one tile.
    """
    gathered, scored = _attention_buffers(attention, context, element_bytes)
    whole = num_rows * gathered + num_queries * scored
    return min(whole, max(ATTENTION_TILE_BYTES, gathered + scored))


def _attention_buffers(attention: AttentionSpec, context: int, element_bytes: int) -> tuple[int, int]:
    """(bytes per sequence, bytes per query): K and V gathered from the cache, and once more for each head in float32;
    scores and probabilities of all heads in float32. That is torch's plain path; its fused ones need less. A window
    narrows the mask, not what is gathered.
    """
    head_bytes = 2 * attention.head_dim * context
    gathered = head_bytes * (attention.num_kv_heads * element_bytes + attention.num_heads * FLOAT32)
    scored = 2 * FLOAT32 * attention.num_heads * context
    return gathered, scored


def _logits_bytes(vocab_size: int, num_tokens: int, num_rows: int, element_bytes: int) -> int:
    """The most that logits and sampling hold: logits of every token in float32 (prompt_logprobs asks for that), and beside
    them the largest of: the same in the compute dtype, before they are widened; what sampling takes; what
    log-probabilities take, for the tokens that are sampled (a copy of their rows) or for those of the prompts.
    """
    narrow = num_tokens * vocab_size * (element_bytes if element_bytes < FLOAT32 else 0)
    sampling = num_rows * vocab_size * SAMPLING_BYTES
    logprobs = num_rows * vocab_size * FLOAT32 + LOGPROB_BYTES * max(
        vocab_size, min(num_tokens * vocab_size, LOGPROB_SLICE)
    )
    return num_tokens * vocab_size * FLOAT32 + max(narrow, sampling, logprobs)
