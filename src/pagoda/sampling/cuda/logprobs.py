"""Log-probabilities under the model's own distribution: of given tokens, and of the most likely ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.core.step import TokenLogprobs
from pagoda.planning.cuda_sampling import ALTERNATIVES, MAX_SPLITS
from pagoda.sampling.batch import Int64
from pagoda.sampling.cuda.line import LAST, id_of, is_no_number, keys_of, logit_of
from pagoda.sampling.cuda.splits import Splits
from pagoda.sampling.cuda.staging import Staging
from pagoda.sampling.torch_logprobs import LOWEST
from pagoda.sampling_params import MAX_LOGPROBS

BLOCK = 4096
_LOWEST = tl.constexpr(LOWEST)


@triton.jit(do_not_specialize=["blocks_per_split", "alternatives"], do_not_specialize_on_alignment=["token_ids_ptr"])
def scan(
    logits_ptr,
    row_stride,
    vocab_size,
    blocks_per_split,
    alternatives,
    rows_ptr,
    token_ids_ptr,
    best_ptr,
    peaks_ptr,
    sums_ptr,
    ahead_ptr,
    BY_ROW: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    ALTERNATIVES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What each split of the vocabulary tells of each position. Grid (N, splits).

    token_ids: of each row if BY_ROW, else of each position. best [N, MAX_SPLITS, ALTERNATIVES]: keys of the first tokens of the
    split, in order. peaks, sums [N, MAX_SPLITS]: the largest logit, and the sum of exp(logit - largest). ahead: how many tokens
    come before the position's own. alternatives: at least 1.
    """
    position = tl.program_id(0)
    split = tl.program_id(1)
    row = tl.load(rows_ptr + position).to(tl.int64)
    logits_ptr += row * row_stride
    token_id = tl.load(token_ids_ptr + row) if BY_ROW else tl.load(token_ids_ptr + position)
    own_key = keys_of(tl.load(logits_ptr + token_id), token_id)
    place = tl.arange(0, ALTERNATIVES)
    best = tl.zeros([ALTERNATIVES], tl.int64) + LAST
    worst = tl.zeros([], tl.int64) + LAST  # of the best
    peak = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    ahead = tl.zeros([], tl.int32)
    begin = split * blocks_per_split * BLOCK
    for start in range(begin, tl.minimum(begin + blocks_per_split * BLOCK, vocab_size), BLOCK):
        ids = start + tl.arange(0, BLOCK)
        is_token = ids < vocab_size
        logits = tl.load(logits_ptr + ids, mask=is_token, other=float("-inf"))
        keys = tl.where(is_token, keys_of(logits, ids), LAST)
        ahead += tl.sum((keys < own_key).to(tl.int32), 0)
        higher = tl.maximum(peak, tl.max(logits, 0))
        offset = _finite(higher)
        total = total * tl.exp(peak - offset) + tl.sum(tl.exp(logits - offset), 0)
        peak = higher
        if tl.min(keys, 0) < worst:
            merged = tl.zeros([ALTERNATIVES], tl.int64) + LAST
            worst = tl.full([], -1, tl.int64)
            for index in range(alternatives):
                following = tl.minimum(_after(keys, worst), _after(best, worst))
                merged = tl.where(place == index, following, merged)
                worst = following
            best = merged
    at = position * MAX_SPLITS + split
    tl.store(best_ptr + at * ALTERNATIVES + place, best)
    tl.store(peaks_ptr + at, peak)
    tl.store(sums_ptr + at, total)
    tl.store(ahead_ptr + at, ahead)


@triton.jit(
    do_not_specialize=["splits", "alternatives", "num_positions"], do_not_specialize_on_alignment=["token_ids_ptr"]
)
def combine(
    logits_ptr,
    row_stride,
    splits,
    alternatives,
    num_positions,
    rows_ptr,
    token_ids_ptr,
    best_ptr,
    peaks_ptr,
    sums_ptr,
    ahead_ptr,
    results_ptr,
    BY_ROW: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    ALTERNATIVES: tl.constexpr,
):
    """results: int32 token ids, logprobs (bits of float32) and ranks, each [N, 1 + alternatives]; then [N], whether the row is
    broken. Grid (N,).
    """
    position = tl.program_id(0)
    row = tl.load(rows_ptr + position).to(tl.int64)
    token_id = tl.load(token_ids_ptr + row) if BY_ROW else tl.load(token_ids_ptr + position)
    split = tl.arange(0, MAX_SPLITS)
    at = position * MAX_SPLITS + split
    peaks = tl.load(peaks_ptr + at, mask=split < splits, other=float("-inf"))
    peak = tl.max(peaks, 0)
    offset = _finite(peak)
    sums = tl.load(sums_ptr + at, mask=split < splits, other=0.0)
    total = tl.sum(sums * tl.exp(peaks - offset), 0)
    ahead = tl.sum(tl.load(ahead_ptr + at, mask=split < splits, other=0), 0)
    place = tl.arange(0, MAX_SPLITS * ALTERNATIVES)
    keys = tl.load(
        best_ptr + position.to(tl.int64) * (MAX_SPLITS * ALTERNATIVES) + place,
        mask=place < splits * ALTERNATIVES,
        other=LAST,
    )
    first = tl.min(keys, 0)
    is_broken = is_no_number(first) | (logit_of(first) == float("-inf"))
    log_sum = tl.log(tl.where(is_broken, 1.0, total))
    size = num_positions * (1 + alternatives)
    out = results_ptr + position * (1 + alternatives)
    own = tl.load(logits_ptr + row * row_stride + token_id)
    tl.store(out, token_id)
    tl.store(out + size, tl.maximum(own - offset - log_sum, _LOWEST).to(tl.int32, bitcast=True))
    tl.store(out + 2 * size, 1 + ahead)
    tl.store(results_ptr + 3 * size + position, is_broken.to(tl.int32))
    key = tl.full([], -1, tl.int64)
    for index in range(1, 1 + alternatives):
        key = _after(keys, key)
        tl.store(out + index, id_of(key))
        logprob = tl.maximum(logit_of(key) - offset - log_sum, _LOWEST)
        tl.store(out + size + index, logprob.to(tl.int32, bitcast=True))
        tl.store(out + 2 * size + index, index)


