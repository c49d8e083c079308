"""SamplingParams: what one request asks of generation. Checked when made; never silently ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pagoda import checks
from pagoda.errors import InvalidValueError

MAX_N = 128
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKEN_IDS = 64
MAX_LOGPROBS = 20
MAX_LOGIT_BIAS_ENTRIES = 1024
MAX_SEED = (1 << 63) - 1

# What an unset field means when the model's generation_config says nothing about it either.
DEFAULTS: Mapping[str, float | int] = MappingProxyType(
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Parameters of one request. A field left at None takes the model's generation_config value, else `DEFAULTS`.

    temperature         0 is greedy; otherwise logits are divided by it
    top_k               keep the k most likely tokens; 0 keeps all
    top_p               keep the smallest set of most likely tokens whose probability reaches p
    min_p               drop tokens less likely than min_p times the most likely one
    presence_penalty    subtracted once from the logit of each token that the output already has
    frequency_penalty   subtracted as often as the output has the token
    repetition_penalty  divides positive and multiplies negative logits of tokens in prompt or output (arXiv:1909.05858)
    logit_bias          token id → number added to its logit
    seed                makes random choice repeatable; unset: drawn once when the request is admitted
    max_tokens          most tokens to generate; unset: as many as the context allows. 0 only with prompt_logprobs
    min_tokens          end and stop tokens cannot be chosen, nor stop strings begin, before so many tokens
    stop                strings that end the text; they are not part of it
    stop_token_ids      token ids that end the text, besides the model's own end tokens
    ignore_eos          go on past the model's end tokens
    n                   how many independent choices to generate
    logprobs            for each token its log-probability and those of so many alternatives; None: none at all
    prompt_logprobs     the same for the prompt's tokens

    Raises `InvalidValueError` naming field, value and limit.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        self._number("temperature", 0.0, 100.0)
        self._integer("top_k", 0, MAX_SEED)
        self._number("top_p", 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidValueError("top_p", self.top_p, "above 0 and at most 1")
        self._number("min_p", 0.0, 1.0)
        self._number("presence_penalty", -2.0, 2.0)
        self._number("frequency_penalty", -2.0, 2.0)
        self._number("repetition_penalty", 0.01, 100.0)
        self._integer("seed", 0, MAX_SEED)
        self._integer("max_tokens", 0, None)
        self._integer("min_tokens", 0, None)
        self._integer("n", 1, MAX_N)
        self._integer("logprobs", 0, MAX_LOGPROBS)
        self._integer("prompt_logprobs", 0, MAX_LOGPROBS)
        checks.boolean("ignore_eos", self.ignore_eos)
        self._set("stop", _stop_strings(self.stop))
        self._set("stop_token_ids", _stop_token_ids(self.stop_token_ids))
        self._set("logit_bias", _logit_bias(self.logit_bias))
        self._consistent()

    def resolved(self, generation_config: Mapping[str, object], max_tokens: int) -> SamplingParams:
        """The effective parameters: every unset field filled in, but for seed (drawn at admission) and log-probabilities.

        generation_config: the model's, in Hugging Face's names; `do_sample: false` means temperature 0.
        max_tokens: what the context leaves for this prompt; it is the default.
        """
        chosen: dict[str, object] = {}
        for name, default in DEFAULTS.items():
            if getattr(self, name) is None:
                configured = generation_config.get(name)
                chosen[name] = default if configured is None else configured
        if self.temperature is None and generation_config.get("do_sample") is False:
            chosen["temperature"] = 0.0
        if self.max_tokens is None:
            chosen["max_tokens"] = max_tokens
        return dataclasses.replace(self, **chosen)  # type: ignore[arg-type]

    def _consistent(self) -> None:
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise InvalidValueError("max_tokens", 0, "at least 1 (0 only together with prompt_logprobs)")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidValueError("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens:,})")

    def _number(self, name: str, minimum: float, maximum: float) -> None:
        if not self._is_unset(name):
            self._set(name, checks.number(name, getattr(self, name), minimum, maximum))

    def _integer(self, name: str, minimum: int, maximum: int | None) -> None:
        if not self._is_unset(name):
            self._set(name, checks.integer(name, getattr(self, name), minimum, maximum))

    def _is_unset(self, name: str) -> bool:
        return getattr(self, name) is None and self.__dataclass_fields__[name].default is None

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _stop_strings(value: object) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else value
    if strings is None:
        return ()
    if not isinstance(strings, (list, tuple)):
        raise InvalidValueError("stop", value, "a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidValueError("stop", value, f"at most {MAX_STOP_STRINGS} strings")
    for index, string in enumerate(strings):
        if not checks.text(f"stop[{index}]", string, MAX_STOP_LENGTH):
            raise InvalidValueError(f"stop[{index}]", string, "a string that is not empty")
    return tuple(strings)


def _stop_token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidValueError("stop_token_ids", value, "a list of token ids")
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise InvalidValueError("stop_token_ids", value, f"at most {MAX_STOP_TOKEN_IDS} ids")
    return tuple(checks.integer(f"stop_token_ids[{i}]", token_id, 0) for i, token_id in enumerate(value))


def _logit_bias(value: object) -> Mapping[int, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidValueError("logit_bias", value, "a mapping from token id to a number")
    if len(value) > MAX_LOGIT_BIAS_ENTRIES:
        raise InvalidValueError("logit_bias", value, f"at most {MAX_LOGIT_BIAS_ENTRIES:,} entries")
    bias: dict[int, float] = {}
    for key, number in value.items():
        # JSON has no integer keys, so digits in a string are an id as well.
        token_id = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 12 else key
        token_id = checks.integer("logit_bias (its key)", token_id, 0)
        bias[token_id] = checks.number(f"logit_bias[{token_id}]", number, -100.0, 100.0)
    return bias
