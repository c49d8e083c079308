"""Choosing tokens with torch, for a batch of rows of logits. A row's result depends on that row alone.

The meaning, which any other sampler shares:

1. Entries from `vocab_size` on only pad the vocabulary; they do not exist here.
2. Edits, in the order of `SamplingBatch`: repetition, presence and frequency penalty, logit_bias, barred tokens; each is
   one operation in float32.
3. Greedy rows take the largest logit, the lowest id among equals.
4. Others line up all tokens by (logit descending, id ascending). A token weighs floor(2**40 × exp((logit - largest) /
   temperature)), an integer: sums of integers are exact in any order, so neither the neighbours nor the device's way of
   adding can change a choice.
5. The line is cut after `top_k` tokens; then before the first that weighs less than `min_p` times the first; then before
   the first whose predecessors weigh at least `top_p` of all that the two cuts before have left. One token always stays.
6. With u the row's uniform number and W the weight of what is left, the choice is the first token at which the running
   sum of weights exceeds floor(u × W).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pagoda.sampling.batch import Edits, SamplingBatch

_ONE = 2.0**40  # The largest token's weight: the most tokens a vocabulary may have, 2**22 - 1, sum to less than 2**62.
_LINE = 512  # How much of the line is sorted at first: nearly always enough, and ten times cheaper than all of it.
_ID_BITS = 0xFFFFFFFF


def sample(logits: torch.Tensor, batch: SamplingBatch, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose a token for each row of `logits` [R, at least vocab_size], float32; they are not changed.

    Returns token ids [R] int64, and which rows are broken [R] bool (`broken_rows`); theirs are any tokens.
    """
    broken = broken_rows(logits, vocab_size)
    logits = logits[:, :vocab_size]
    edited = _edited(logits, batch) if batch.has_edits else logits
    num_random = len(batch.random_rows)
    if num_random == 0:
        return edited.argmax(-1), broken
    if num_random == batch.num_rows:
        return _choose(edited, _Chance.of(batch, vocab_size, logits.device)), broken
    token_ids = edited.argmax(-1)
    rows = _tensor(batch.random_rows, logits.device)
    token_ids[rows] = _choose(edited[rows], _Chance.of(batch, vocab_size, logits.device))
    return token_ids, broken


