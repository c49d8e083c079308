"""Bodies of /v1/completions: whole, and in chunks that join to the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagoda.engine.admission import Admitted
from pagoda.engine.outputs import CompletionDelta, CompletionOutput, PositionLogprobs, RequestOutput
from pagoda.server.generation import Call, Generation
from pagoda.server.openai.answers import Chunks, Served, head, parameters, usage
from pagoda.server.openai.logprobs import LegacyLogprobs, joined, prompt_logprobs
from pagoda.server.openai.requests import Shape
from pagoda.text.detokenizer import Detokenizer
from pagoda.text.tokenizer import Tokenizer

KIND = "text_completion"
Told = CompletionOutput | CompletionDelta


def completion_body(
    served: Served, tokenizer: Tokenizer, shape: Shape, generation: Generation, outputs: Sequence[RequestOutput]
) -> dict[str, Any]:
    choices = []
    for number, output in enumerate(outputs):
        for choice in output.outputs:
            writer = _Choice(tokenizer, generation.admitted[number], shape)
            index = number * generation.call.sampling.n + choice.index
            choices.append(writer.begin(index, choice, output.prompt_logprobs))
    tokens = sum(output.usage.completion_tokens for output in outputs)
    cached = sum(output.num_cached_tokens for output in outputs)
    body = {**head("cmpl", KIND, served), "choices": choices, "usage": usage(generation.admitted, tokens, cached)}
    if shape.return_parameters:
        body["parameters"] = _parameters(generation.call, generation.admitted)
    return body


class CompletionChunks(Chunks):
    """A stream of completions. Each chunk has one choice."""

    def __init__(self, served: Served, tokenizer: Tokenizer, shape: Shape, generation: Generation) -> None:
        waits = shape.prompt_logprobs is not None or (shape.echo and shape.logprobs is not None)
        super().__init__(head("cmpl", KIND, served), generation, shape, waits)
        self._tokenizer, self._call = tokenizer, generation.call
        self._writers: dict[int, _Choice] = {}
        self._prompt_logprobs: dict[int, Sequence[PositionLogprobs | None]] = {}

    def chunks(self, arrived: Sequence[tuple[int, CompletionDelta]]) -> list[dict[str, Any]]:
        chunks = []
        for number, delta in self.ready(arrived):
            if delta.prompt_logprobs is not None:
                self._prompt_logprobs[number] = delta.prompt_logprobs
            index = number * self._call.sampling.n + delta.index
            writer = self._writers.get(index)
            if writer is None:
                writer = self._writers[index] = _Choice(self._tokenizer, self._admitted[number], self._shape)
                choice = writer.begin(index, delta, self._prompt_logprobs.get(number))
            else:
                choice = writer.go_on(index, delta)
            # Text may be held back that could begin a stop string or a character: nothing to tell yet.
            if choice["text"] or choice["logprobs"] or delta.finish_reason or "prompt_logprobs" in choice:
                chunks.append(self.chunk([choice]))
        return chunks

    def parameters(self) -> Any:
        return _parameters(self._call, self._admitted)


class _Choice:
    """Writes one choice: its beginning, which may have the prompt, and what follows."""

    def __init__(self, tokenizer: Tokenizer, admitted: Admitted, shape: Shape) -> None:
        self._tokenizer, self._admitted, self._shape = tokenizer, admitted, shape
        self._legacy: LegacyLogprobs | None = None

    def begin(self, index: int, told: Told, known: Sequence[PositionLogprobs | None] | None) -> dict[str, Any]:
        """known: the prompt's log-probabilities, where they were asked for."""
        shape, echo = self._shape, self._prompt_text() if self._shape.echo else ""
        if shape.logprobs is not None:
            self._legacy = LegacyLogprobs(shape.logprobs, Detokenizer(self._tokenizer), len(echo))
        choice = self.go_on(index, told)
        choice["text"] = echo + told.text
        if shape.echo and shape.logprobs is not None:
            choice["logprobs"] = joined(self._prompt_legacy(shape.logprobs, known or ()), choice["logprobs"])
        if shape.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(known or (), shape.prompt_logprobs)
        return choice

    def go_on(self, index: int, told: Told) -> dict[str, Any]:
        legacy = None
        if self._legacy is not None:
            # The end token is among them, although it has no text: who scores a text counts on one entry a token chosen.
            end = () if told.end_logprobs is None else (told.end_logprobs,)
            legacy = self._legacy.of((*(told.logprobs or ()), *end))
        return {"index": index, "text": told.text, "logprobs": legacy, "finish_reason": told.finish_reason}

    def _prompt_text(self) -> str:
        if self._admitted.prompt is not None:
            return self._admitted.prompt
        return self._tokenizer.decode(self._admitted.submit.prompt_token_ids, skip_special_tokens=False)

    def _prompt_legacy(self, top: int, known: Sequence[PositionLogprobs | None]) -> dict[str, Any]:
        tokenizer = self._tokenizer
        first = self._admitted.submit.prompt_token_ids[0]
        data = tokenizer.token_bytes(first)
        given = self._admitted.prompt
        hidden = given is not None and first in tokenizer.special_token_ids and not given.encode().startswith(data)
        shown = Detokenizer(tokenizer, skip_special_tokens=False, continuation=False)
        legacy = LegacyLogprobs(top, shown)
        start = legacy.first(first, data, hidden)
        return joined(start, legacy.of(position for position in known if position is not None))


def _parameters(call: Call, admitted: Sequence[Admitted]) -> Any:
    """One object for one prompt, a list for a list of prompts."""
    each = [parameters(one.submit.sampling) for one in admitted]
    return each if call.several else each[0]
