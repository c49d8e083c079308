"""Log-probabilities in the forms that clients know: legacy completions, chat, and vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pagoda.engine.outputs import PositionLogprobs, TokenLogprob
from pagoda.text.detokenizer import Detokenizer

# OpenAI's number for "very unlikely"; clients add these up, and JSON has no infinity.
LEAST = -9999.0


def number(logprob: float) -> float:
    return max(logprob, LEAST)


def chat_logprobs(positions: Iterable[PositionLogprobs], top: int) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""
    return {
        "content": [
            {**_chat_token(position.chosen), "top_logprobs": [_chat_token(token) for token in position.top[:top]]}
            for position in positions
        ],
        "refusal": None,
    }


def prompt_logprobs(positions: Sequence[PositionLogprobs | None], top: int) -> list[dict[str, Any] | None]:
    """An entry a prompt token, null for the first: token id → logprob, rank and text, of the token and the likeliest."""
    return [
        None
        if position is None
        else {
            str(token.token_id): {
                "logprob": number(token.logprob),
                "rank": token.rank,
                "decoded_token": token.token,
            }
            for token in (position.chosen, *position.top[:top])
        }
        for position in positions
    ]


class LegacyLogprobs:
    """The `logprobs` of a completion, made for stretches of one choice as they come; text_offset goes on between them.

    top: alternatives a token. detokenizer: of the text in which the offsets count characters.
    offset: where in the choice's text the first token begins.
    """

    def __init__(self, top: int, detokenizer: Detokenizer, offset: int = 0) -> None:
        self._top, self._detokenizer, self._offset = top, detokenizer, offset

    def of(self, positions: Iterable[PositionLogprobs]) -> dict[str, Any]:
        shown = empty()
        for position in positions:
            shown["tokens"].append(legacy_text(position.chosen.bytes))
            shown["token_logprobs"].append(number(position.chosen.logprob))
            shown["top_logprobs"].append(self._best(position))
            shown["text_offset"].append(self._offset)
            self._offset += len(self._detokenizer.push((position.chosen.token_id,)))
        return shown

    def first(self, token_id: int, token: bytes, hidden: bool) -> dict[str, Any]:
        """The prompt's first token, which nothing precedes. hidden: it is not part of the text (a BOS added to it)."""
        offset = self._offset
        if not hidden:
            self._offset += len(self._detokenizer.push((token_id,)))
        return {
            "tokens": [legacy_text(token)],
            "token_logprobs": [None],
            "top_logprobs": [None],
            "text_offset": [offset],
        }

    def _best(self, position: PositionLogprobs) -> dict[str, float]:
        best: dict[str, float] = {}
        for token in (*position.top[: self._top], position.chosen):
            # Two tokens may have the same text; the likelier one came first.
            best.setdefault(legacy_text(token.bytes), number(token.logprob))
        return best


def empty() -> dict[str, Any]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two stretches of legacy log-probabilities, one after the other."""
    return {name: first[name] + second[name] for name in first}


def legacy_text(token: bytes) -> str:
    """A token's text; where its bytes are no whole characters, OpenAI's `bytes:\\xe2\\x80`, so that it stays unique."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _chat_token(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": number(token.logprob), "bytes": list(token.bytes)}
