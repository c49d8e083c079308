"""What one row's result means for its request: a token, an end, prompt log-probabilities."""

from __future__ import annotations

from pagoda.core.request import Request
from pagoda.core.step import RowResult, ScheduledRow, TokenEvent, TokenLogprobs
from pagoda.errors import InvariantError


def apply_result(request: Request, row: ScheduledRow, result: RowResult) -> TokenEvent | None:
    """Append the token to the request, if it got one that counts, and say what its client is to know; None for nothing.

    The event has a finish_reason when the request is to end.
    """
    index = len(request.output_token_ids)
    if result.error is not None:
        return TokenEvent(request.key, index, finish_reason="error", error=result.error)
    prompt_logprobs = _unsent(request, row, result.prompt_logprobs) if result.prompt_logprobs else ()
    max_tokens = request.sampling.max_tokens or 0
    if not row.samples:
        finished = max_tokens == 0 and row.start + row.num_tokens == request.num_prompt_tokens
        if not finished and not prompt_logprobs:
            return None
        reason = "length" if finished else None
        return TokenEvent(request.key, index, prompt_logprobs=prompt_logprobs, finish_reason=reason)
    token_id = result.token_id
    if token_id is None:
        raise InvariantError(f"{request.key} was to get a token, and got none")
    logprobs = () if result.logprobs is None else (result.logprobs,)
    if index >= request.sampling.min_tokens and _ends(request, token_id):
        return TokenEvent(request.key, index, (), logprobs, prompt_logprobs, "stop", token_id)
    request.output_token_ids.append(token_id)
    reason = "length" if index + 1 >= max_tokens else None
    return TokenEvent(request.key, index, (token_id,), logprobs, prompt_logprobs, reason)


def _ends(request: Request, token_id: int) -> bool:
    return token_id in request.end_token_ids or token_id in request.sampling.stop_token_ids


def _unsent(request: Request, row: ScheduledRow, found: tuple[TokenLogprobs, ...]) -> tuple[TokenLogprobs, ...]:
    """Of the log-probabilities of positions row.start + 1 …, those not sent before: recomputation yields them again."""
    unsent = found[max(0, request.num_prompt_logprobs - row.start) :]
    request.num_prompt_logprobs += len(unsent)
    return unsent
