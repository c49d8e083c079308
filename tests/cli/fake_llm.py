"""An LLM that echoes its prompt backwards: what the command line needs of `pagoda.llm.LLM`, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from pagoda.config import EngineConfig
from pagoda.engine.outputs import CompletionDelta, CompletionOutput, RequestOutput
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.sampling_params import SamplingParams


class FakeHandle:
    """Finished after `wait` looks at it, so that several are under way at once."""

    def __init__(self, output: RequestOutput, wait: int = 0) -> None:
        self._output, self._wait = output, wait
        self.cancelled = False

    def done(self) -> bool:
        self._wait -= 1
        return self._wait < 0

    def result(self, timeout: float | None = None) -> RequestOutput:
        if timeout is not None and self._wait > 0:
            raise TimeoutError
        return self._output

    def cancel(self) -> None:
        self.cancelled = True

    def __iter__(self) -> Iterator[CompletionDelta]:
        for character in self._output.outputs[0].text:
            yield CompletionDelta("fake", 0, character, (ord(character),))


class FakeLLM:
    """One character is one token. `broken`: prompts whose request ends with this error. `context`: most tokens of a prompt."""

    def __init__(self, context: int = 100, broken: dict[str, PagodaError] | None = None, **config: Any) -> None:
        self.config = EngineConfig(**config)
        self.plan = SimpleNamespace(max_model_len=context)
        self.tokenizer = SimpleNamespace(encode=list)
        self.prompts: list[Any] = []
        self.priorities: list[int] = []
        self.cache_salts: list[str | None] = []
        self.most_in_flight = 0
        self._context, self._broken = context, broken or {}
        self._handles: list[FakeHandle] = []

    def chat_token_ids(self, messages: list[Any]) -> list[int]:
        return [ord(character) for part in _parts(messages) for character in part]

    def submit(
        self,
        prompt: Any,
        sampling: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> FakeHandle:
        text = prompt if isinstance(prompt, str) else "".join(str(part) for part in _parts(prompt))
        if len(text) > self._context:
            raise InvalidValueError("prompt", text, f"at most {self._context} tokens long")
        self.prompts.append(prompt)
        self.priorities.append(priority)
        self.cache_salts.append(cache_salt)
        params = sampling or SamplingParams()
        choices = [CompletionOutput(i, text[::-1], [ord(c) for c in text[::-1]], None, "stop") for i in range(params.n)]
        output = RequestOutput("fake", text, list(range(len(text))), params, choices, error=self._broken.get(text))
        # Unequal lengths, so that requests finish in another order than they came.
        handle = FakeHandle(output, wait=len(self.prompts) * 7 % 5)
        self._handles = [entry for entry in self._handles if entry._wait >= 0] + [handle]
        self.most_in_flight = max(self.most_in_flight, len(self._handles))
        return handle


def _parts(prompt: list[Any]) -> list[Any]:
    return [part["content"] if isinstance(part, dict) else part for part in prompt]
