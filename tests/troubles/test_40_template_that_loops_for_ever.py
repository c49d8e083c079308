"""Trouble 40: a chat template that loops for ever or fills the memory. Right: a sandbox, and a budget.

That this file ends, in an ordinary time and an ordinary memory, is half of what it tests.
"""

from __future__ import annotations

import pytest

from pagoda.errors import ModelFileError
from pagoda.text.chat_template import ChatTemplate
from pagoda.text.template_budget import TemplateBudget, TemplateBudgetError
from pagoda.text.template_filters import BUDGET
from pagoda.text.template_sandbox import TemplateEnvironment

CHAT = [{"role": "user", "content": "hi"}]
DOUBLING = "{% set ns = namespace(v=START) %}{% for i in range(60) %}{% set ns.v = NEXT %}{% endfor %}"
LONG = "{% set s = 'a' * 1000000 %}"


def doubling(start: str, after: str, use: str) -> str:
    return DOUBLING.replace("START", start).replace("NEXT", after) + use


HOSTILE = {
    "huge range": "{% for i in range(10**9) %}{% endfor %}",
    "huge range, unused": "{{ range(10**15) | length }}",
    "nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "nested loops that select nothing": "{% for i in range(9999) %}{% for j in range(9999) if j < 0 %}{% endfor %}{% endfor %}",
    "nested loops over text": LONG + "{% for c in s %}{% for d in s %}{% endfor %}{% endfor %}",
    "recursive loop": "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "macro calling itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
    ),
    "macro calling itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "much text in a loop": "{% for i in range(90000) %}" + "x" * 50_000 + "{% endfor %}",
    "much text in a macro": "{% macro f() %}"
    + "x" * 50000
    + "{% endmacro %}{% for i in range(9000) %}{{ f() }}{% endfor %}",
    "string multiplication": "{{ 'a' * 10**12 }}",
    "multiplied from the left": "{{ 10**12 * 'a' }}",
    "list multiplication": "{{ [1] * 10**10 }}",
    "huge power": "{{ 10 ** (10 ** 10) }}",
    "growing numbers": doubling("9", "ns.v * ns.v", "{{ ns.v }}"),
    "doubling by ~": doubling("'ab'", "ns.v ~ ns.v", ""),
    "doubling by +": doubling("'ab'", "ns.v + ns.v", ""),
    "doubling by a list": doubling("[1]", "ns.v + ns.v", ""),
    "doubling by a block": (
        "{% set ns = namespace(v='ab') %}{% for i in range(60) %}{% set v %}{{ ns.v }}{{ ns.v }}{% endset %}"
        "{% set ns.v = v %}{% endfor %}"
    ),
    "doubling by join": doubling("'ab'", "[ns.v, ns.v] | join", ""),
    "doubling by replace": doubling("'ab'", "ns.v.replace('a', 'aa')", ""),
    "doubling by format": doubling("'ab'", "'{0}{0}'.format(ns.v)", ""),
    "shared lists, printed": doubling("[1]", "[ns.v, ns.v]", "{{ ns.v }}"),
    "shared lists, as JSON": doubling("[1]", "[ns.v, ns.v]", "{{ ns.v | tojson }}"),
    "shared lists, compared": doubling("[1]", "[ns.v, ns.v]", "{{ ns.v == [[ns.v], 1] }}"),
    "shared lists, joined to a text": doubling("[1]", "[ns.v, ns.v]", "{{ 'x' ~ ns.v }}"),
    "shared lists, formatted": doubling("[1]", "[ns.v, ns.v]", "{{ '%s' % ns.v }}{{ '%s' % [ns.v] }}"),
    "shared tuples, as a key": doubling("(1,)", "(ns.v, ns.v)", "{{ {ns.v: 1} }}"),
    "deep nesting": (
        "{% set ns = namespace(v=1) %}{% for i in range(5000) %}{% set ns.v = (ns.v,) %}{% endfor %}{{ ns.v in {} }}"
    ),
    "format width": "{{ '%1000000000d' % 1 }}",
    "format width from a value": "{{ '%*d' % (1000000000, 1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "str.format width": "{{ '{:1000000000}'.format(1) }}",
    "str.format width from a value": "{{ '{:{}}'.format(1, 1000000000) }}",
    "padding method": "{{ 'x'.ljust(10**10) }}",
    "padding filter": "{{ 'x' | center(10**10) }}",
    "indent": "{{ 'x' | indent(10**10, true) }}",
    "indent by a text": LONG + "{{ ('x\n' * 1000) | indent(s) }}",
    "JSON indent": "{{ [1] | tojson(indent=10**10) }}",
    "rounding": "{{ 3 | round(10**9, 'ceil') }}",
    "replace": LONG + "{{ s.replace('', s) }}",
    "replace filter": LONG + "{{ s | replace('a', s) }}",
    "join": LONG + "{{ s.join(s) }}",
    "splitting again and again": LONG + "{% for i in range(9999) %}{% set x = s.split('a') %}{% endfor %}",
    "slicing again and again": LONG + "{% for i in range(9999) %}{% set x = s[1:] %}{% endfor %}",
    "upper again and again": LONG + "{% for i in range(9999) %}{% set x = s.upper() %}{% endfor %}",
    "searching again and again": LONG + "{% for i in range(9999) %}{% set x = 'b' in s %}{% endfor %}",
    "searching backwards": LONG + "{{ s.rfind('b' ~ s[:500000]) }}",
    "splitting backwards": LONG + "{{ s.rsplit('b' ~ s[:500000]) }}",
    "stripping": LONG + "{{ s.strip('bcdefghijklmnop' * 10000 ~ 'a') }}",
    "trimming": LONG + "{{ s | trim('bcdefghijklmnop' * 10000 ~ 'a') }}",
    "lazy filters": "{% for i in range(9999) %}{{ range(9999) | map('string') | select('none') | list }}{% endfor %}",
    "lorem ipsum": "{{ lipsum(n=10**9) }}",
    "bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "a long source": "{{ 1 }}" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises((ModelFileError, ValueError), match=r"^chat_template: ") as caught:
        ChatTemplate(HOSTILE[name]).render(CHAT)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_budget_counts_work_and_not_time() -> None:
    def counting(steps: int) -> bool:
        """Whether a budget of so many steps is enough for a loop of 100 turns."""
        budget = TemplateBudget(steps, 10_000)
        template = TemplateEnvironment().compile_metered("{% for i in range(100) %}x{{ i }}{% endfor %}")
        try:
            return "".join(template.generate({BUDGET: budget})).startswith("x0x1")
        except TemplateBudgetError:
            return False

    enough = next(steps for steps in range(100, 10_000, 10) if counting(steps))
    assert [counting(steps) for steps in (enough - 10, enough, enough - 10, enough)] == [False, True, False, True]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__.os }}",
        "{{ range.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__.x}'.format(1) }}",
        "{{ '{m.__class__}'.format_map({'m': 1}) }}",
        "{{ (messages | map('attr', '__class__') | list)[0].mro() }}",
        "{% autoescape true %}{{ 1 }}{% endautoescape %}",
        "{{ ('{0.__class__.__mro__.x}' | safe).format(1) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    ],
)
def test_nothing_but_the_messages_can_be_reached(source: str) -> None:
    with pytest.raises(ModelFileError, match=r"^chat_template: "):
        ChatTemplate(source).render(CHAT)
    assert CHAT == [{"role": "user", "content": "hi"}]


def test_a_long_conversation_is_within_the_budget() -> None:
    source = (
        "{% set ns = namespace(last=0, text='') %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if loop.index0 <= ns.last %}"
        "{{ '<|' ~ m.role ~ '|>' + m.content.split('</think>')[-1].strip() | replace('\t', ' ') }}{% endif %}{% endfor %}"
    )
    chat = [{"role": ("user", "assistant")[i % 2], "content": "word " * 1000} for i in range(1001)]
    assert len(ChatTemplate(source).render(chat)) > 5_000_000
