"""How one step's arrays lie together in the memory that is sent to a GPU. In words of 4 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.planning.cuda_workspace import decode_rows

WORD = 4
# Arrays begin at multiples of 16 bytes: kernels are compiled for that.
ALIGNMENT = 4
# Query tiles have at least so many tokens, but for a request's last: as many rows as the GPU's matrix products.
LEAST_QUERY_TILE = 16


@dataclass(frozen=True, slots=True)
class StepLayout:
    """Where each array of `CudaStep` begins, for T tokens of S requests, R rows of logits and N query tiles.

    Numbers are int32, slots int64. The first word is the width of the block table as it is sent, which is the last but one:
    only so many block ids of each request as any of them has. Behind it come the blocks to clear.
    """

    num_tokens: int
    num_seqs: int
    num_logits: int
    num_tiles: int
    input_ids: int
    positions: int
    slot_mapping: int
    query_start_loc: int
    seq_lens: int
    logit_rows: int
    query_tiles: int
    block_table: int

    @classmethod
    def of(cls, num_tokens: int, num_seqs: int, num_logits: int, num_tiles: int) -> StepLayout:
        sizes = (1, num_tokens, num_tokens, 2 * num_tokens, num_seqs + 1, num_seqs, num_logits, 2 * num_tiles)
        begins: list[int] = []
        end = 0
        for size in sizes:
            end = _aligned(end + size)
            begins.append(end)
        return cls(num_tokens, num_seqs, num_logits, num_tiles, *begins)

    def new_blocks(self, table_width: int) -> int:
        return _aligned(self.block_table + self.num_seqs * table_width)


def table_width(num_blocks: int, block_size: int, context_length: int) -> int:
    """Block ids that the longest sequence can have."""
    return max(1, min(num_blocks, -(-context_length // block_size)))


def sent_words(num_blocks: int, width: int, max_tokens: int, max_seqs: int) -> int:
    """What the largest step takes."""
    seqs = min(max_tokens, max_seqs)
    layout = StepLayout.of(max_tokens, seqs, max_tokens, seqs + max_tokens // LEAST_QUERY_TILE)
    return layout.new_blocks(width) + _aligned(num_blocks)


def step_bytes(num_blocks: int, block_size: int, context_length: int, max_tokens: int, max_seqs: int) -> int:
    """Of the device's memory for the arrays of steps: as sent, the block table, and what is chosen."""
    width = table_width(num_blocks, block_size, context_length)
    rows = decode_rows(max_tokens, max_seqs)[-1]
    return WORD * (sent_words(num_blocks, width, max_tokens, max_seqs) + rows * width) + chosen_bytes(rows)


def chosen_bytes(num_rows: int) -> int:
    """Of each row its token's id, and whether it is broken."""
    return num_rows * (WORD + 1)


def _aligned(words: int) -> int:
    return -(-words // ALIGNMENT) * ALIGNMENT
