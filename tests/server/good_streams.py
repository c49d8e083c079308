"""Clients that stream all the while: whatever else is sent to the server, each of their texts is right."""

from __future__ import annotations

import threading
from types import TracebackType

from openai import OpenAI

from tests.server.process import RunningServer

COUNT = 8
MAX_TOKENS = 48


class GoodStreams:
    """Eight clients, each streaming the same greedy completion again and again until the block ends.

    `check` raises if any of them was refused, cut short or given another text than it has alone.
    """

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._prompts = [f"good stream {number} " * (1 + number % 3) for number in range(COUNT)]
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._finished = [0] * COUNT
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(COUNT)]

    def __enter__(self) -> GoodStreams:
        with self._client() as client:
            self._expected = [self._stream(client, prompt) for prompt in self._prompts]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.check()
        assert min(self._finished) >= 1

    def check(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _run(self, number: int) -> None:
        try:
            with self._client() as client:
                while True:
                    text = self._stream(client, self._prompts[number])
                    assert text == self._expected[number], (number, text, self._expected[number])
                    self._finished[number] += 1
                    if self._stop.is_set():
                        return
        except BaseException as failure:
            self._failures.append(failure)

    def _client(self) -> OpenAI:
        return OpenAI(base_url=self._server.base_url, api_key="none", max_retries=0)

    def _stream(self, client: OpenAI, prompt: str) -> str:
        chunks = list(
            client.completions.create(
                model=self._server.model,
                prompt=prompt,
                max_tokens=MAX_TOKENS,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
        )
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens == MAX_TOKENS
        return "".join(choice.text for chunk in chunks for choice in chunk.choices)
