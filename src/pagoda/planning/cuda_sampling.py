"""What choosing tokens on a GPU keeps in the device's memory."""

from __future__ import annotations

from pagoda.sampling_params import MAX_LOGPROBS

# A row's tokens are counted and weighed in so many bins of logits.
BINS = 2048
# So few tokens of a row are compared each with each.
GATHERED = 512
# Pieces of a row whose largest logits are kept; programs that share a row.
MAX_CHUNKS = 128
MAX_SPLITS = 64
# Room for a row's most likely tokens: a power of two, as kernels want it.
ALTERNATIVES = 1 << (MAX_LOGPROBS - 1).bit_length()
# Ids and logits of tokens together are one number of 54 bits.
MOST_TOKENS = 1 << 22


def edit_capacity(max_rows: int, vocab_size: int) -> int:
    """How many edits one slice of rows may have. Each of the four kinds has a token once, so any one row's edits fit."""
    return max(4 * vocab_size, 2048 * max_rows)


def sampler_bytes(max_rows: int, vocab_size: int) -> int:
    """Of the device's memory, whatever the requests ask for. max_rows: rows of logits that are sampled from at once."""
    peaks = 8 * MAX_CHUNKS
    histograms = 2 * BINS * (8 + 4)
    gathered = GATHERED * (8 + 8)
    parameters = 8 * 5 + 4 * 3 + 4 * 4
    best = MAX_SPLITS * (8 * ALTERNATIVES + 4 * 3)
    scores = 4 * (3 * (1 + MAX_LOGPROBS) + 1) + 4 * 2
    flags = 4
    per_row = peaks + histograms + gathered + parameters + best + scores + flags
    # The four kinds' offsets are one more than there are rows.
    return max_rows * per_row + 4 * 4 + edit_capacity(max_rows, vocab_size) * (4 + 4 + 4)
