"""How K and V lie in the cache, and what they take: the one formula of a token's bytes in a layer.

K and V may have different formats. The unit is a *row*: the elements of one token and one K/V head, which share a scale
where the format has one. A latent attention's cache has one row a token, in the format of K.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.errors import UnsupportedModelError
from pagoda.planning.model_spec import AttentionSpec


@dataclass(frozen=True, slots=True)
class KVFormat:
    """scale_bytes: of what belongs to a row beside its elements."""

    name: str
    element_bits: int
    scale_bytes: int = 0

    def row_bytes(self, num_elements: int) -> int:
        """Whole bytes of a row of so many elements."""
        return -(-num_elements * self.element_bits // 8) + self.scale_bytes


KV_FORMATS = {
    kind.name: kind
    for kind in (
        KVFormat("fp32", 32),
        KVFormat("bf16", 16),
        KVFormat("fp16", 16),
        KVFormat("fp8", 8),  # one scale for a whole layer, which is not counted
        KVFormat("int8", 8, scale_bytes=2),  # symmetric, an fp16 scale a row
        KVFormat("int4", 4, scale_bytes=4),  # an fp16 scale and an fp16 minimum a row
    )
}

# Bytes of an element; or a format for both; or one for K and one for V.
KVHeld = int | KVFormat | tuple[KVFormat, KVFormat]


def kv_format(name: str) -> KVFormat:
    """Raises `UnsupportedModelError` for a format that is not known."""
    if name not in KV_FORMATS:
        raise UnsupportedModelError("KV format", name, KV_FORMATS)
    return KV_FORMATS[name]


def kv_formats(held: KVHeld) -> tuple[KVFormat, KVFormat]:
    """The formats of K and of V."""
    if isinstance(held, int):
        held = KVFormat(f"{8 * held} bits", 8 * held)
    return (held, held) if isinstance(held, KVFormat) else held


def key_size(attention: AttentionSpec, held: KVHeld) -> int:
    """Bytes of K of one token in one layer; of a latent attention all that is cached."""
    keys, _ = kv_formats(held)
    if attention.latent is not None:
        return keys.row_bytes(attention.latent.kv_rank + attention.latent.rope_dim)
    return attention.num_kv_heads * keys.row_bytes(attention.head_dim)


def value_size(attention: AttentionSpec, held: KVHeld) -> int:
    """Bytes of V of one token in one layer; none of a latent attention, whose values are made of what is cached as K."""
    _, values = kv_formats(held)
    return 0 if attention.latent is not None else attention.num_kv_heads * values.row_bytes(attention.head_dim)


def kv_size(attention: AttentionSpec, held: KVHeld) -> int:
    """Bytes of K and V of one token in one layer."""
    return key_size(attention, held) + value_size(attention, held)


def kv_tokens_held(window: int | None, num_tokens: int, block_size: int) -> int:
    """Tokens, in whole blocks, for which a layer with that window needs memory at least while a sequence grows to num_tokens.

    The window may begin and end in the middle of a block: then its `window` tokens touch one block more than they fill.
    """
    blocks = -(-num_tokens // block_size)
    return block_size * (blocks if window is None else min(blocks, (window + block_size - 2) // block_size + 1))