def broken_rows(logits: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Rows of `logits` [R, at least vocab_size] that have a NaN or +inf, or nothing but -inf: [R] bool."""
    # The largest of several numbers and a NaN is NaN, so this one number per row tells.
    return ~logits[:, :vocab_size].amax(-1).isfinite()


def _edited(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
    """A copy of the logits [R, V] with the edits done, still finite but where a token cannot be chosen."""
    logits = logits.clone()
    if batch.repetition is not None:
        rows, ids, penalty = _on_device(batch.repetition, logits.device)
        old = logits[rows, ids]
        logits[rows, ids] = torch.where(old > 0, old / penalty, old * penalty)
    if batch.subtract is not None:
        rows, ids, amount = _on_device(batch.subtract, logits.device)
        logits[rows, ids] -= amount
    if batch.add is not None:
        rows, ids, amount = _on_device(batch.add, logits.device)
        logits[rows, ids] += amount
    # A logit near float32's limit may have been pushed over it; infinity less infinity would be no number.
    logits.clamp_(max=torch.finfo(logits.dtype).max)
    if batch.bar is not None:
        rows, ids, minus_infinity = _on_device(batch.bar, logits.device)
        logits[rows, ids] = minus_infinity
    return logits


@dataclass(frozen=True, slots=True)
class _Chance:
    """The random rows' parameters on the device, each [K, 1].

    all_limited: every row has a top_k, so no line reaches its end. any_min_p: some row has a min_p. Both are known on the
    host, so that asking costs no wait.
    """

    all_limited: bool
    any_min_p: bool
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniforms: torch.Tensor

    @classmethod
    def of(cls, batch: SamplingBatch, vocab_size: int, device: torch.device) -> _Chance:
        top_k = np.where(batch.top_k == 0, vocab_size, np.minimum(batch.top_k, vocab_size))
        columns = (batch.temperature, top_k, batch.top_p, batch.min_p, batch.uniforms)
        flags = bool((top_k < vocab_size).all()), bool((batch.min_p > 0).any())
        return cls(*flags, *(_tensor(column, device)[:, None] for column in columns))

    def of_rows(self, rows: torch.Tensor) -> _Chance:
        columns = (self.temperature, self.top_k, self.top_p, self.min_p, self.uniforms)
        return _Chance(self.all_limited, self.any_min_p, *(column[rows] for column in columns))


def _choose(logits: torch.Tensor, chance: _Chance) -> torch.Tensor:
    """One token id per row [K, V] → [K]: by the line's beginning where that settles it, else by the whole line."""
    vocab_size = logits.shape[-1]
    if vocab_size <= _LINE:
        return _choose_within(logits, chance, vocab_size)[0]
    token_ids, settled = _choose_within(logits, chance, _LINE)
    rest = (~settled).nonzero()[:, 0]
    if len(rest):
        token_ids[rest] = _choose_within(logits[rest], chance.of_rows(rest), vocab_size)[0]
    return token_ids


def _choose_within(logits: torch.Tensor, chance: _Chance, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The choice as far as the first `length` tokens of the line show it: token ids [K], and whether they are right [K]."""
    vocab_size = logits.shape[-1]
    peak = logits.amax(-1, keepdim=True).double()
    peak = torch.where(peak == -torch.inf, 0.0, peak)
    candidates = line(logits, length)  # [K, length]
    weights = _weights(logits.gather(-1, candidates), peak, chance)
    place = torch.arange(length, device=logits.device)
    kept = (place < chance.top_k) & (weights >= chance.min_p * _ONE)
    kept[:, 0] = True
    weights = torch.where(kept, weights, 0)
    running = weights.cumsum(-1)
    # What the first two cuts leave of the whole line, and whether that is known: they fell here, or there is only min_p's.
    total = running[:, -1:]
    known = torch.full_like(kept[:, :1], True) if length == vocab_size else ~kept[:, -1:]
    if length < vocab_size and not chance.all_limited:
        unlimited = (chance.top_k >= vocab_size) & ~known
        everything = _weights(logits, peak, chance)
        if chance.any_min_p:
            everything *= everything >= chance.min_p * _ONE
        total = torch.where(unlimited, everything.sum(-1, keepdim=True), total)
        known = known | unlimited
    nucleus = (chance.top_p >= 1) | ((running - weights).double() < chance.top_p * total.double())
    nucleus[:, 0] = True
    cut = ~nucleus[:, -1:]
    left = torch.where(cut, torch.where(nucleus, weights, 0).sum(-1, keepdim=True), total)
    target = torch.minimum((chance.uniforms * left.double()).floor().long(), left - 1)
    index = (running <= target).sum(-1, keepdim=True)
    settled = known & (cut | (chance.top_p >= 1) | (running[:, -1:] == total)) & (index < length)
    return candidates.gather(-1, index.clamp(max=length - 1))[:, 0], settled[:, 0]


def line(logits: torch.Tensor, length: int) -> torch.Tensor:
    """The ids of the first `length` tokens of each row [N, V] by (logit descending, id ascending): [N, length]."""
    # One integer key holds both: a float's bits, turned so that they order like the float, and the id counted down. All
    # keys differ, so unlike equal floats they have one order. Adding zero turns -0.0 into 0.0, its equal.
    bits = (logits + 0.0).view(torch.int32)
    bits ^= (bits >> 31).bitwise_and_(0x7FFFFFFF)
    keys = bits.long()
    keys <<= 32
    keys |= torch.arange(_ID_BITS, _ID_BITS - logits.shape[-1], -1, device=logits.device)
    return _ID_BITS - (keys.topk(length, dim=-1).values & _ID_BITS)


def _weights(logits: torch.Tensor, peak: torch.Tensor, chance: _Chance) -> torch.Tensor:
    # In place, as this may be over the whole vocabulary.
    return logits.double().sub_(peak).div_(chance.temperature).exp_().mul_(_ONE).long()


def _on_device(edits: Edits, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _tensor(edits.rows, device), _tensor(edits.ids, device), _tensor(edits.values, device)


def _tensor(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)
