"""The shapes of OpenAI's answers, for the OpenAPI schema. Answers are written as plain dicts; a test holds them to these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length"]
PromptLogprobs = list[dict[str, "PromptToken"] | None]


class Shown(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorInfo(Shown):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Shown):
    error: ErrorInfo


class PromptTokensDetails(Shown):
    cached_tokens: int = Field(description="Of the prompts' tokens, those that were in the prefix cache.")


class UsageInfo(Shown):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class PromptToken(Shown):
    logprob: float
    rank: int
    decoded_token: str


class CompletionLogprobs(Shown):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Shown):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    prompt_logprobs: PromptLogprobs = Field(default=[], description="Only where asked for.")


class Completion(Shown):
    """An answer of /v1/completions; a chunk of a stream is the same with one choice, and usage only where asked for."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: UsageInfo | None = None
    parameters: dict[str, Any] | list[dict[str, Any]] = Field(
        default={}, description="With return_parameters: the effective ones; a list where prompt was a list of prompts."
    )


class ChatToken(Shown):
    token: str
    logprob: float
    bytes: list[int]


class ChatPosition(ChatToken):
    top_logprobs: list[ChatToken]


class ChatLogprobs(Shown):
    content: list[ChatPosition]
    refusal: None


class ChatMessage(Shown):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Shown):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatAnswer(Shown):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: UsageInfo
    prompt_logprobs: PromptLogprobs = Field(default=[], description="Only where asked for.")
    parameters: dict[str, Any] = Field(default={}, description="With return_parameters: the effective ones.")


class ChatDelta(Shown):
    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChatChunkChoice(Shown):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunk(Shown):
    """A chunk of a streamed chat."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: UsageInfo | None = None
    prompt_logprobs: PromptLogprobs = []
    parameters: dict[str, Any] = {}


class ModelCard(Shown):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["pagoda"] = "pagoda"
    max_model_len: int = Field(description="Longest sequence, prompt and output, in tokens.")


class ModelList(Shown):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Tokens(Shown):
    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizedText(Shown):
    prompt: str
