"""Generation: the requests of one HTTP call, from the engine's output thread into the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType

from pagoda.engine.admission import Admitted, Prompt
from pagoda.engine.outputs import CompletionDelta, RequestOutput
from pagoda.errors import InvalidValueError
from pagoda.llm import AsyncLLM
from pagoda.sampling_params import SamplingParams
from pagoda.server.errors import HttpError
from pagoda.server.mailbox import Mailbox
from pagoda.server.metrics import RequestTimer, ServerMetrics
from pagoda.server.service import Service

DRAINING_RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Call:
    """What an HTTP call asks of the engine.

    several: whether the caller gave a list of prompts, so that errors say which one they are about.
    names: the caller's words for fields that admission calls otherwise.
    cache_salt: K and V of equal texts are shared only among calls of the same one.
    default_max_tokens: what an unset max_tokens means, as far as the context has room.
    heavy: long enough that its admission must not be done in the event loop.
    """

    prompts: Sequence[Prompt]
    sampling: SamplingParams
    priority: int = 0
    cache_salt: str | None = None
    several: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    default_max_tokens: int | None = None
    heavy: bool = False


class Generations:
    """Starts the generations of one application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._mailbox = Mailbox()
        service.llm.after_turn(self._mailbox.end_turn)

    async def start(self, call: Call) -> Generation:
        """Admit and start every prompt, or none: where one is refused, nothing is left running.

        Raises `PagodaError`: 503 while the server drains, 429 where the inbox is full, 400 for what is refused.
        """
        if self._service.draining:
            message = "the server is shutting down and takes no new requests"
            raise HttpError(503, message, code="shutting_down", retry_after=DRAINING_RETRY_SECONDS)
        self._mailbox.open()
        generation = Generation(call, self._service.llm, self._service.metrics, self._mailbox)
        try:
            if call.heavy:
                await asyncio.to_thread(generation.start)
            else:
                generation.start()
        except BaseException:
            generation.abort()
            raise
        return generation


class Generation:
    """Read its `arrivals`, or wait until it is `finished`. Leaving the context ends what still runs."""

    def __init__(self, call: Call, llm: AsyncLLM, metrics: ServerMetrics, mailbox: Mailbox) -> None:
        self.call = call
        self._llm, self._metrics, self._mailbox = llm, metrics, mailbox
        self.admitted: list[Admitted] = []
        self._requests: list[_Request] = []
        self._pending: list[tuple[int, CompletionDelta]] = []
        self._news = asyncio.Event()
        self._num_open = 0
        self._left = False

    def start(self) -> None:
        """Called once, from any thread. Raises `PagodaError`; what has been started by then is for `abort`."""
        for number, prompt in enumerate(self.call.prompts):
            self.admitted.append(_admit(self._llm, self.call, prompt, number))
        requests = [
            _Request(self, number, admitted, self._metrics, self._mailbox)
            for number, admitted in enumerate(self.admitted)
        ]
        self._num_open = len(requests)
        self._llm.start_all(list(zip(self.admitted, requests, strict=True)))
        self._requests = requests
        self._mailbox.send([request.begin for request in requests])
        if self._left:  # its client left while this thread was starting it
            self.abort()

    def abort(self) -> None:
        """End what still runs. May be called twice."""
        self._left = True
        for request in self._requests:
            if request.output is None:
                self._llm.abort(request.request_id)

    async def arrivals(self) -> AsyncIterator[list[tuple[int, CompletionDelta]]]:
        """All that has come since the last time, as (number of the prompt, delta), at most one delta a choice.

        Raises the `PagodaError` that a request ended with, after which nothing of it is left running.
        """
        while self._num_open or self._pending:
            await self._news.wait()
            self._news.clear()
            if self._pending:
                arrived, self._pending = self._pending, []
                yield coalesced(arrived)
        self._raise()

    async def finished(self) -> list[RequestOutput]:
        """Every prompt's output, in order. Raises the `PagodaError` that one ended with."""
        while self._num_open:
            await self._news.wait()
            self._news.clear()
            self._pending.clear()
        self._raise()
        return [request.output for request in self._requests if request.output is not None]

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._num_open:
            self.abort()

    def _arrived(self, number: int, delta: CompletionDelta) -> None:
        if delta.finish_reason == "error":  # what it is comes with the end of the request
            self.abort()
        if not self._left:
            self._pending.append((number, delta))
        self._news.set()

    def _ended(self, output: RequestOutput) -> None:
        self._num_open -= 1
        if output.error is not None:
            self.abort()
        self._news.set()

    def _raise(self) -> None:
        for request in self._requests:
            if request.output is not None and request.output.error is not None:
                raise request.output.error


