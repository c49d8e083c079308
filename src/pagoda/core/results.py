"""What one row's result means for its request: a token, an end, prompt log-probabilities."""

from __future__ import annotations

from pagoda.core.request import Request
from pagoda.core.step import RowResult, ScheduledRow, TokenEvent, TokenLogprobs
from pagoda.errors import InvariantError


def apply_result(request: Request, row: ScheduledRow, result: RowResult) -> TokenEvent | None:
    """Append the token to the request, if it got one that counts, and say what its client is to know; None for nothing.

    The event has a finish_reason when the request is to end.
    """
    index, sampling = len(request.output_token_ids), request.sampling
    key, token_id, found, found_in_prompt, error = result
    if error is not None:
        return TokenEvent(key, index, finish_reason="error", error=error)
    prompt_logprobs = _unsent(request, row, found_in_prompt) if found_in_prompt else ()
    if not row.samples:
        finished = sampling.max_tokens == 0 and row.start + row.num_tokens == request.num_prompt_tokens
        if not finished and not prompt_logprobs:
            return None
        reason = "length" if finished else None
        return TokenEvent(key, index, (), (), prompt_logprobs, reason, num_cached_tokens=request.num_cached_tokens)
    if token_id is None:
        raise InvariantError(f"{key} was to get a token, and got none")
    logprobs = () if found is None else (found,)
    ends = token_id in request.end_token_ids or token_id in sampling.stop_token_ids
    if ends and index >= sampling.min_tokens:
        return TokenEvent(key, index, (), logprobs, prompt_logprobs, "stop", token_id, None, request.num_cached_tokens)
    request.output_token_ids.append(token_id)
    reason = "length" if index + 1 >= (sampling.max_tokens or 0) else None
    cached = request.num_cached_tokens
    return TokenEvent(key, index, (token_id,), logprobs, prompt_logprobs, reason, None, None, cached)


def _unsent(request: Request, row: ScheduledRow, found: tuple[TokenLogprobs, ...]) -> tuple[TokenLogprobs, ...]:
    """Of the log-probabilities of positions row.start + 1 …, those not sent before: recomputation yields them again."""
    unsent = found[max(0, request.num_prompt_logprobs - row.start) :]
    request.num_prompt_logprobs += len(unsent)
    return unsent
