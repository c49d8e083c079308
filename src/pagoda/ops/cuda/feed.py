"""What a step needs before its first op: tokens that only the device knows, and the block table at its full width."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Of a program: tokens that it looks at, and block ids that it copies at once.
_TOKENS = 256
_BLOCKS = 256


def feed(
    input_ids: torch.Tensor,
    sent_width: torch.Tensor,
    sent_table: torch.Tensor,
    *,
    chosen: torch.Tensor,
    vocab_size: int,
    block_table: torch.Tensor,
) -> None:
    """Finish a step's arrays, in place; all int32.

    input_ids [T]: where one is negative, -1 - place, it becomes `chosen` [most rows] at that place, what the step before chose.
    sent_table: [S, sent_width] from its beginning on, sent_width [1] on the device; it becomes the first columns of
    block_table [S, B].
    """
    num_tokens, (num_seqs, width) = input_ids.shape[0], block_table.shape
    grid = (max(num_seqs, triton.cdiv(num_tokens, _TOKENS)),)
    _feed[grid](
        input_ids,
        chosen,
        sent_width,
        sent_table,
        block_table,
        num_tokens,
        num_seqs,
        vocab_size,
        width,
        TOKENS=_TOKENS,
        BLOCKS=_BLOCKS,
        num_warps=1,
    )


@triton.jit(do_not_specialize=["num_tokens", "num_seqs"])
def _feed(
    input_ids,
    chosen,
    sent_width,
    sent_table,
    block_table,
    num_tokens,
    num_seqs,
    vocab_size,
    width,
    TOKENS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    program = tl.program_id(0)
    token = program * TOKENS + tl.arange(0, TOKENS)
    ids = tl.load(input_ids + token, mask=token < num_tokens, other=0)
    on_their_way = ids < 0
    arrived = tl.load(chosen - 1 - ids, mask=on_their_way, other=0)
    # An id outside the table would end the process, whatever made it.
    arrived = tl.minimum(tl.maximum(arrived, 0), vocab_size - 1)
    tl.store(input_ids + token, arrived, mask=on_their_way)
    if program < num_seqs:
        sent = tl.load(sent_width)
        for first in range(0, sent, BLOCKS):
            block = first + tl.arange(0, BLOCKS)
            block_ids = tl.load(sent_table + program.to(tl.int64) * sent + block, mask=block < sent, other=0)
            tl.store(block_table + program.to(tl.int64) * width + block, block_ids, mask=block < sent)