class _Request:
    """One prompt's listener. `on_…` run in the client's output thread, everything else in the event loop."""

    def __init__(
        self, generation: Generation, number: int, admitted: Admitted, metrics: ServerMetrics, mailbox: Mailbox
    ) -> None:
        self.request_id = admitted.submit.request_id
        self.output: RequestOutput | None = None
        self._generation, self._number = generation, number
        self._metrics, self._mailbox = metrics, mailbox
        self._num_prompt_tokens = len(admitted.submit.prompt_token_ids)
        self._timer: RequestTimer | None = None
        self._ended: set[int] = set()

    def on_delta(self, delta: CompletionDelta) -> None:
        self._mailbox.post(lambda: self._take(delta))

    def on_finished(self, output: RequestOutput) -> None:
        self._mailbox.post(lambda: self._finish(output))

    def begin(self) -> RequestTimer:
        if self._timer is None:
            self._timer = self._metrics.started(self._num_prompt_tokens)
        return self._timer

    def _take(self, delta: CompletionDelta) -> None:
        timer = self.begin()
        timer.tokens(len(delta.token_ids), delta.index)
        if delta.finish_reason is not None:
            self._ended.add(delta.index)
            timer.finished(delta.finish_reason, delta.index)
        self._generation._arrived(self._number, delta)

    def _finish(self, output: RequestOutput) -> None:
        self.output = output
        for choice in output.outputs:
            if choice.index not in self._ended:  # the engine failed: there was no last delta
                self.begin().finished(choice.finish_reason or "error", choice.index)
        self._generation._ended(output)


@contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Errors about these fields come out under their other names."""
    try:
        yield
    except InvalidValueError as error:
        head, bracket, rest = error.field.partition("[")
        if head not in names:
            raise
        raise InvalidValueError(names[head] + bracket + rest, error.value, error.limit) from None


def _admit(llm: AsyncLLM, call: Call, prompt: Prompt, number: int) -> Admitted:
    with renaming({**call.names, "prompt": f"prompt[{number}]"} if call.several else call.names):
        admitted = llm.admit(prompt, call.sampling, priority=call.priority, cache_salt=call.cache_salt)
    if call.sampling.max_tokens is not None or call.default_max_tokens is None:
        return admitted
    room = admitted.submit.sampling.max_tokens or 0
    sampling = replace(admitted.submit.sampling, max_tokens=min(call.default_max_tokens, room))
    return replace(admitted, submit=replace(admitted.submit, sampling=sampling))


def coalesced(arrived: list[tuple[int, CompletionDelta]]) -> list[tuple[int, CompletionDelta]]:
    """The deltas of each choice joined, in the order in which the choices first came."""
    joined: dict[tuple[int, int], list[CompletionDelta]] = {}
    for number, delta in arrived:
        joined.setdefault((number, delta.index), []).append(delta)
    return [(number, _joined(deltas)) for (number, _), deltas in joined.items()]


def _joined(deltas: list[CompletionDelta]) -> CompletionDelta:
    first, last = deltas[0], deltas[-1]
    if first is last:
        return first
    return replace(
        last,
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=tuple(position for delta in deltas for position in delta.logprobs),
        prompt_logprobs=first.prompt_logprobs,
        num_cached_tokens=first.num_cached_tokens,
    )
