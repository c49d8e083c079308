"""LLM and AsyncLLM: generation from Python, without a server."""

from __future__ import annotations

import asyncio
import itertools
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

from pagoda import checks
from pagoda.config import EngineConfig
from pagoda.engine.admission import Admitted, Messages, Prompt
from pagoda.engine.build import Engine
from pagoda.engine.client import Listener
from pagoda.engine.handle import AsyncHandle, RequestHandle, ResultListener
from pagoda.engine.outputs import CompletionDelta, RequestOutput
from pagoda.engine.prompts import Params, checked_conversation, listed_conversations, listed_prompts, params_each
from pagoda.engine.stats import EngineStats
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.planning.ledger import MemoryPlan
from pagoda.progress import TerminalProgress
from pagoda.sampling_params import SamplingParams

OnError = Literal["raise", "return"]
SCORING = SamplingParams(max_tokens=0, prompt_logprobs=0)
Self = TypeVar("Self", bound="_Loaded")


class _Loaded:
    """A loaded model: what `LLM` and `AsyncLLM` share.

    config   the EngineConfig in force          plan          the memory plan (its byte ledger)
    spec     the model's architecture           step_log      what each step did and took
    tokenizer                                   load_seconds  from the call to ready
    device   where it runs, with how many threads, the instruction set, the dtype in force
    holding  how the device holds the model: the formats of its weights, the bytes of each part
    held     what weights and KV cache really take, to compare with the plan
    fingerprint  names weights, formats, version, device and settings: equal ones give equal tokens on the CPU
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "smollm2",
        *,
        progress: bool | None = None,
        on_plan: Callable[[MemoryPlan], None] = lambda plan: None,
        **config: Any,
    ) -> None:
        """model: a hub id, a local directory, a .gguf file, or `smollm2`. config: fields of `EngineConfig`.

        progress: show bars on stderr; by default only where it is a terminal. on_plan: called with the memory plan
        before any weight is read. Raises `PagodaError`.
        """
        self._progress = progress
        self.config = make_config(os.fspath(model), config)
        with TerminalProgress(progress) as bars:
            self._engine = Engine(self.config, bars, on_plan)
        self.spec = self._engine.spec
        self.plan = self._engine.plan
        self.holding = self._engine.holding
        self.held = self._engine.held
        self.device = self._engine.device
        self.fingerprint = self._engine.fingerprint
        self.tokenizer = self._engine.tokenizer
        self.step_log = self._engine.step_log
        self.load_seconds = self._engine.load_seconds
        self._numbers = itertools.count()
        # Also when the program ends or forgets the object without closing it: no thread computes into a dying process.
        self._finalizer = weakref.finalize(self, self._engine.close)

    @property
    def stats(self) -> EngineStats:
        """The engine's state as of its last turn: requests running and waiting, blocks in use."""
        return self._engine.client.stats

    @property
    def output_thread_id(self) -> int | None:
        """The operating system's number of the thread that makes text, for whoever sets its priority."""
        return self._engine.client.output_thread_id

    @property
    def num_open(self) -> int:
        """Choices, over all requests, that were taken and have not ended; at `max_open` no more are taken."""
        return self._engine.client.num_open

    @property
    def max_open(self) -> int:
        """As many as may run and wait: max_num_seqs + max_waiting."""
        return self._engine.client.max_open

    @property
    def failure(self) -> str | None:
        """Why nothing can be generated any more, if that is so: it was closed, or the engine failed."""
        return self._engine.client.closed

    def check_size(self, prompt: Prompt) -> None:
        """Raises `InvalidValueError` naming `prompt` where it cannot fit max_model_len tokens, before it costs work."""
        self._engine.admission.check_size(prompt)

    def chat_token_ids(self, messages: Messages, check_text: Callable[[str], object] | None = None) -> list[int]:
        """The prompt that a conversation becomes. Raises `PagodaError` where there is no chat template, or it fails.

        check_text: called with the text before it is tokenized; may raise.
        """
        return self._engine.admission.chat_token_ids(messages, check_text)

    def close(self) -> None:
        """End every request and release the model's memory. May be called twice."""
        self._finalizer()

    def _admit(
        self, prompt: Prompt, sampling: SamplingParams | None, priority: int = 0, cache_salt: str | None = None
    ) -> Admitted:
        request_id = f"request-{next(self._numbers)}"
        return self._engine.admission.admit(request_id, prompt, sampling, priority, cache_salt=cache_salt)


