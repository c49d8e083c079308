"""The tables of fields: what each request may have. They decide; docs/api.md and the OpenAPI schema repeat them."""

from __future__ import annotations

from typing import Any

from pagoda.engine.admission import MAX_SALT_LENGTH
from pagoda.sampling_params import (
    MAX_LOGIT_BIAS_ENTRIES,
    MAX_LOGPROBS,
    MAX_N,
    MAX_SEED,
    MAX_STOP_LENGTH,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
)
from pagoda.server.openai.fields import Treatment, honoured, json_schema, only, table, without_effect

MAX_PRIORITY = 1_000_000
DEFAULT_COMPLETION_TOKENS = 16
NO_TOOLS = "tools are not supported"
TOKEN_ID: dict[str, Any] = {"type": "integer", "minimum": 0}
TOKEN_IDS: dict[str, Any] = {"type": "array", "items": TOKEN_ID}
STOP_STRING: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}


def _number(minimum: float, maximum: float) -> dict[str, Any]:
    return {"type": "number", "minimum": minimum, "maximum": maximum}


def _integer(minimum: int, maximum: int | None = None) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum} | ({} if maximum is None else {"maximum": maximum})


MODEL = honoured("model", "The model's name as `/v1/models` gives it; another one is a 404.", type="string")
PART_FIELDS = table(
    honoured("type", "What the part is: only text.", const="text"),
    honoured("text", "The part's text.", type="string"),
)
MESSAGE_FIELDS = table(
    honoured("role", "Who speaks, as the model's chat template knows it.", type="string", minLength=1),
    honoured(
        "content",
        "Text, or a list of text parts, which are joined with newlines; images, audio and files are refused.",
        anyOf=[
            {"type": "string"},
            {"type": "array", "items": json_schema(PART_FIELDS, ["type", "text"])},
        ],
    ),
    honoured("name", "The speaker's name, for chat templates that use it.", type="string"),
    only("refusal", "the model does not refuse in a field of its own"),
    only("annotations", "annotations are not supported", []),
    only("audio", "audio is not supported"),
    only("function_call", NO_TOOLS),
    only("tool_calls", NO_TOOLS, []),
    only("tool_call_id", NO_TOOLS),
)
STREAM_OPTIONS = table(
    honoured("include_usage", "One more chunk, without choices, has the usage.", type="boolean"),
    honoured("continuous_usage_stats", "With `include_usage`: every chunk has the usage so far.", type="boolean"),
    without_effect("include_obfuscation", "Chunks are never padded.", type="boolean"),
)
SAMPLING = (
    honoured("temperature", "0 to 100; 0 is greedy. Default: the model's, else 1.", **_number(0, 100)),
    honoured(
        "top_p", "Above 0, at most 1. Default: the model's, else 1.", type="number", exclusiveMinimum=0, maximum=1
    ),
    honoured("presence_penalty", "-2 to 2.", **_number(-2, 2)),
    honoured("frequency_penalty", "-2 to 2.", **_number(-2, 2)),
    honoured(
        "logit_bias",
        f"Token id → -100 to 100; at most {MAX_LOGIT_BIAS_ENTRIES:,} entries.",
        type="object",
        maxProperties=MAX_LOGIT_BIAS_ENTRIES,
        propertyNames={"pattern": "^[0-9]{1,11}$"},
        additionalProperties=_number(-100, 100),
    ),
    honoured("seed", "Repeats random choice. 0 to 2^63 - 1.", **_integer(0, MAX_SEED)),
    honoured("n", f"Choices for each prompt, 1 to {MAX_N} (`--max-n`).", **_integer(1, MAX_N)),
    honoured(
        "stop",
        f"A string, or up to {MAX_STOP_STRINGS} of them (`--max-stop-strings`), 1 to {MAX_STOP_LENGTH:,} characters each.",
        anyOf=[STOP_STRING, {"type": "array", "maxItems": MAX_STOP_STRINGS, "items": STOP_STRING}],
    ),
    honoured("stream", "Send chunks as they come, as server-sent events.", type="boolean"),
    honoured("stream_options", "Only with `stream`; see below.", type="object"),
)
EXTENSIONS = (
    honoured("top_k", "Extension. Keep the k likeliest tokens; 0 keeps all.", **_integer(0, MAX_SEED)),
    honoured("min_p", "Extension. Drop tokens below this share of the likeliest, 0 to 1.", **_number(0, 1)),
    honoured(
        "repetition_penalty",
        "Extension. 0.01 to 100; above 1 makes tokens of prompt and output rarer.",
        **_number(0.01, 100),
    ),
    honoured("ignore_eos", "Extension. Go on past the model's end tokens.", type="boolean"),
    honoured("min_tokens", "Extension. No end and no stop before so many tokens.", **_integer(0)),
    honoured(
        "stop_token_ids",
        f"Extension. Up to {MAX_STOP_TOKEN_IDS} token ids that end the text as well.",
        **{**TOKEN_IDS, "maxItems": MAX_STOP_TOKEN_IDS},
    ),
    honoured(
        "prompt_logprobs",
        f"Extension. Log-probabilities of the prompt's tokens, each with 0 to {MAX_LOGPROBS} alternatives.",
        **_integer(0, MAX_LOGPROBS),
    ),
    honoured(
        "priority",
        "Extension. Lower goes first; only under `--policy priority`.",
        **_integer(-MAX_PRIORITY, MAX_PRIORITY),
    ),
    honoured(
        "cache_salt",
        f"Extension. What is cached of a text is shared only among requests of one salt; 1 to {MAX_SALT_LENGTH} characters.",
        type="string",
        minLength=1,
        maxLength=MAX_SALT_LENGTH,
    ),
    honoured("return_parameters", "Extension. The answer has the effective `parameters`.", type="boolean"),
)
USER = without_effect("user", "Nothing is kept about users.", type="string")

