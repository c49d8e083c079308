"""What arrives in a simulation, and what became of it. Times are seconds of the virtual clock."""

from __future__ import annotations

from typing import NamedTuple


class Arrival(NamedTuple):
    """One request: when it comes, and its lengths in tokens (both at least 1).

    prefix: a name for the beginning of its prompt that it shares with others of that name, `prefix_tokens` long.
    """

    time: float
    prompt_tokens: int
    output_tokens: int
    prefix: str | None = None
    prefix_tokens: int = 0


class Outcome(NamedTuple):
    """One request that is over. As a load generator measures them: TTFT is first_token - arrival.time, TPOT is
    (end - first_token) / (output_tokens - 1), end-to-end latency is end - arrival.time.

    first_token, end: when they reached the client; None where the request was refused, `refusal` saying why.
    replica: the one that ended it. num_preemptions: how often it had to give up its blocks.
    """

    arrival: Arrival
    first_token: float | None
    end: float | None
    replica: int
    num_preemptions: int = 0
    refusal: str | None = None