class LLM(_Loaded):
    """One model, generating for ordinary code. Thread-safe: calls from several threads share the batch.

    >>> with LLM("smollm2") as llm:
    ...     print(llm.generate("The capital of France is", SamplingParams(max_tokens=8))[0].outputs[0].text)
    """

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str | Sequence[int]],
        sampling_params: Params = None,
        *,
        errors: OnError = "raise",
        progress: bool | None = None,
        cache_salt: str | None = None,
    ) -> list[RequestOutput]:
        """Complete prompts (text or token ids), all in one batch; results are in the prompts' order.

        sampling_params: one for all, or one each. errors: with "raise" a refused prompt raises before anything is
        generated, a failed one when all are done; with "return" it is that output's `error` and the others go on.
        cache_salt: what the prefix cache has of a text is shared only among requests of the same salt.
        """
        return self._run(listed_prompts(prompts), sampling_params, errors, progress, cache_salt)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params = None,
        *,
        errors: OnError = "raise",
        progress: bool | None = None,
        cache_salt: str | None = None,
    ) -> list[RequestOutput]:
        """The next message of one conversation, or of several; a conversation is a list of {"role", "content"}."""
        return self._run(listed_conversations(messages), sampling_params, errors, progress, cache_salt)

    def score(
        self, texts: Sequence[str | Sequence[int]], *, errors: OnError = "raise", progress: bool | None = None
    ) -> list[RequestOutput]:
        """Each text's own log-probabilities, token by token, in `prompt_logprobs`; nothing is generated."""
        return self._run(listed_prompts(texts), SCORING, errors, progress)

    def stream(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
    ) -> Iterator[CompletionDelta]:
        """Deltas of one completion as they come. It begins with the first `next`, and ends when the loop is left.

        Raises there where it is refused or fails.
        """
        yield from self._stream(prompt, sampling_params, cache_salt)

    def stream_chat(
        self, messages: Messages, sampling_params: SamplingParams | None = None, *, cache_salt: str | None = None
    ) -> Iterator[CompletionDelta]:
        """Deltas of the next message of one conversation."""
        yield from self._stream(checked_conversation(messages), sampling_params, cache_salt)

    def submit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestHandle:
        """Start a request and return at once; blocks only while the engine's inbox is full.

        Raises `InvalidValueError` where it is refused. priority: lower goes first, under policy "priority".
        cache_salt: as for `generate`.
        """
        admitted = self._admit(prompt, sampling_params, priority, cache_salt)
        handle = RequestHandle(admitted.submit.request_id, self._engine.client.abort, owner=self)
        self._engine.client.submit(admitted, handle, wait=True)
        return handle

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None, cache_salt: str | None
    ) -> Iterator[CompletionDelta]:
        handle = self.submit(prompt, sampling_params, cache_salt=cache_salt)
        yield from handle
        _raised(handle.result())

    def _run(
        self,
        prompts: Sequence[Prompt],
        params: Params,
        errors: OnError,
        progress: bool | None,
        cache_salt: str | None = None,
    ) -> list[RequestOutput]:
        checks.choice("errors", errors, ("raise", "return"))
        admitted: list[Admitted | RequestOutput] = []
        for prompt, sampling in zip(prompts, params_each(params, len(prompts)), strict=True):
            try:
                admitted.append(self._admit(prompt, sampling, cache_salt=cache_salt))
            except InvalidValueError as error:
                if errors == "raise":
                    raise
                admitted.append(_refused(prompt, sampling, error))
        outputs = self._finish_all(admitted, self._progress if progress is None else progress)
        failed = next((output.error for output in outputs if output.error is not None), None)
        if failed is not None and errors == "raise":
            raise failed
        return outputs

    def _finish_all(self, admitted: Sequence[Admitted | RequestOutput], progress: bool | None) -> list[RequestOutput]:
        client = self._engine.client
        finished: SimpleQueue[RequestOutput] = SimpleQueue()
        outputs: dict[str, RequestOutput | None] = {}
        num_refused = sum(isinstance(entry, RequestOutput) for entry in admitted)
        try:
            with TerminalProgress(progress) as bars:
                for entry in admitted:
                    if isinstance(entry, Admitted):
                        outputs[entry.submit.request_id] = None
                        client.submit(entry, ResultListener(finished.put), wait=True)
                        bars("Generating", num_refused + finished.qsize(), len(admitted))
                for number in range(1, len(outputs) + 1):
                    output = finished.get()
                    outputs[output.request_id] = output
                    bars("Generating", num_refused + number, len(admitted))
        except BaseException:  # interrupted: nobody will read what is still being generated
            for request_id, output_or_none in outputs.items():
                if output_or_none is None:
                    client.abort(request_id)
            raise
        results = iter(outputs.values())
        return [
            entry if isinstance(entry, RequestOutput) else cast("RequestOutput", next(results)) for entry in admitted
        ]


