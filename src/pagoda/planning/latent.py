"""What multi-head latent attention computes (DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C).

Its cache holds one latent vector a token. The same result comes in two ways:

- *expanded*: K and V of every head are made of the latents first, then attention is the ordinary one, of heads as wide as
  `head_dim` and `value_dim`;
- *absorbed*: that matrix is multiplied into the query and into the output instead, and attention runs over the latents
  themselves, `kv_rank` + `rope_dim` and `kv_rank` wide.

A token's own pass through the matrix (`kv_b`) costs the same either way and is counted with the products. What differs is a
pair of query and key, and that the expanded way makes K and V of earlier tokens again. Counted is the one with fewer
operations: with DeepSeek-V3's sizes decode is absorbed, prefill expanded, and a chunk of a prompt is expanded if it
is long enough to pay for the tokens before it.
"""

from __future__ import annotations

from typing import NamedTuple

from pagoda.planning.mask import attended_pairs, visible_keys
from pagoda.planning.model_spec import AttentionSpec


class LatentFlops(NamedTuple):
    """scores (of the expanded way with what it takes to make K and V again) and weighted values."""

    scores: int
    values: int

    @property
    def total(self) -> int:
        return self.scores + self.values


def latent_flops(attention: AttentionSpec, start: int, num_tokens: int) -> LatentFlops:
    """Of positions start … start + num_tokens - 1 of one request in one layer."""
    pairs = attended_pairs(start, num_tokens, attention.window)
    earlier = visible_keys(start, num_tokens, attention.window) - num_tokens
    return min(absorbed_flops(attention, pairs), expanded_flops(attention, pairs, earlier), key=lambda way: way.total)


def absorbed_flops(attention: AttentionSpec, pairs: int) -> LatentFlops:
    """Attention over the latents, of so many (query, key) pairs."""
    assert attention.latent is not None
    rank, rope = attention.latent.kv_rank, attention.latent.rope_dim
    return LatentFlops(
        2 * attention.num_heads * (rank + rope) * pairs,
        2 * attention.num_heads * rank * pairs,
    )


def expanded_flops(attention: AttentionSpec, pairs: int, earlier_keys: int) -> LatentFlops:
    """Ordinary attention, of so many pairs, after K and V of earlier_keys tokens were made again of their latents."""
    assert attention.latent is not None
    made = attention.num_heads * (attention.head_dim - attention.latent.rope_dim) + attention.output_size
    again = 2 * attention.latent.kv_rank * made * earlier_keys
    return LatentFlops(
        2 * attention.num_heads * attention.head_dim * pairs + again,
        2 * attention.output_size * pairs,
    )
