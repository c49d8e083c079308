"""Bodies of /v1/chat/completions: whole, and in chunks that join to the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagoda.engine.outputs import CompletionDelta, RequestOutput
from pagoda.server.generation import Generation
from pagoda.server.openai.answers import Chunks, Served, head, parameters, usage
from pagoda.server.openai.logprobs import chat_logprobs, prompt_logprobs
from pagoda.server.openai.requests import Shape


def chat_body(served: Served, shape: Shape, generation: Generation, output: RequestOutput) -> dict[str, Any]:
    choices = [
        {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": None if shape.logprobs is None else chat_logprobs(choice.logprobs or (), shape.logprobs),
            "finish_reason": choice.finish_reason,
        }
        for choice in output.outputs
    ]
    body = {
        **head("chatcmpl", "chat.completion", served),
        "choices": choices,
        "usage": usage(generation.admitted, output.usage.completion_tokens, output.num_cached_tokens),
    }
    if shape.prompt_logprobs is not None:
        body["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs or (), shape.prompt_logprobs)
    if shape.return_parameters:
        body["parameters"] = parameters(output.sampling_params)
    return body


class ChatChunks(Chunks):
    """A stream of chat choices. A choice's first chunk has the role, and no text."""

    def __init__(self, served: Served, shape: Shape, generation: Generation) -> None:
        top = head("chatcmpl", "chat.completion.chunk", served)
        super().__init__(top, generation, shape, shape.prompt_logprobs is not None)
        self._begun: set[int] = set()

    def chunks(self, arrived: Sequence[tuple[int, CompletionDelta]]) -> list[dict[str, Any]]:
        chunks = []
        for _, delta in self.ready(arrived):
            if delta.index not in self._begun:
                chunks.append(self._beginning(delta))
            content = {"content": delta.text} if delta.text else {}
            logprobs = None
            if self._shape.logprobs is not None and delta.logprobs:
                logprobs = chat_logprobs(delta.logprobs, self._shape.logprobs)
            # Text may be held back that could begin a stop string or a character: nothing to tell yet.
            if content or logprobs or delta.finish_reason:
                chunks.append(self._choice(delta.index, content, logprobs, delta.finish_reason))
        return chunks

    def _beginning(self, delta: CompletionDelta) -> dict[str, Any]:
        self._begun.add(delta.index)
        chunk = self._choice(delta.index, {"role": "assistant", "content": ""}, None, None)
        if delta.prompt_logprobs is not None and self._shape.prompt_logprobs is not None:
            chunk["prompt_logprobs"] = prompt_logprobs(delta.prompt_logprobs, self._shape.prompt_logprobs)
        return chunk

    def _choice(
        self, index: int, delta: dict[str, str], logprobs: dict[str, Any] | None, finish_reason: str | None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self.chunk([choice])
