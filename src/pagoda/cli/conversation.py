"""A conversation with one model: its history, and the next answer. No terminal here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams

if TYPE_CHECKING:
    from pagoda.engine.handle import RequestHandle
    from pagoda.llm import LLM

# One part in so many of the context is kept free for an answer whose length is not limited.
ANSWER_SHARE = 8


class Answer:
    """The next message, under way. Iterate once for its text as it comes; `text` has what was shown so far.

    handle: the request itself, for its result or to end it.
    num_dropped: exchanges left out of the prompt, oldest first, because the context is full.
    """

    def __init__(self, handle: RequestHandle, num_dropped: int) -> None:
        self.num_dropped = num_dropped
        self.text = ""
        self.handle = handle

    def __iter__(self) -> Iterator[str]:
        for delta in self.handle:
            self.text += delta.text
            yield delta.text


class Conversation:
    """What was said. `system`: instructions that stay first, whatever is dropped or reset."""

    def __init__(self, llm: LLM, system: str | None, sampling: SamplingParams) -> None:
        """Raises `PagodaError` where the model takes no such instructions, or they leave no room for a question."""
        self._llm = llm
        self._sampling = sampling
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._exchanges: list[dict[str, str]] = []
        if system is not None:
            self._check_system(system)

    @property
    def max_tokens(self) -> int | None:
        """The longest answer that was asked for; None: as long as the context allows."""
        return self._sampling.max_tokens

    @property
    def most_tokens(self) -> int:
        """What an answer could become at most."""
        return self._sampling.max_tokens or self._llm.plan.max_model_len

    def ask(self, text: str) -> Answer:
        """Start the answer to `text`. When the context is full, the oldest exchanges are dropped until an answer fits.

        Raises `InvalidValueError` where the message alone is too long, or is refused for another reason.
        """
        question = {"role": "user", "content": text}
        kept = self._exchanges
        while kept and not self._leaves_room([*self._system, *kept, question]):
            kept = kept[2:]
        while True:
            try:
                handle = self._llm.submit([*self._system, *kept, question], self._sampling)
            except InvalidValueError as error:
                # max_tokens is refused too when the prompt leaves too little room for it.
                if error.field not in ("prompt", "max_tokens", "min_tokens") or not kept:
                    raise
                kept = kept[2:]
            else:
                num_dropped = (len(self._exchanges) - len(kept)) // 2
                self._exchanges = kept
                return Answer(handle, num_dropped)

    def keep(self, question: str, answer: str) -> None:
        """Add an exchange to the history; the model sees exactly what the reader saw, if anything."""
        if not answer:
            return
        self._exchanges = [
            *self._exchanges,
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]

    def _check_system(self, system: str) -> None:
        # With a question and an answer of at least a token each.
        used = len(self._llm.chat_token_ids([*self._system, {"role": "user", "content": ""}])) + 2
        if used > (limit := self._llm.plan.max_model_len):
            raise InvalidValueError(
                "--system",
                system,
                f"shorter: with a question and an answer it has at least {used:,} tokens, the context {limit:,}",
            )

    def _leaves_room(self, messages: list[dict[str, str]]) -> bool:
        """Whether an answer of some length still fits. What the template adds is not counted: a refusal covers it."""
        limit = self._llm.plan.max_model_len
        room = self._sampling.max_tokens or limit // ANSWER_SHARE
        used = sum(len(self._llm.tokenizer.encode(message["content"])) for message in messages)
        return used + room <= limit

    def reset(self) -> None:
        self._exchanges = []
