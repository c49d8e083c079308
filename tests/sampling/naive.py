"""The sampler's documented meaning, written plainly: one row, float64 probabilities, sets and loops."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pagoda.core.step import NewRequest


def naive_logits(logits: np.ndarray, request: NewRequest) -> np.ndarray:
    """Logits [V] after penalties, bias and barred tokens. Each edit is one float32 operation, so that ties are the same."""
    result = logits.astype(np.float32).copy()
    sampling = request.sampling
    output = request.token_ids[request.num_prompt_tokens :]
    penalty = np.float32(sampling.repetition_penalty)
    for token_id in set(request.token_ids):
        result[token_id] = result[token_id] / penalty if result[token_id] > 0 else result[token_id] * penalty
    for token_id, count in Counter(output).items():
        result[token_id] -= np.float32(sampling.presence_penalty + sampling.frequency_penalty * count)
    for token_id, bias in sampling.logit_bias.items():
        result[token_id] += np.float32(bias)
    if len(output) < sampling.min_tokens:
        result[[*request.end_token_ids, *sampling.stop_token_ids]] = -np.inf
    return result.astype(np.float64)


def naive_intervals(logits: np.ndarray, request: NewRequest) -> list[tuple[int, float, float]]:
    """(token id, from, to): a uniform number u with from <= u < to chooses the token. Only tokens that can be chosen."""
    sampling = request.sampling
    edited = naive_logits(logits, request)
    order = sorted(range(len(edited)), key=lambda token_id: (-edited[token_id], token_id))
    if sampling.temperature == 0.0:
        return [(order[0], 0.0, 1.0)]
    weights = np.exp((edited - edited.max()) / sampling.temperature)
    if sampling.top_k:
        order = order[: sampling.top_k]
    order = [token_id for token_id in order if weights[token_id] >= sampling.min_p]
    total = sum(weights[token_id] for token_id in order)
    nucleus: list[int] = []
    for token_id in order:
        if nucleus and sampling.top_p < 1 and sum(weights[each] for each in nucleus) >= sampling.top_p * total:
            break
        nucleus.append(token_id)
    total = sum(weights[token_id] for token_id in nucleus)
    edges = np.concatenate([[0.0], np.cumsum([weights[token_id] for token_id in nucleus]) / total])
    return [(token_id, edges[i], edges[i + 1]) for i, token_id in enumerate(nucleus) if weights[token_id] > 0]
