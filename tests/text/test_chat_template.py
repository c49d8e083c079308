"""Chat templates: what they render, which messages they take, and that special tokens come once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pagoda.errors import InvalidValueError, ModelFileError
from pagoda.text.chat_template import ChatTemplate, chat_template_of, chat_token_ids
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from tests.text.tiny import byte_level_metadata, sentencepiece_metadata

CHATML = """\
{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

CHAT = [
    {"role": "system", "content": "Be brief & <kind>."},
    {"role": "user", "content": "  Grüße, 世界! "},
    {"role": "assistant", "content": "Hallo."},
    {"role": "user", "content": "What is 2 + 2?"},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "é": "<&>"}}}]

# Each uses something that templates of real models use.
TEMPLATES = {
    "chatml": CHATML,
    "tokens": "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}",
    "namespace": (
        "{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% set ns.last = ns.last ~ m.role ~ loop.index0 %}{% endfor %}{{ ns.n }}{{ ns.last }}"
    ),
    "slices": "{% set rest = messages[1:] %}{% for m in rest[::-1] %}{{ m.content[:3] }}{{ loop.last }}{% endfor %}",
    "loop controls": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
    ),
    "macro": (
        "{% macro turn(m, sep='|') %}{{ m.role.upper() }}{{ sep }}{{ caller() if caller }}{% endmacro %}"
        "{% for m in messages %}{{ turn(m) }}{% call turn(m, sep=':') %}{{ m.content }}{% endcall %}{% endfor %}"
    ),
    "methods": (
        "{% for m in messages %}{{ m.content.strip().split(' ')[-1].replace('.', '!') }}{{ m.role.startswith('u') }}"
        "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}{{ '{} {}'.format(m.role, 5) }}{% endfor %}"
    ),
    "filters": (
        "{{ messages | map(attribute='role') | join(', ') }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='content') | first }}"
        "{{ messages[0].content | upper | replace('BE', 'b') | indent(4, first=true) }}{{ '%s-%03d' | format('a', 7) }}"
        "{{ [3, 1, 2] | sort | list }}{{ {'b': 1, 'a': 2} | dictsort }}{{ missing | default('none', true) }}{{ 7 // 2 }}"
        "{{ 2 ** 5 }}{{ 7 % 4 }}{{ '%d' % 3 }}{{ 'ab' * 2 }}{{ 3.14159 | round(2) }}{{ -1 }}{{ 'x' in 'xyz' }}"
    ),
    "tests": (
        "{% for m in messages %}{{ m.content is string }}{{ m.tool_calls is defined }}{{ m is mapping }}{{ loop.index is odd }}"
        "{{ m.content is iterable }}{{ m.nothing is none }}{% endfor %}{{ tools is none }}"
    ),
    "filtered loop": (
        "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{{ loop.length }}{% else %}-{% endfor %}"
    ),
    "recursive loop": "{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
    "blocks": "{% set text %}{{ messages[0].content }}!{% endset %}{{ text }}{% filter upper %}abc{{ text }}{% endfilter %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "escapes": "{{ '<&>\"' | e }}{{ messages[0].content | escape }}{{ '<' | safe }}{{ ' x ' | trim }}{{ 'xax' | trim('x') }}",
    "joiner": "{% set j = joiner('+') %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %}",
    "cycler": "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}{{ loop.cycle(1, 2) }}{% endfor %}",
    "range": "{% for i in range(messages | length - 1, -1, -1) %}{{ messages[i].role }}{% endfor %}",
    "json": "{{ tools | tojson }}{{ tools | tojson(indent=4) }}{{ {'é': '<'} | tojson(ensure_ascii=true) }}",
    "dict": "{% set d = dict(a=1, **{'b': 2}) %}{{ d }}{{ d.get('c', 3) }}{{ d | items | list }}",
}


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_rendering_is_that_of_transformers(name: str, tools: list[dict[str, Any]] | None) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    theirs, _ = render_jinja_template(
        [CHAT],
        tools=tools,
        chat_template=TEMPLATES[name],
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
    )
    ours = ChatTemplate(TEMPLATES[name], bos_token="<s>", eos_token="</s>").render(CHAT, tools=tools)
    assert ours == theirs[0]


