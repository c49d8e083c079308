"""Requests for sampling tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pagoda.core.step import NewRequest, RequestKey
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.state import SamplingState
from pagoda.sampling.torch_sampler import sample
from pagoda.sampling_params import SamplingParams


def new_request(
    prompt: Sequence[int] = (1,),
    output: Sequence[int] = (),
    seed: int = 7,
    choice: int = 0,
    end_token_ids: frozenset[int] = frozenset(),
    **sampling: Any,
) -> NewRequest:
    return NewRequest(
        key=RequestKey("r", choice),
        token_ids=(*prompt, *output),
        num_prompt_tokens=len(prompt),
        sampling=SamplingParams(**sampling).resolved({}, 1 << 20),
        seed=seed,
        end_token_ids=end_token_ids,
    )


def new_state(vocab_size: int, **request: Any) -> SamplingState:
    return SamplingState(new_request(**request), vocab_size)


def choose(logits: torch.Tensor, states: Sequence[SamplingState], vocab_size: int | None = None) -> list[int]:
    """What `sample` chooses for each row; no row may be broken."""
    token_ids, broken = sample(logits, SamplingBatch.of(states), vocab_size or logits.shape[-1])
    assert not broken.any()
    return token_ids.tolist()
