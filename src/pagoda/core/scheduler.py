"""Scheduler: decides, step by step, which request computes which positions, and turns results into events."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from pagoda.config import EngineConfig
from pagoda.core.kv_interface import KVManager, Text
from pagoda.core.mixing import Mixed, Mixing
from pagoda.core.policies import Policy
from pagoda.core.prefix_cache import NOTHING_FOUND
from pagoda.core.request import Request, Status
from pagoda.core.results import apply_result
from pagoda.core.step import RequestKey, RunnerOutput, ScheduledRow, SchedulerOutput, TokenEvent
from pagoda.core.step_plan import InFlight, StepPlan
from pagoda.core.waiting_queue import WaitingQueue
from pagoda.core.watermark import ExpectedGrowth, Watermark
from pagoda.errors import DoesNotFitError, InvalidValueError, InvariantError

_ORDER = attrgetter("order")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What of `EngineConfig` the scheduler goes by.

    prefill_chunk: most tokens of one prompt in a step while others wait, or run with a prompt of their own.
    """

    max_num_seqs: int
    max_batched_tokens: int
    prefill_chunk: int

    @classmethod
    def of(cls, config: EngineConfig) -> SchedulerConfig:
        return cls(config.max_num_seqs, config.max_batched_tokens, config.prefill_chunk)


class Preemption(NamedTuple):
    """`victim` gave up its blocks, with `lost_tokens` computed positions, for want of a block for `on_behalf_of`."""

    victim: RequestKey
    lost_tokens: int
    on_behalf_of: RequestKey