@triton.jit
def _finite(peak):
    """0 in place of an infinity, which is not to be subtracted from itself."""
    return tl.where(tl.abs(peak) < float("inf"), peak, 0.0)


@triton.jit
def _after(keys, key):
    """The smallest of `keys` that is greater than `key`."""
    return tl.min(tl.where(keys > key, keys, LAST), 0)


@dataclass(frozen=True, slots=True)
class LaunchedLogprobs:
    """Of N positions, on their way to the host: int32 as `combine` leaves them. What reads them waits for the copy."""

    results: torch.Tensor
    copied: torch.cuda.Event | None
    num_positions: int

    def broken(self) -> list[bool]:
        """[N]: where the logits are no numbers."""
        if self.copied:
            self.copied.synchronize()
        return [flag != 0 for flag in self.results[-self.num_positions :].tolist()]

    def to_host(self) -> list[TokenLogprobs]:
        """[N]: the token at each position first, then the most likely."""
        if self.copied:
            self.copied.synchronize()
        columns = self.results[: -self.num_positions].view(3, self.num_positions, -1)
        ids, logprobs, ranks = columns[0].tolist(), columns[1].view(torch.float32).tolist(), columns[2].tolist()
        return [
            TokenLogprobs(tuple(each), tuple(numbers), tuple(places))
            for each, numbers, places in zip(ids, logprobs, ranks, strict=True)
        ]


class Logprobs:
    """Device memory for log-probabilities of up to `max_positions` at once."""

    def __init__(self, device: torch.device, max_positions: int, vocab_size: int, multiprocessors: int) -> None:
        self._vocab_size, self._multiprocessors = vocab_size, multiprocessors
        self._staging = Staging(
            device, {"rows": (torch.int32, max_positions), "token_ids": (torch.int32, max_positions)}
        )

        def memory(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._parts = (
            memory(torch.int64, max_positions, MAX_SPLITS, ALTERNATIVES),
            memory(torch.float32, max_positions, MAX_SPLITS),
            memory(torch.float32, max_positions, MAX_SPLITS),
            memory(torch.int32, max_positions, MAX_SPLITS),
        )
        self._results = memory(torch.int32, max_positions * (3 * (1 + MAX_LOGPROBS) + 1))

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self._parts, self._results)) + self._staging.num_bytes

    def launch(
        self, logits: torch.Tensor, rows: Int64, token_ids: torch.Tensor | Int64, alternatives: int
    ) -> LaunchedLogprobs:
        """See `CudaSampler.logprobs`."""
        number, alternatives = len(rows), min(alternatives, self._vocab_size)
        host = self._staging.host()
        host["rows"][:number] = rows
        if not isinstance(token_ids, torch.Tensor):
            host["token_ids"][:number] = token_ids
        self._staging.send()
        by_row = isinstance(token_ids, torch.Tensor)
        where = self._staging.device["rows"], token_ids if by_row else self._staging.device["token_ids"]
        split = Splits.of(number, self._vocab_size, BLOCK, self._multiprocessors)
        scan[number, split.number](
            logits,
            logits.stride(0),
            self._vocab_size,
            split.blocks,
            max(alternatives, 1),
            *where,
            *self._parts,
            by_row,
            MAX_SPLITS,
            ALTERNATIVES,
            BLOCK,
            num_warps=8,
        )
        combine[number,](
            logits,
            logits.stride(0),
            split.number,
            alternatives,
            number,
            *where,
            *self._parts,
            self._results,
            by_row,
            MAX_SPLITS,
            ALTERNATIVES,
        )
        return self._sent(number * (3 * (1 + alternatives) + 1), number)

    def _sent(self, size: int, number: int) -> LaunchedLogprobs:
        is_cuda = self._results.is_cuda
        # Pinned memory that is let go of is used again by torch, once nothing is being copied to it.
        results = torch.empty(size, dtype=torch.int32, pin_memory=is_cuda)
        results.copy_(self._results[:size], non_blocking=True)
        copied = torch.cuda.Event() if is_cuda else None
        if copied:
            copied.record()
        return LaunchedLogprobs(results, copied, number)