def test_generation_prompt_and_further_variables() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ add_generation_prompt }}{{ enable_thinking }}")
    assert template.render([{"role": "user", "content": "x"}], False, enable_thinking=True) == "xFalseTrue"


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    template = ChatTemplate("{{ messages[0].content }}")
    assert template.render([{"role": "user", "content": parts}]) == "one\ntwo"


def test_a_message_of_tool_calls_needs_no_content() -> None:
    calls = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
    template = ChatTemplate("{{ messages[0].content is defined }}{{ messages[0].tool_calls | tojson }}")
    rendered = template.render([{"role": "assistant", "content": None, "tool_calls": calls}])
    assert rendered == "False" + json.dumps(calls)


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ("hello", "messages"),
        ([], "messages"),
        ({"role": "user"}, "messages"),
        (["hello"], r"messages\[0\]"),
        ([CHAT[0], {"content": "x"}], r"messages\[1\].role"),
        ([{"role": "", "content": "x"}], r"messages\[0\].role"),
        ([{"role": 5, "content": "x"}], r"messages\[0\].role"),
        ([{"role": "user"}], r"messages\[0\].content"),
        ([{"role": "user", "content": 5}], r"messages\[0\].content"),
        ([{"role": "user", "content": "\ud800"}], r"messages\[0\].content"),
        ([{"role": "user", "content": [{"type": "image"}]}], r"messages\[0\].content\[0\]"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], r"messages\[0\].content\[0\].text"),
        ([{"role": "user", "content": "x", "extra": object()}], r"messages\[0\].extra"),
        ([{"role": "user", "content": "x", 5: 6}], r"messages\[0\] \(a key\)"),
    ],
)
def test_messages_of_another_form_are_named(messages: Any, field: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^{field}: got"):
        ChatTemplate(CHATML).render(messages)


def test_what_the_template_refuses_is_the_caller_s_mistake() -> None:
    template = ChatTemplate("{{ raise_exception('Roles must alternate.\nAlways.') }}")
    with pytest.raises(InvalidValueError, match=r"^messages: .*\(it says: Roles must alternate. Always.\)$"):
        template.render(CHAT)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for", "^chat_template: line 1: "),
        ("{{ x | shuffle }}", "^chat_template: line 1: No filter named 'shuffle'"),
        ("{{ messages.x.y }}", "^chat_template: it failed on these messages: "),
        ("{{ 1 / 0 }}", "^chat_template: it failed on these messages: ZeroDivisionError"),
        ("{% include 'secrets' %}", "^chat_template: it failed on these messages: "),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "^chat_template: it cannot be compiled: "),
    ],
)
def test_a_broken_template_is_one_sentence(source: str, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        ChatTemplate(source).render(CHAT)
    assert "\n" not in str(caught.value)


def test_a_model_without_a_template_says_so() -> None:
    with pytest.raises(InvalidValueError, match=r"^chat_template: got None, must be given as a Jinja template"):
        chat_template_of(tokenizer_from_gguf(byte_level_metadata()))


def test_the_setting_outweighs_the_model_s_template() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata(chat_template="{{ 'model' }}"))
    assert chat_template_of(tokenizer).render(CHAT) == "model"
    assert chat_template_of(tokenizer, "{{ bos_token }}{{ eos_token }}").render(CHAT) == "<s></s>"


def test_the_template_alone_says_where_special_tokens_go() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata())
    template = chat_template_of(tokenizer, "{{ messages[0].content }}{{ eos_token }}")
    ids = chat_token_ids(tokenizer, template, [{"role": "user", "content": "hi"}])
    assert [tokenizer.token_text(token_id) for token_id in ids] == [" hi", "</s>"]