COMPLETION_FIELDS = table(
    MODEL,
    honoured(
        "prompt",
        "Text, token ids, or a list of up to 128 of either (`--max-prompts`). Required.",
        anyOf=[
            {"type": "string", "minLength": 1},
            {**TOKEN_IDS, "minItems": 1},
            {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            {"type": "array", "minItems": 1, "items": {**TOKEN_IDS, "minItems": 1}},
        ],
    ),
    honoured(
        "max_tokens",
        f"Default {DEFAULT_COMPLETION_TOKENS}, or what the context has room for. 0 with `echo` or `prompt_logprobs`.",
        **_integer(0),
    ),
    honoured("echo", "The prompt comes first, with log-probabilities if `logprobs` asks for them.", type="boolean"),
    honoured("logprobs", f"So many alternatives for each token, 0 to {MAX_LOGPROBS}.", **_integer(0, MAX_LOGPROBS)),
    *SAMPLING,
    honoured("best_of", "Only the same number as `n`: choices are not ranked.", **_integer(1, MAX_N)),
    only("suffix", "inserting text before a suffix is not supported"),
    USER,
    *EXTENSIONS,
)

CHAT_FIELDS = table(
    MODEL,
    honoured("messages", "The conversation; see below. Required.", type="array", minItems=1, items={"type": "object"}),
    honoured("max_completion_tokens", "Default: what the context has room for.", **_integer(0)),
    honoured("max_tokens", "The older name of `max_completion_tokens`; both only if equal.", **_integer(0)),
    honoured("logprobs", "Log-probabilities of the answer's tokens.", type="boolean"),
    honoured(
        "top_logprobs",
        f"With `logprobs`: so many alternatives for each token, 0 to {MAX_LOGPROBS}.",
        **_integer(0, MAX_LOGPROBS),
    ),
    *SAMPLING,
    USER,
    without_effect("metadata", "Nothing is stored.", type="object"),
    only("store", "nothing is stored", False, treatment=Treatment.WITHOUT_EFFECT),
    only("service_tier", "there is one tier", "auto", "default", treatment=Treatment.WITHOUT_EFFECT),
    without_effect("safety_identifier", "Nothing is kept about users.", type="string"),
    without_effect("prompt_cache_key", "It never changes an answer.", type="string"),
    only(
        "prompt_cache_retention", "caches live in memory", "in_memory", "in-memory", treatment=Treatment.WITHOUT_EFFECT
    ),
    without_effect("parallel_tool_calls", "There are no tools to call.", type="boolean"),
    only("response_format", "structured output is not supported", {"type": "text"}),
    only("tools", NO_TOOLS, []),
    only("tool_choice", NO_TOOLS, "none", "auto"),
    only("functions", NO_TOOLS, []),
    only("function_call", NO_TOOLS, "none", "auto"),
    only("modalities", "there is only text", ["text"]),
    only("audio", "audio is not supported"),
    only("moderation", "moderation is not supported"),
    only("prediction", "predicted output is not supported"),
    only("prompt_cache_options", "caching has no options"),
    only("reasoning_effort", "the effort of reasoning cannot be set"),
    only("verbosity", "verbosity cannot be set", "medium"),
    only("web_search_options", "there is no web search"),
    only("chat_template", "the template is the operator's choice, not a client's"),
    only("chat_template_kwargs", "the template is the operator's choice, not a client's"),
    *EXTENSIONS,
)
