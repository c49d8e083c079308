"""Greedy generation step by step, for `pagoda bench kv-cache`: what each token is, how likely, and how long it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.step import TokenEvent
from pagoda.engine.build import Engine
from pagoda.engine.core import EngineCore
from pagoda.engine.messages import Message, Submit
from pagoda.errors import RequestFailedError
from pagoda.sampling_params import SamplingParams

TokenIds = Sequence[int]


@dataclass(slots=True)
class Generated:
    """One entry a token. logprobs: its logarithm of probability. seconds: of the steps since the token before."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def generate(
    engine: Engine,
    prompt: TokenIds,
    num_tokens: int,
    on_token: Callable[[int, EngineCore], None] = lambda count, core: None,
) -> Generated:
    """Exactly so many tokens after the prompt, alone and without a prefix cache.

    on_token: called with how many there are, after each, and with the loop: the next step has not been scheduled then.
    """
    core = engine.own_loop(paged(engine, len(prompt) + num_tokens))
    generated, before = Generated(), 0.0
    for events in turns(core, [greedy(engine, "alone", prompt, num_tokens)]):
        for event in events:
            raise_error(event)
            generated.token_ids += event.token_ids
            generated.logprobs += [entry.logprobs[0] for entry in event.logprobs]
            if event.token_ids:
                seconds = core.step_log.totals.seconds
                generated.seconds.append(seconds - before)
                before = seconds
                on_token(len(generated.token_ids), core)
    return generated


def paged(engine: Engine, num_tokens: int) -> KVManager:
    """Blocks for one sequence of so many tokens, and no prefix cache."""
    return KVCacheManager(-(-num_tokens // engine.plan.block_size), engine.plan.block_size)


def greedy(engine: Engine, name: str, prompt: TokenIds, num_tokens: int) -> Submit:
    """A request for exactly so many of the likeliest tokens, with their log-probabilities."""
    sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, logprobs=0)
    return engine.admission.admit(name, list(prompt), sampling).submit


def turns(core: EngineCore, messages: Sequence[Message]) -> Iterator[Sequence[TokenEvent]]:
    """Turn the loop until nothing is left to do; the events of each turn."""
    yield core.turn(messages)
    while core.has_work:
        yield core.turn(())


def raise_error(event: TokenEvent) -> None:
    """Raises `RequestFailedError` where the request failed."""
    if event.error is not None:
        raise RequestFailedError(event.error)