class AsyncLLM(_Loaded):
    """One model, generating for asyncio code. Load it before the loop runs, or in a thread: loading blocks."""

    async def generate(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        """Complete one prompt; run several with `asyncio.gather`, they share the batch. Cancelling the task aborts it."""
        return _raised(await self.submit(prompt, sampling_params, priority=priority, cache_salt=cache_salt).result())

    async def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        """The next message of one conversation."""
        handle = self.submit(checked_conversation(messages), sampling_params, priority=priority, cache_salt=cache_salt)
        return _raised(await handle.result())

    async def score(self, text: str | Sequence[int]) -> RequestOutput:
        """The text's own log-probabilities, token by token, in `prompt_logprobs`; nothing is generated."""
        return await self.generate(text, SCORING)

    async def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> AsyncIterator[CompletionDelta]:
        """Deltas of one completion, or (for messages) of the next message of a conversation, as they come."""
        handle = self.submit(prompt, sampling_params, priority=priority, cache_salt=cache_salt)
        async for delta in handle:
            yield delta
        _raised(await handle.result())

    def submit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> AsyncHandle:
        """Start a request. Raises `InvalidValueError` where it is refused, `QueueFullError` where the inbox is full."""
        admitted = self.admit(prompt, sampling_params, priority=priority, cache_salt=cache_salt)
        handle = AsyncHandle(admitted.submit.request_id, self._engine.client.abort, owner=self)
        self.start_all([(admitted, handle)])
        return handle

    def admit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> Admitted:
        """The first half of `submit`, which tokenizes: for a long prompt, call it in a thread of its own."""
        return self._admit(prompt, sampling_params, priority, cache_salt)

    def start_all(self, requests: Sequence[tuple[Admitted, Listener]]) -> None:
        """The second half of `submit`, for several requests: all of them start or none. A listener is called in the client's
        output thread; it must not block."""
        self._engine.client.submit_all(requests)

    def after_turn(self, call: Callable[[], None]) -> None:
        """From now on, call this in the output thread when listeners have been told all that a turn of the engine brought.
        It must neither block nor raise."""
        self._engine.client.after_turn(call)

    def abort(self, request_id: str) -> None:
        """End a request now; its blocks are free within a step. One that has ended is ignored."""
        self._engine.client.abort(request_id)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def make_config(model: str, config: Mapping[str, Any]) -> EngineConfig:
    """An EngineConfig from keyword arguments. Raises `InvalidValueError` for one that does not exist."""
    known = list(EngineConfig.__dataclass_fields__)
    for name, value in config.items():
        if name not in known:
            raise InvalidValueError(name, value, f"left out: there is no such setting (there are {', '.join(known)})")
    return EngineConfig(model=model, **config)


def _refused(prompt: Prompt, sampling: SamplingParams | None, error: PagodaError) -> RequestOutput:
    text = prompt if isinstance(prompt, str) else None
    return RequestOutput("refused", text, [], sampling or SamplingParams(), [], error=error)


def _raised(output: RequestOutput) -> RequestOutput:
    if output.error is not None:
        raise output.error
    return output
