"""simulate: replicas, routers and a virtual clock.

What the clock says corresponds to a real server so:

- A request reaches its replica `StepTimer.request_seconds` after it arrives: the time that the server needs to read it, apply
  the template and find its tokens, beside the engine. The router chooses when it arrives.
- The engine looks at what has arrived between steps only, so a request can be in the first step that starts at or after
  that moment; until then it waits in the engine's inbox, then in the scheduler's queue.
- All tokens of a step reach their clients at its end. `StepTimer.seconds` is from the start of a step to its results, with
  what the engine does around it, so the next step starts at that same moment if there is anything to compute.
- Output is exactly as long as the arrival says; max_tokens is that length, so contiguous allocation reserves as much, the
  best that it can do.
- With prefill apart, the replica that computes a prompt also gives the first token. K and V of the prompt then go over its
  link, one request after the other, to a replica that decodes; it may enter there once they have all come. Its blocks on
  the first replica are free when its prompt is computed, as if sending read from a copy.

The time on the network between client and server is left out, as a load generator on the same machine leaves it out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pagoda import checks
from pagoda.core import invariants
from pagoda.core.request import Request
from pagoda.core.step import RequestKey
from pagoda.errors import InvalidValueError, InvariantError, PagodaError
from pagoda.planning.costs import CostModel
from pagoda.planning.step_time import StepTimer
from pagoda.runner.simulated import TOKEN_ID
from pagoda.sampling_params import SamplingParams
from pagoda.simulation.cluster import ClusterConfig
from pagoda.simulation.pools import Link, Pool
from pagoda.simulation.prompts import DistinctPrompts, PlainPrompts
from pagoda.simulation.replica import Replica
from pagoda.simulation.result import Outcomes, Result
from pagoda.simulation.workload import Arrival, Outcome

# What happens at one moment happens in this order: a step sees all that arrived until the moment it starts.
_DELIVERY, _TURN = 0, 1


def simulate(arrivals: Iterable[Arrival], config: ClusterConfig, costs: CostModel, timer: StepTimer) -> Result:
    """Serve `arrivals`, which come in the order of their times, until all have ended. Nothing in it is random.

    `arrivals` may be an iterator: each is taken when the clock has come to it.
    Raises `InvalidValueError` for an arrival that is none: out of order, or with lengths or times that cannot be.
    """
    simulation = _Simulation(config, costs, timer)
    simulation.run(_checked(arrivals))
    return simulation.result()


@dataclass(slots=True)
class _Live:
    """A request under way: `request` is what it is to `replica`, which `pool` chose."""

    arrival: Arrival
    request: Request
    pool: Pool
    replica: int
    first_token: float | None = None


class _Simulation:
    def __init__(self, config: ClusterConfig, costs: CostModel, timer: StepTimer) -> None:
        checks.integer("num_replicas", config.num_replicas, 1)
        self._config = config
        self._request_seconds = timer.request_seconds
        self._kv_bytes_per_token = costs.kv_bytes_per_token
        self._replicas = [Replica(config, costs, timer) for _ in range(config.num_replicas)]
        apart = checks.integer("prefill_replicas", config.prefill_replicas, 0, config.num_replicas - 1)
        # Prompts are computed in `prompts`, tokens after the first in `outputs`.
        self._outputs = Pool(config.routing, range(apart, config.num_replicas))
        self._prompts = Pool(config.routing, range(apart)) if apart else self._outputs
        self._links = [Link(_bandwidth(config)) for _ in range(apart)]
        if config.prefix_cache and config.allocation != "paged":
            raise InvalidValueError("prefix_cache", True, "off with contiguous allocation, where nothing is shared")
        self._texts = DistinctPrompts() if config.prefix_cache else PlainPrompts()
        self._outcomes = Outcomes()
        self._live: dict[RequestKey, _Live] = {}
        self._idle = [True] * config.num_replicas
        self._events: list[tuple[float, int, int, int, Request | None]] = []  # (time, kind, number, replica, request)
        self._num_events = self._num_arrivals = 0
        self._started = self._now = 0.0

    def run(self, arrivals: Iterator[Arrival]) -> None:
        events = self._events
        arrival = next(arrivals, None)
        if arrival is not None:
            self._started = arrival.time
        while arrival is not None or events:
            if arrival is not None and (not events or arrival.time <= events[0][0]):
                self._now = arrival.time
                self._arrive(arrival)
                arrival = next(arrivals, None)
                continue
            self._now, _, _, replica, request = heapq.heappop(events)
            if request is not None:
                self._deliver(request, replica)
            else:
                self._turn(replica)
        if self._live:
            raise InvariantError(f"the simulation came to a halt with {len(self._live):,} requests under way")
        for each in self._replicas:
            invariants.check(each.scheduler)

    def result(self) -> Result:
        return Result(
            self._outcomes,
            tuple(replica.use for replica in self._replicas),
            self._started,
            self._now,
            self._config.num_blocks,
            self._config.block_size,
        )

    def _arrive(self, arrival: Arrival) -> None:
        key = RequestKey(str(self._num_arrivals), 0)
        self._num_arrivals += 1
        replica = self._prompts.choose(arrival)
        text = self._texts.of(arrival)
        whole = _request(key, arrival, text, arrival.output_tokens)
        request = whole if self._prompts is self._outputs else _request(key, arrival, text, 1)
        self._live[key] = _Live(arrival, request, self._prompts, replica)
        try:
            # All replicas are alike: where the whole of it fits, so does its prompt.
            self._replicas[replica].scheduler.check(whole)
        except PagodaError as error:
            self._end(key, None, str(error))
        else:
            self._at(arrival.time + self._request_seconds, _DELIVERY, replica, request)

    def _deliver(self, request: Request, replica: int) -> None:
        self._replicas[replica].scheduler.add(request)
        if self._idle[replica]:
            self._idle[replica] = False
            self._at(self._now, _TURN, replica)

    def _turn(self, number: int) -> None:
        """Between two steps of a replica."""
        replica, now = self._replicas[number], self._now
        for event in replica.finish():
            if event.index == 0:
                self._live[event.key].first_token = now
            if event.finish_reason is not None:
                self._leave(event.key)
        seconds = replica.start()
        self._idle[number] = seconds is None
        if seconds is not None:
            self._at(now + seconds, _TURN, number)

    def _leave(self, key: RequestKey) -> None:
        """A replica has done its part of a request."""
        live = self._live[key]
        if live.pool is self._outputs or live.arrival.output_tokens == 1:
            self._end(key, self._now)
        else:
            self._hand_over(live)

    def _hand_over(self, live: _Live) -> None:
        """Send K and V of the prompt to a replica that decodes."""
        arrival, sender = live.arrival, live.replica
        live.pool.ended(sender)
        num_bytes = arrival.prompt_tokens * self._kv_bytes_per_token
        self._replicas[sender].use.transferred_bytes += num_bytes
        live.pool, live.replica = self._outputs, self._outputs.choose(arrival)
        sent = live.request
        live.request = _request(sent.key, arrival, sent.prompt_token_ids, arrival.output_tokens)
        live.request.output_token_ids.append(TOKEN_ID)
        live.request.num_computed_tokens = arrival.prompt_tokens
        self._at(self._links[sender].send(num_bytes, self._now), _DELIVERY, live.replica, live.request)

    def _end(self, key: RequestKey, end: float | None, refusal: str | None = None) -> None:
        live = self._live.pop(key)
        live.pool.ended(live.replica)
        # Only what runs on for longer than one token can be preempted, so its last request knows of all preemptions.
        preemptions = live.request.num_preemptions
        self._outcomes.append(Outcome(live.arrival, live.first_token, end, live.replica, preemptions, refusal))

    def _at(self, time: float, kind: int, replica: int, request: Request | None = None) -> None:
        heapq.heappush(self._events, (time, kind, self._num_events, replica, request))
        self._num_events += 1


def _request(key: RequestKey, arrival: Arrival, text: Sequence[int], max_tokens: int) -> Request:
    return Request(key, text, _sampling(max_tokens), 0, arrival_time=arrival.time)


@lru_cache(maxsize=10_000)
def _sampling(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


def _bandwidth(config: ClusterConfig) -> float:
    if not (config.transfer_bandwidth or 0.0) > 0.0:
        raise InvalidValueError("transfer_bandwidth", config.transfer_bandwidth, "above 0 where prefill is apart")
    return checks.number("transfer_bandwidth", config.transfer_bandwidth)


def _checked(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    before = 0.0
    for number, arrival in enumerate(arrivals):
        before = checks.number(f"arrivals[{number}].time", arrival.time, before)
        checks.integer(f"arrivals[{number}].prompt_tokens", arrival.prompt_tokens, 1)
        checks.integer(f"arrivals[{number}].output_tokens", arrival.output_tokens, 1)
        checks.integer(f"arrivals[{number}].prefix_tokens", arrival.prefix_tokens, 0, arrival.prompt_tokens)
        yield arrival
