"""From the engine's token events to what a caller sees: text, stop strings, log-probabilities, the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.core.step import TokenEvent, TokenLogprobs
from pagoda.engine.admission import Admitted
from pagoda.engine.outputs import CompletionDelta, CompletionOutput, PositionLogprobs, RequestOutput, TokenLogprob
from pagoda.errors import InvariantError, PagodaError, RequestFailedError
from pagoda.sampling_params import SamplingParams
from pagoda.text.detokenizer import Detokenizer
from pagoda.text.stop_strings import StopStrings
from pagoda.text.tokenizer import Tokenizer


class RequestAssembler:
    """Collects one request's events. The same text comes out whether deltas are read or only the final output is."""

    def __init__(self, admitted: Admitted, tokenizer: Tokenizer) -> None:
        submit = admitted.submit
        self._tokenizer = tokenizer
        self._prompt_logprobs_told = submit.sampling.prompt_logprobs is None
        # The automaton is built once; each choice has its own place in it.
        stops = StopStrings(submit.sampling.stop)
        self._choices = [
            _ChoiceAssembler(submit.request_id, index, tokenizer, submit.sampling, stops.fresh())
            for index in range(submit.sampling.n)
        ]
        self.output = RequestOutput(
            request_id=submit.request_id,
            prompt=admitted.prompt,
            prompt_token_ids=list(submit.prompt_token_ids),
            sampling_params=submit.sampling,
            outputs=[choice.output for choice in self._choices],
            prompt_logprobs=[None] if submit.sampling.prompt_logprobs is not None else None,
        )

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    @property
    def finished(self) -> bool:
        return all(choice.output.finish_reason is not None for choice in self._choices)

    def take(self, event: TokenEvent) -> CompletionDelta | None:
        """What the event adds to its choice, if anything that can be shown yet."""
        choice = event.key.choice
        if choice == 0 and self.output.prompt_logprobs is not None:
            self.output.prompt_logprobs += _positions(event.prompt_logprobs, self._tokenizer)
        if choice == 0 and event.index == 0:
            self.output.num_cached_tokens = event.num_cached_tokens
        if event.error is not None and self.output.error is None:
            self.output.error = RequestFailedError(event.error)
        delta = self._choices[choice].take(event)
        if delta is None or choice != 0 or self._prompt_logprobs_told:
            return delta
        # The prompt is computed before its first token is chosen, so they are complete by now.
        self._prompt_logprobs_told = True
        return replace(delta, prompt_logprobs=tuple(self.output.prompt_logprobs or ()))

    def fail(self, error: PagodaError) -> None:
        """End every choice that is still open with an error."""
        self.output.error = self.output.error or error
        for choice in self.output.outputs:
            choice.finish_reason = choice.finish_reason or "error"


@dataclass(frozen=True, slots=True)
class _Token:
    """A token, its log-probabilities if they are wanted, and how many characters of text came before its own."""

    token_id: int
    logprobs: PositionLogprobs | None
    text_before: int


class _ChoiceAssembler:
    """Tokens are handed out with the text, but for those behind what may yet turn out to be a stop string's end."""

    def __init__(
        self, request_id: str, index: int, tokenizer: Tokenizer, sampling: SamplingParams, stops: StopStrings
    ) -> None:
        self.output = CompletionOutput(index, logprobs=None if sampling.logprobs is None else [])
        self._request_id = request_id
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = stops
        self._num_taken = 0
        self._text_taken = 0
        self._held: deque[_Token] = deque()

    def take(self, event: TokenEvent) -> CompletionDelta | None:
        output = self.output
        if output.finish_reason is not None:  # computed past a stop string: neither shown nor counted
            return None
        if event.index > self._num_taken:
            raise InvariantError(f"tokens {self._num_taken} to {event.index - 1} of {event.key} never came")
        text = ""
        # Events may be sent again after a reconnection: take only what is new.
        for place in range(self._num_taken - event.index, len(event.token_ids)):
            entry = _position(event.logprobs[place], self._tokenizer) if event.logprobs else None
            text += self._take_token(event.token_ids[place], entry)
            if output.finish_reason is not None:
                break
        if event.finish_reason is not None and output.finish_reason is None:
            text += self._finish(event)
        released = self._release()
        output.text += text
        output.token_ids += [token.token_id for token in released]
        logprobs = tuple(token.logprobs for token in released if token.logprobs is not None)
        if output.logprobs is not None:
            output.logprobs += logprobs
        if not text and not released and output.finish_reason is None:
            return None
        return CompletionDelta(
            self._request_id,
            output.index,
            text,
            tuple(token.token_id for token in released),
            logprobs,
            output.finish_reason,
            output.stop_reason,
            output.end_logprobs,
            num_cached_tokens=event.num_cached_tokens,
        )

    def _take_token(self, token_id: int, logprobs: PositionLogprobs | None) -> str:
        self._num_taken += 1
        self._held.append(_Token(token_id, logprobs, self._text_taken))
        text = self._detokenizer.push([token_id])
        self._text_taken += len(text)
        return self._show(text)

    def _release(self) -> list[_Token]:
        """The tokens that are certain to come before the end of a stop string, if there is to be one."""
        end = self._stops.end
        released: list[_Token] = []
        while self._held and (end is None or self._held[0].text_before < end):
            released.append(self._held.popleft())
        return released

    def _show(self, text: str) -> str:
        # Before min_tokens a stop string is ordinary text, and so is one that begins there.
        return self._unless_stopped(*self._stops.push(text, active=self._num_taken > self._sampling.min_tokens))

    def _finish(self, event: TokenEvent) -> str:
        shown = self._show(self._detokenizer.finish())
        if self.output.finish_reason is None:
            shown += self._unless_stopped(*self._stops.finish())
        if self.output.finish_reason is None:
            self.output.finish_reason = event.finish_reason
            if event.stop_token_id is not None and event.logprobs:
                self.output.end_logprobs = _position(event.logprobs[-1], self._tokenizer)
            if event.stop_token_id in self._sampling.stop_token_ids:
                self.output.stop_reason = event.stop_token_id
        return shown

    def _unless_stopped(self, shown: str, found: str | None) -> str:
        if found is not None:
            self.output.finish_reason, self.output.stop_reason = "stop", found
        return shown


def _positions(logprobs: Sequence[TokenLogprobs], tokenizer: Tokenizer) -> list[PositionLogprobs]:
    return [_position(entry, tokenizer) for entry in logprobs]


def _position(entry: TokenLogprobs, tokenizer: Tokenizer) -> PositionLogprobs:
    chosen, *top = (
        TokenLogprob(token_id, tokenizer.token_text(token_id), tokenizer.token_bytes(token_id), logprob, rank)
        for token_id, logprob, rank in zip(entry.token_ids, entry.logprobs, entry.ranks, strict=True)
    )
    return PositionLogprobs(chosen, tuple(top))
