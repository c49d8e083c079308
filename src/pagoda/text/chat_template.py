"""Chat templates: messages in, the model's prompt out. The template is the model's own Jinja program, run in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError, ModelFileError, PagodaError, shown
from pagoda.text.template_budget import MAX_DEPTH, MAX_SOURCE_CHARACTERS, TemplateBudget
from pagoda.text.tokenizer import Tokenizer


class ChatTemplate:
    """One template, compiled when first used. Safe to use from several threads.

    Rendering has a budget of steps and characters in proportion to the input, so that no template can run for ever or
    fill the memory, and no access to anything but the messages. It means what it means in `transformers`
    (trim_blocks, lstrip_blocks, break and continue, raise_exception, strftime_now, tojson).
    """

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        self._source = checks.text("chat_template", source, MAX_SOURCE_CHARACTERS)
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt.

        messages: each with a role and a content, which is a string or a list of text parts ({"type": "text", "text": …},
            joined with newlines). Other keys reach the template as they are; those that are None do not.
        kwargs: further variables of the template, such as `enable_thinking`. Plain data only.

        Raises `InvalidValueError` for messages of another form, and where the template itself refuses them;
        `ModelFileError` for a template that is broken or exceeds its budget.
        """
        from jinja2.exceptions import TemplateError

        from pagoda.text.template_filters import BUDGET, TemplateRejectionError

        plain_messages = checked_messages(messages)
        plain_tools = None if tools is None else _plain("tools", list(tools))
        variables = {
            **{name: _plain(name, value) for name, value in kwargs.items()},
            **self._tokens,
            "messages": plain_messages,
            "tools": plain_tools,
            "add_generation_prompt": add_generation_prompt,
        }
        num_items = len(plain_messages) + len(plain_tools or ())
        budget = TemplateBudget.for_input([variables, list(self._tokens.values())], num_items)
        try:
            return "".join(self._template.generate({**variables, BUDGET: budget}))
        except TemplateRejectionError as error:
            limit = f"what the model's chat template accepts (it says: {_one_line(error)})"
            raise InvalidValueError("messages", messages, limit) from None
        except PagodaError:
            raise
        except TemplateError as error:
            raise ModelFileError(f"chat_template: it failed on these messages: {_one_line(error)}") from None
        # A template is a program: what it does wrong surfaces as any of Python's errors.
        except Exception as error:
            reason = f"{type(error).__name__}: {_one_line(error)}"
            raise ModelFileError(f"chat_template: it failed on these messages: {reason}") from None

    @cached_property
    def _template(self) -> Any:
        from jinja2.exceptions import TemplateSyntaxError

        from pagoda.text.template_sandbox import TemplateEnvironment

        try:
            return TemplateEnvironment().compile_metered(self._source)
        except TemplateSyntaxError as error:
            raise ModelFileError(f"chat_template: line {error.lineno}: {_one_line(error.message)}") from None
        except (SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
            raise ModelFileError(f"chat_template: it cannot be compiled: {_one_line(error)}") from None


def chat_template_of(tokenizer: Tokenizer, chat_template: str | None = None) -> ChatTemplate:
    """The template to use: `chat_template` (the setting) if given, else the model's. Raises `InvalidValueError`."""
    source = tokenizer.chat_template if chat_template is None else chat_template
    if source is None:
        raise InvalidValueError("chat_template", None, "given as a Jinja template, as this model has none of its own")
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    return ChatTemplate(
        source,
        bos_token="" if bos is None else tokenizer.token_text(bos),
        eos_token="" if eos is None else tokenizer.token_text(eos),
    )


def chat_token_ids(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    check_text: Callable[[str], object] | None = None,
    **kwargs: Any,
) -> list[int]:
    """The prompt as token ids. The template says where special tokens go: as in `transformers`, the tokenizer adds none.

    A BOS that the template writes twice at the head (its own, and one in the first message) is one.
    check_text: called with the text before it is tokenized; may raise.
    """
    text = template.render(messages, add_generation_prompt, tools, **kwargs)
    if check_text is not None:
        check_text(text)
    ids = tokenizer.encode(text, add_special_tokens=False)
    while len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        del ids[0]
    return ids


def checked_messages(messages: object) -> list[dict[str, Any]]:
    """The messages as plain data, with text parts joined. Raises `InvalidValueError` naming e.g. messages[2].role."""
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidValueError("messages", messages, "a list of messages")
    if not messages:
        raise InvalidValueError("messages", messages, "a list of at least one message")
    return [_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _message(field: str, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidValueError(field, message, "an object with role and content")
    if not checks.text(f"{field}.role", message.get("role")):
        raise InvalidValueError(f"{field}.role", message.get("role"), "a string that is not empty")
    plain: dict[str, Any] = _plain(field, {key: value for key, value in message.items() if value is not None})
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return plain
    plain["content"] = _content(f"{field}.content", content)
    return plain


def _content(field: str, content: object) -> str:
    if not isinstance(content, (list, tuple)):
        if not isinstance(content, str):
            raise InvalidValueError(field, content, "a string or a list of text parts")
        return checks.text(field, content)
    texts = []
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise InvalidValueError(f"{field}[{index}]", part, 'a text part: {"type": "text", "text": …}')
        texts.append(checks.text(f"{field}[{index}].text", part.get("text")))
    return "\n".join(texts)


def _plain(field: str, value: object, depth: int = 0) -> Any:
    """JSON's types only, rebuilt: a template must not get hold of an object with methods."""
    if depth > MAX_DEPTH // 2:
        raise InvalidValueError(field, value, f"nested at most {MAX_DEPTH // 2} deep")
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return checks.text(field, str.__str__(value))
    if isinstance(value, Mapping):
        return {_key(field, key): _plain(f"{field}.{key}", item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(f"{field}[{index}]", item, depth + 1) for index, item in enumerate(value)]
    raise InvalidValueError(field, value, "plain data: text, numbers, true, false, lists and objects")


def _key(field: str, key: object) -> str:
    if not isinstance(key, str):
        raise InvalidValueError(f"{field} (a key)", key, "a string")
    return str.__str__(key)


def _one_line(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else shown(text, 200)