class Scheduler:
    """`schedule` → (a runner executes) → `update`. `schedule` may be called again before the update of the step before.

    Each running request computes at least one position a step as long as it has any to compute: as many run as the
    budget has tokens, at most. Waiting ones enter in the policy's order, but for those who wait for what another computes;
    where the first does not fit, nobody behind it overtakes it, so that every wait is bounded.

    The attributes are for looking at. `running` is in the policy's order. `preemptions` are those that led to the step
    scheduled last.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVManager,
        policy: Policy,
        mixing: Mixing | None = None,
        watermark: Watermark | None = None,
    ) -> None:
        self.config = config
        self.kv = kv
        self.policy = policy
        self.mixing = mixing or Mixed()
        self.watermark = watermark or ExpectedGrowth(kv.window)
        self.max_running = min(config.max_num_seqs, config.max_batched_tokens)
        self.requests: dict[str, dict[int, Request]] = {}
        self.running: list[Request] = []
        self.waiting = WaitingQueue()
        self.in_flight: deque[InFlight] = deque()
        self.preemptions: tuple[Preemption, ...] = ()
        self.num_preemptions = 0
        self._new_preemptions: list[Preemption] = []
        self._dropped: list[RequestKey] = []
        self._num_added = 0
        self._num_steps = 0
        # Blocks that those who run may need in the end; and who found no room since somebody last left the batch.
        self._most_blocks = 0
        self._no_room_for: Request | None = None
        self._set_aside: list[Request] = []

    @property
    def has_unfinished(self) -> bool:
        return bool(self.requests)

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def add(self, request: Request) -> None:
        """Queue a new request. Raises what `check` does."""
        self.check(request)
        request.order = (*self.policy.sort_key(request), self._num_added)
        self._num_added += 1
        self.requests.setdefault(request.key.request_id, {})[request.key.choice] = request
        self.waiting.push(request)

    def check(self, request: Request) -> None:
        """Whether a request can be added.

        Raises `InvalidValueError` for an empty prompt, an unset max_tokens, or a key that is under way already, and
        `DoesNotFitError` when the KV cache could not hold the request even if nothing else ran.
        """
        request_id, choice = request.key
        if not request.prompt_token_ids:
            raise InvalidValueError("prompt", request.prompt_token_ids, "at least one token long")
        if request.sampling.max_tokens is None:
            raise InvalidValueError("max_tokens", None, "set by now")
        if choice in self.requests.get(request_id, ()):
            raise InvalidValueError("request_id", request_id, "one that is not under way already")
        needed = self.kv.blocks_for(request.max_num_positions)
        if needed > self.kv.num_blocks:
            raise DoesNotFitError(
                f"request {request_id!r}: {request.num_prompt_tokens:,} prompt tokens and max_tokens "
                f"{request.sampling.max_tokens:,} need {needed:,} KV blocks of {self.kv.block_size} tokens, but there are "
                f"{self.kv.num_blocks:,}; shorten the prompt, lower max_tokens, or give the KV cache more memory"
            )

    def schedule(self) -> SchedulerOutput:
        """The next step. Without rows when nothing can be computed before results in flight are known, or at all.

        A step without rows is not to be executed: it has no number of its own, and there is no `update` for it.
        """
        plan = StepPlan(self.config.max_batched_tokens)
        preemptions_before = self.num_preemptions
        self._continue_running(plan)
        self._line_up()
        if self.num_preemptions == preemptions_before:
            self._admit_waiting(plan)
            self._line_up()
        if not plan.rows:
            return SchedulerOutput(self._num_steps, (), (), ())
        step = SchedulerOutput(self._num_steps, tuple(self._dropped), tuple(plan.new), tuple(plan.rows))
        self._num_steps += 1
        self._dropped.clear()
        self.preemptions = tuple(self._new_preemptions)
        self._new_preemptions.clear()
        self.in_flight.append(InFlight(step, tuple(plan.requests), plan.committed))
        return step

    def update(self, output: RunnerOutput) -> list[TokenEvent]:
        """Take in the results of the oldest step in flight. What a request that has ended meanwhile got is dropped.

        Raises `InvariantError`, with nothing changed, when the results are not that step's.
        """
        flight = self._landed(output)
        events: list[TokenEvent] = []
        finished = Status.FINISHED
        for request, row, result in zip(flight.requests, flight.step.rows, output.rows, strict=True):
            if row.samples:
                request.num_pending -= 1
            if request.status is finished:
                continue
            event = apply_result(request, row, result)
            if event is not None:
                events.append(event)
                if event.finish_reason is not None:
                    # What it has read may be what broke it: then whoever begins alike would fail as well.
                    suspect = () if event.error is None else self._own_blocks(request)
                    self._end(request)
                    self.kv.forget_contents(suspect)
                    self.watermark.ended(request)
        return events

    def abort(self, request_id: str, choice: int | None = None) -> list[TokenEvent]:
        """End every choice of a request, or just one; their blocks are free at once. What is not under way is ignored."""
        choices = list(self.requests.get(request_id, ())) if choice is None else [choice]
        return [event for number in choices for event in self.finish(RequestKey(request_id, number), "abort")]

    def finish(self, key: RequestKey, finish_reason: str, error: str | None = None) -> list[TokenEvent]:
        """End one choice from outside, for a reason the scheduler does not know of. What is not under way is ignored."""
        request = self.requests.get(key.request_id, {}).get(key.choice)
        if request is None:
            return []
        self._end(request)
        return [TokenEvent(key, len(request.output_token_ids), finish_reason=finish_reason, error=error)]

    def fail_step(self, step: SchedulerOutput, error: str) -> list[TokenEvent]:
        """A step in flight failed as a whole: end the requests that have a row in it. There is no `update` for it then."""
        flight = next((flight for flight in self.in_flight if flight.step is step), None)
        if flight is None:
            raise InvariantError(f"step {step.step} failed, but it is not in flight")
        later = list(self.in_flight)[self.in_flight.index(flight) :]
        failed = {request.key: request for request in flight.requests if request.status is not Status.FINISHED}
        # Nor is anything right that was, or is being, computed from what this step should have left in the cache.
        spoiled = {block for each in later for row in step.rows for block in each.committed.get(row.key, ())}
        if spoiled:
            self.kv.forget_contents(spoiled)
            held = self.kv.tables
            failed.update({each.key: each for each in self.running if spoiled.intersection(held.get(each.key, ()))})
        events = [event for key in failed for event in self.finish(key, "error", error)]
        # Not before, since who leaves while a step is in flight leaves nothing behind to be found.
        self.in_flight.remove(flight)
        # The runner may have failed before it forgot these, so it is told again, but for any that came back since.
        tables = self.kv.tables
        self._dropped += [key for key in step.dropped if key not in tables]
        return events

    def _continue_running(self, plan: StepPlan) -> None:
        """Rows for running requests, in the policy's order."""
        head_fits = self._next_waiting() is not None
        wanting = [(request, todo) for request in self.running if (todo := request.num_uncomputed_tokens) > 0]
        wanting = self.mixing.choose(wanting, head_fits)
        behind, prompts_behind = len(wanting), sum([todo > 1 for _, todo in wanting])
        capped = prompts_behind > 1 or len(self.waiting) > 0
        block_size, running = self.kv.block_size, Status.RUNNING
        for request, todo in wanting:
            behind -= 1
            if request.status is not running:  # preempted for one ahead of it
                prompts_behind -= todo > 1
                continue
            count = 1
            if todo > 1:
                prompts_behind -= 1
                # One token is kept for each running request behind, so that none of them stands still.
                count = self._share(todo, plan.budget - behind, capped, prompts_behind > 0 or head_fits)
            blocks: tuple[int, ...] | None = ()
            # A position that is not the first of its block lies in the block of the one before it.
            if count > 1 or request.num_computed_tokens % block_size == 0:
                blocks = self._extend(request, request.num_computed_tokens + count)
            if blocks is not None:
                self._add_row(plan, request, count, todo, blocks)

    def _extend(self, request: Request, num_positions: int) -> tuple[int, ...] | None:
        """Blocks for so many positions in all, others being preempted as needed; None when it was preempted itself."""
        while (blocks := self.kv.allocate(request.key, num_positions, request.num_computed_tokens)) is None:
            # Those ahead have their rows in this step already, so only it and those behind can give way. The first never
            # does: whatever the others lose, it comes to its end, and so does each in its turn.
            victim = self.policy.pick_victim(self.running[max(self._place(request), 1) :] or [request])
            self._preempt(victim, request)
            if victim is request:
                return None
        return blocks

    def _admit_waiting(self, plan: StepPlan) -> None:
        while plan.budget > 0 and (request := self._next_waiting()) is not None:
            if not self.mixing.admits(len(self.running), len(self.waiting)):
                return
            self.waiting.pop()
            shared, others = len(request.prefix.blocks), len(self.waiting) > 0
            request.num_computed_tokens += shared * self.kv.block_size
            todo = request.num_uncomputed_tokens
            count = self._share(
                todo, plan.budget, others or plan.prompts > 0, others and len(self.running) + 1 < self.max_running
            )
            text = Text(request.namespace, request.known_token_ids, request.prefix)
            blocks = self.kv.admit(request.key, request.num_positions_at_admission, request.max_num_positions, text)
            if blocks is None:
                raise InvariantError(f"{request.key} was to be admitted, but its blocks are not there")
            if not request.num_preemptions:
                request.num_cached_tokens = shared * self.kv.block_size
            request.prefix = NOTHING_FOUND
            request.status = Status.RUNNING
            self._most_blocks += self.kv.blocks_for(request.max_num_positions)
            insort(self.running, request, key=_ORDER)
            plan.new.append(request.as_new())
            self._add_row(plan, request, count, todo, blocks, shared=shared)

    def _share(self, todo: int, available: int, capped: bool, others_behind: bool) -> int:
        """How many of a prompt's `todo` tokens go into this step.

        While others need prefill as well, at most the chunk, and at most half of what is available if there are others
        behind, whatever the chunk: so the short prompt behind a few long ones gets in at once.
        """
        if others_behind:
            available = max(1, available // 2)
        return min(todo, available, self.config.prefill_chunk) if capped else min(todo, available)

    def _next_waiting(self) -> Request | None:
        """The first of the queue that does not wait for another's prompt, if it can enter now."""
        if len(self.running) >= self.max_running:
            return None
        # Those who run only grow, where they give up nothing: it is as it was.
        kept_out = self._no_room_for if self.kv.window is None else None
        while (request := self.waiting.peek()) is not None and request is not kept_out and self._awaits_prompt(request):
            self._set_aside.append(self.waiting.pop())
        # Preempted with a token in flight: it comes back when the token is known.
        if request is None or request is kept_out or request.num_pending:
            return None
        positions, most = request.num_positions_at_admission, request.max_num_positions
        fits = self.kv.can_admit(positions, most, 0, request.prefix)
        # Where all fit that could ever be needed, nobody will lack anything.
        if fits and self.running and self._most_blocks + self.kv.blocks_for(most) > self.kv.num_blocks:
            headroom = self.watermark.headroom(self.running, request, self.kv.num_blocks, self.kv.block_size)
            fits = self.kv.can_admit(positions, most, headroom, request.prefix)
        if not fits and self.running:
            self._no_room_for = request
        return request if fits else None

    def _awaits_prompt(self, request: Request) -> bool:
        """Whether it has more from waiting for what another computes than from computing the same beside it. Finds its
        prefix. Nobody behind it is held up by that."""
        needs_all = request.sampling.prompt_logprobs is not None
        if not self.kv.shares or needs_all or request.num_pending or request.num_computed_tokens:
            return False
        request.prefix = self.kv.find_prefix(request.namespace, request.known_token_ids, request.prefix)
        return request.prefix.promised

    def _line_up(self) -> None:
        """Back into the queue, in their places."""
        for request in self._set_aside:
            self.waiting.push(request)
        self._set_aside.clear()

    def _add_row(
        self, plan: StepPlan, request: Request, count: int, todo: int, blocks: tuple[int, ...], *, shared: int = 0
    ) -> None:
        start = request.num_computed_tokens
        samples = count == todo and request.sampling.max_tokens != 0
        plan.rows.append(ScheduledRow(request.key, start, count, blocks, samples, shared))
        plan.requests.append(request)
        plan.budget -= count
        if todo > 1:
            plan.prompts += 1
        request.num_computed_tokens = start + count
        # While a request decodes, a block is known to be full, with all of its tokens, when the next one is taken.
        if self.kv.shares and (blocks or todo > 1 or start < request.num_prompt_tokens):
            plan.committed[request.key] = self._commit(request)
        request.num_pending += samples

    def _preempt(self, victim: Request, on_behalf_of: Request) -> None:
        """Send a running request back to the queue, without its blocks."""
        self._new_preemptions.append(Preemption(victim.key, victim.num_computed_tokens, on_behalf_of.key))
        self.num_preemptions += 1
        self._leave_batch(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = Status.WAITING
        self.waiting.push(victim)

    def _end(self, request: Request) -> None:
        was_running = request.status is Status.RUNNING
        request.status = Status.FINISHED
        if was_running:
            # Steps in flight may still write to these blocks; whoever gets them next zeroes them in a later step.
            self._leave_batch(request)
        else:
            self.waiting.forget(request)
        choices = self.requests[request.key.request_id]
        del choices[request.key.choice]
        if not choices:
            del self.requests[request.key.request_id]

    def _own_blocks(self, request: Request) -> tuple[int, ...]:
        return self.kv.block_table(request.key)[self.kv.num_passed(request.key) :]

    def _commit(self, request: Request) -> tuple[int, ...]:
        return self.kv.commit(request.key, request.known_token_ids, request.num_computed_tokens)

    def _leave_batch(self, request: Request) -> None:
        del self.running[self._place(request)]
        if self.kv.shares and not self.in_flight:  # else what it has computed last is not sure yet
            self._commit(request)
        self.kv.free(request.key)
        self._most_blocks -= self.kv.blocks_for(request.max_num_positions)
        self._no_room_for = None
        self._dropped.append(request.key)

    def _place(self, request: Request) -> int:
        """Where in `running` a running request is."""
        return bisect_left(self.running, request.order, key=_ORDER)

    def _landed(self, output: RunnerOutput) -> InFlight:
        """Take the oldest step out of the air, once it is sure that `output` is its result."""
        flight = self.in_flight[0] if self.in_flight else None
        if flight is None or flight.step.step != output.step:
            raise InvariantError(f"results of step {output.step} came, but {flight and flight.step.step} was next")
        if [row.key for row in flight.step.rows] != [result.key for result in output.rows]:
            raise InvariantError(f"the results of step {output.step} are not those of its rows, in their order")
        for row, result in zip(flight.step.rows, output.rows, strict=True):
            if result.token_id is None and row.samples and result.error is None:
                raise InvariantError(f"step {output.step} has neither a token nor an error for {row.key}")
        return self.in_flight.popleft()
