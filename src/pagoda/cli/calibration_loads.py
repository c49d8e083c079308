"""The loads of `pagoda bench calibrate`: together they make steps of every kind that a server's steps are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SHORT = 16  # tokens of a prompt that is there to be decoded after
Kind = Literal["prompt", "batch", "traffic"]


@dataclass(frozen=True, slots=True)
class Load:
    """So many requests, `concurrency` of them at once, with prompts of from … to tokens.

    kind: one prompt alone, whose steps also tell what a request takes outside of them; a batch that starts together;
    traffic, in which prompts and answers of many lengths overlap.
    """

    kind: Kind
    requests: int
    concurrency: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]

    @property
    def prefill_tokens(self) -> float:
        return self.requests * sum(self.prompt_tokens) / 2


def loads(max_num_seqs: int, max_batched_tokens: int, max_model_len: int, cache_tokens: int) -> list[Load]:
    """The cheapest first: decoding with 1, 2, 4 … requests at once, at short contexts and at long ones; prompts of 2, 4, 8 …
    tokens up to several steps' worth; and traffic at a few loads. No load needs more cache than there is."""
    longest = min(max_model_len, cache_tokens)
    found = []
    for prompt in _powers(2, min(max_batched_tokens, longest - 2)):
        found.append(Load("prompt", 1, 1, (prompt, prompt), (2, 2)))
    for batch in _powers(1, max_num_seqs):
        found += _batch(batch, SHORT, longest, cache_tokens)
    for batch in (1, 4, 16):
        for prompt in (max_batched_tokens // 2, 3 * max_batched_tokens):
            if batch <= max_num_seqs:
                found += _batch(batch, prompt, longest, cache_tokens)
    for concurrency in _powers(2, max_num_seqs):
        long, answer = min(max_batched_tokens, longest // 2), min(48, longest // 4)
        if concurrency * (long + answer) <= cache_tokens and answer > 2:
            found.append(
                Load("traffic", 2 * concurrency, concurrency, (min(SHORT, long), long), (max(2, answer // 4), answer))
            )
    return sorted(found, key=lambda load: load.prefill_tokens)


def _batch(batch: int, prompt: int, longest: int, cache_tokens: int) -> list[Load]:
    output = 12
    if prompt + output > longest or batch * (prompt + output) > cache_tokens:
        return []
    return [Load("batch", batch, batch, (prompt, prompt), (output, output))]


def _powers(first: int, last: int) -> list[int]:
    """first, 2 × first, 4 × first … and `last`."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return [*found, last] if last >= 1 else found
