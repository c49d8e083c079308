"""Admission: the door. Everything a request asks is resolved and checked here, before the engine hears of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pagoda import checks
from pagoda.core.prefix_cache import SHARED, Namespace
from pagoda.engine.messages import Submit
from pagoda.errors import InvalidValueError, ModelFileError
from pagoda.sampling.limits import check_vocabulary
from pagoda.sampling_params import DEFAULTS, MAX_SEED, SamplingParams
from pagoda.text.chat_template import ChatTemplate, chat_template_of, chat_token_ids
from pagoda.text.tokenizer import Tokenizer

MAX_SALT_LENGTH = 256

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Messages


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request as the engine takes it, and the prompt's text where it was given as text."""

    submit: Submit
    prompt: str | None


class Admission:
    """Turns what a caller wrote into what the engine runs, or raises `InvalidValueError` with field, value and limit.

    template: the chat template; None where the model has none, and chats are refused.
    policy: "fcfs" knows no priorities, so a request that has one is refused.
    max_model_len: tokens a sequence may have, as the memory plan fitted it.
    max_n, max_stop_strings: the operator's limits.
    generation_config: the model's defaults for unset sampling parameters, in Hugging Face's names.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        generation_config: Mapping[str, object],
        max_model_len: int,
        *,
        policy: str,
        max_n: int,
        max_stop_strings: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._generation_config = checked_defaults(generation_config)
        self._max_model_len = max_model_len
        self._policy = policy
        self._max_n, self._max_stop_strings = max_n, max_stop_strings
        self._end_token_ids = tokenizer.end_token_ids | _token_ids(generation_config.get("eos_token_id"))
        self._vocab_size = tokenizer.vocab_size

    def admit(
        self,
        request_id: str,
        prompt: Prompt,
        sampling: SamplingParams | None,
        priority: int = 0,
        *,
        cache_salt: str | None = None,
    ) -> Admitted:
        """prompt: text, token ids, or chat messages (dicts with role and content).

        cache_salt: K and V are shared only among requests of the same salt.
        """
        if sampling is None:
            sampling = SamplingParams()
        if not isinstance(sampling, SamplingParams):
            raise InvalidValueError("sampling_params", sampling, "a SamplingParams")
        checks.integer("priority", priority, -1_000_000, 1_000_000)
        if priority and self._policy != "priority":
            raise InvalidValueError("priority", priority, f"0 under policy {self._policy}")
        checks.integer("n", sampling.n, 1, self._max_n)
        if len(sampling.stop) > self._max_stop_strings:
            raise InvalidValueError("stop", sampling.stop, f"at most {self._max_stop_strings} strings")
        # Room for at least one token more, unless the prompt is only to be scored.
        longest = self._max_model_len - (0 if sampling.max_tokens == 0 else 1)
        token_ids = self._prompt_token_ids(prompt, longest)
        room = self._max_model_len - len(token_ids)
        for field, asked in (("max_tokens", sampling.max_tokens), ("min_tokens", sampling.min_tokens)):
            if asked is not None and asked > room:
                limit = (
                    f"at most {room:,} (max_model_len {self._max_model_len:,} less {len(token_ids):,} prompt tokens)"
                )
                raise InvalidValueError(field, asked, limit)
        # An unset seed is drawn here, once, so that whoever reads the effective parameters can repeat the result.
        seed = secrets.randbelow(MAX_SEED) if sampling.seed is None else sampling.seed
        most = self._generation_config.get("max_new_tokens")
        by_default = room if most is None else min(room, cast("int", most))
        effective = replace(sampling.resolved(self._generation_config, by_default), seed=seed)
        check_vocabulary(effective, self._vocab_size)
        submit = Submit(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=effective,
            seed=seed,
            end_token_ids=frozenset() if effective.ignore_eos else self._end_token_ids,
            priority=priority,
            arrival_time=time.monotonic(),
            namespace=SHARED if cache_salt is None else Namespace(salt=_salt(cache_salt)),
        )
        return Admitted(submit, prompt if isinstance(prompt, str) else None)

    def _prompt_token_ids(self, prompt: Prompt, longest: int) -> tuple[int, ...]:
        """At least one token and at most `longest`."""
        if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
            raise InvalidValueError("prompt", prompt, "text, a list of token ids, or a list of messages")
        self.check_size(prompt, longest)
        if isinstance(prompt, str):
            token_ids = self._tokenizer.encode(checks.text("prompt", prompt))
        elif prompt and isinstance(prompt[0], Mapping):
            token_ids = self.chat_token_ids(cast("Messages", prompt), lambda text: self.check_size(text, longest))
        else:
            most = self._vocab_size - 1
            token_ids = [checks.integer(f"prompt[{i}]", token_id, 0, most) for i, token_id in enumerate(prompt)]
        if not token_ids:
            raise InvalidValueError("prompt", prompt, "at least one token long")
        self._check_length(prompt, len(token_ids), longest)
        return tuple(token_ids)

    def check_size(self, prompt: Prompt, longest: int | None = None) -> None:
        """Raises `InvalidValueError` for what cannot be so few tokens as `longest`, before it costs work.

        Text is judged by its characters, token ids and messages by their number. longest: unset, max_model_len.
        """
        longest = self._max_model_len if longest is None else longest
        context = f"(max_model_len is {self._max_model_len:,})"
        if isinstance(prompt, str):
            most = longest * self._tokenizer.longest_piece
            if len(prompt) > most:
                limit = f"at most {most:,} characters long, which {longest:,} tokens can be at most {context}"
                raise InvalidValueError("prompt", prompt, limit)
        elif prompt and isinstance(prompt[0], Mapping):
            if len(prompt) > longest:
                limit = f"at most {longest:,} messages, each being a token or more {context}"
                raise InvalidValueError("prompt", prompt, limit)
        else:
            self._check_length(prompt, len(prompt), longest)

    def chat_token_ids(self, messages: Messages, check_text: Callable[[str], object] | None = None) -> list[int]:
        """A conversation as the chat template writes it. Raises `PagodaError`. check_text: sees the text first, may raise."""
        # Without a template this raises the error that says so, anew for each caller.
        template = self._template or chat_template_of(self._tokenizer)
        return chat_token_ids(self._tokenizer, template, messages, check_text=check_text)

    def _check_length(self, prompt: Prompt, num_tokens: int, longest: int) -> None:
        if num_tokens > longest:
            limit = f"at most {longest:,} tokens long (max_model_len is {self._max_model_len:,}); it has {num_tokens:,}"
            raise InvalidValueError("prompt", prompt, limit)


def checked_defaults(generation_config: Mapping[str, object]) -> dict[str, object]:
    """The part of a generation_config that sampling uses, checked as if a caller had given it.

    Raises `ModelFileError` naming file and field, so a bad file is found when it is opened.
    """
    used = {name: generation_config[name] for name in DEFAULTS if generation_config.get(name) is not None}
    try:
        SamplingParams(**used)  # type: ignore[arg-type]
        if generation_config.get("max_new_tokens") is not None:
            used["max_new_tokens"] = checks.integer("max_new_tokens", generation_config["max_new_tokens"], 1)
    except InvalidValueError as error:
        remedy = 'the setting generation_config "none" leaves the file\'s values out'
        raise ModelFileError(f"generation_config.json: {error}; {remedy}") from None
    if "do_sample" in generation_config:
        used["do_sample"] = generation_config["do_sample"]
    return used


def _salt(value: object) -> str:
    salt = checks.text("cache_salt", value, MAX_SALT_LENGTH)
    if not salt:
        raise InvalidValueError("cache_salt", value, "at least one character long")
    return salt


def _token_ids(value: object) -> frozenset[int]:
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if isinstance(item, int) and not isinstance(item, bool))
