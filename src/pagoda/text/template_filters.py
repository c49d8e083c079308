"""The filters, tests, operators and functions of chat templates, each paying from the rendering's budget.

Names and meanings are Jinja's and those that `transformers` adds; left out is what can make much out of little and no
chat template needs (center, batch, slice, wordwrap, lipsum, random, …).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import filters, pass_context, tests
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Context
from jinja2.utils import Cycler, Joiner, Namespace
from markupsafe import escape

from pagoda.text.template_budget import MAX_INTEGER_BITS, TemplateBudget, TemplateBudgetError

# No template can name this variable, so none can replace it.
BUDGET = " budget"

_PLAIN_FILTERS = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "first", "float",
    "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse",
    "select", "selectattr", "sort", "string", "title", "truncate", "unique", "upper", "urlencode",
    "wordcount",
)  # fmt: skip
_SPREADING = ("list", "sort", "groupby")
_WIDE_FORMAT = re.compile(r"\*|\d{4,}")


class TemplateRejectionError(TemplateRuntimeError):
    """The template itself refuses the messages (`raise_exception`)."""


class TemplateNamespace(Namespace):
    """Jinja's, but printed without its contents: two of them may contain each other."""

    def __repr__(self) -> str:
        return "<Namespace>"


def budget_of(context: Context) -> TemplateBudget:
    budget: TemplateBudget = context.parent[BUDGET]
    return budget


def metered(function: Callable[..., Any], spreads: bool = False) -> Callable[..., Any]:
    """The filter or test with its arguments and its result paid for. Lazy results pay as they are drawn.

    spreads: it makes a list of a string's characters.
    """
    kind = getattr(function, "jinja_pass_arg", None)

    @pass_context
    def run(context: Context, *args: Any, **kwargs: Any) -> Any:
        budget = budget_of(context)
        budget.charge(5)
        for value in (*args, *kwargs.values()):
            budget.measure(value)
        if spreads and args and isinstance(args[0], str):
            budget.charge(len(args[0]))
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        result = function(*([first[kind.name]] if kind else []), *args, **kwargs)
        if hasattr(result, "__next__"):
            return budget.counted(result)
        budget.measure(result)
        return result

    return run


@pass_context
def replace_text(context: Context, s: Any, old: Any, new: Any, count: Any = None) -> str:
    return replaced(budget_of(context), str(s), str(old), str(new), -1 if count is None else int(count))


def replaced(budget: TemplateBudget, text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old)
    budget.charge(1, len(text) + len(new) * (found if count < 0 else min(found, count)))
    return text.replace(old, new, count)


@pass_context
def join_text(context: Context, values: Any, d: Any = "", attribute: Any = None) -> str:
    budget = budget_of(context)
    if attribute is not None:
        values = map(filters.make_attrgetter(context.environment, attribute), values)
    return joined(budget, values, str(d))


def joined(budget: TemplateBudget, values: Any, separator: str) -> str:
    parts = []
    for value in values:
        budget.measure(value)
        budget.charge(1, len(separator))
        parts.append(str(value))
    return separator.join(parts)


@pass_context
def concatenate(context: Context, values: list[Any]) -> str:
    """The `~` operator."""
    return joined(budget_of(context), values, "")


@pass_context
def indent_text(context: Context, s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> str:
    text = str(s)
    num_added = len(width) if isinstance(width, str) else int(width)
    budget_of(context).charge(1, len(text) + max(0, num_added) * (1 + len(text.splitlines())))
    return filters.do_indent(text, width, first, blank)


@pass_context
def trim_text(context: Context, value: Any, chars: Any = None) -> str:
    text = str(value)
    budget_of(context).charge(1, len(text) * (1 if chars is None else 1 + len(str(chars)) // 4))
    return text.strip(None if chars is None else str(chars))


@pass_context
def plain_text(context: Context, value: Any) -> str:
    """`safe`: nothing is escaped here, so nothing needs a mark against it."""
    budget_of(context).measure(value)
    return str(value)


@pass_context
def escape_html(context: Context, value: Any) -> str:
    budget_of(context).measure(value)
    # &#34; is the longest replacement.
    text = str(value)
    budget_of(context).charge(1, 5 * len(text))
    return str.__str__(escape(text))


@pass_context
def round_number(context: Context, value: Any, precision: Any = 0, method: Any = "common") -> Any:
    if not -300 <= int(precision) <= 300:
        raise TemplateBudgetError(f"it rounds to {int(precision):,} digits")
    budget_of(context).measure(value)
    return filters.do_round(value, int(precision), method)


@pass_context
def to_json(  # noqa: PLR0917 - as in `transformers`
    context: Context,
    value: Any,
    ensure_ascii: Any = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: Any = False,
) -> str:
    """As `transformers` has it: no HTML escapes, and JSON's options."""
    budget = budget_of(context)
    for item in (value, indent, separators):
        budget.measure(item)
    if isinstance(indent, str):
        raise TemplateRuntimeError("tojson needs a number for its indent")
    if indent is not None and not 0 <= int(indent) <= 16:
        raise TemplateBudgetError(f"it indents JSON by {int(indent):,}")
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    parts = []
    for part in encoder.iterencode(value):
        budget.charge(1, len(part))
        parts.append(part)
    return "".join(parts)


@pass_context
def percent_format(context: Context, text: Any, *args: Any, **kwargs: Any) -> str:
    """The `format` filter: printf-like."""
    return format_percent(budget_of(context), str(text), kwargs or args)


def format_percent(budget: TemplateBudget, text: str, values: Any) -> str:
    if _WIDE_FORMAT.search(text):
        raise TemplateBudgetError("it formats to a width of thousands")
    everything = list(values.values()) if isinstance(values, Mapping) else [values]
    # Each place may show the same value (by its name), up to 999 wide.
    for _ in range(text.count("%")):
        budget.charge(1, 1000)
        budget.measure(everything)
    result: str = text % values
    return result


def apply_operator(
    budget: TemplateBudget, operator: str, function: Callable[[Any, Any], Any], left: Any, right: Any
) -> Any:
    """One of + - * / // % **, paid for in advance."""
    for value in (left, right):
        if isinstance(value, list) and operator == "+":
            budget.charge(1 + len(value))
        else:
            budget.measure(value)
    if operator == "%" and isinstance(left, str):
        return format_percent(budget, left, right)
    if operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and isinstance(times, int):
                size = len(value) * max(0, times)
                budget.charge(0 if isinstance(value, str) else size, size)
    if (
        operator == "**"
        and isinstance(left, int)
        and isinstance(right, int)
        and left.bit_length() * right > MAX_INTEGER_BITS
    ):
        raise TemplateBudgetError(f"it computes with numbers of more than {MAX_INTEGER_BITS:,} bits")
    return function(left, right)


@pass_context
def bounded_range(context: Context, *args: Any) -> range:
    result = range(*args)
    budget_of(context).charge(1 + len(result))
    return result


@pass_context
def strftime_now(context: Context, format: Any) -> str:
    if len(str(format)) > 1000:
        raise TemplateBudgetError("it formats the date with more than 1,000 characters")
    return datetime.now().strftime(str(format))


def raise_exception(message: Any) -> None:
    raise TemplateRejectionError(str(message))


@pass_context
def pay_steps(context: Context, steps: int, characters: int) -> None:
    """Put at the head of every loop body and macro: what one turn through it costs."""
    budget_of(context).charge(steps, characters)


@pass_context
def pay_value(context: Context, value: Any) -> Any:
    budget_of(context).measure(value)
    return value


@pass_context
def pay_length(context: Context, value: Any) -> Any:
    budget_of(context).charge(1 + (len(value) if hasattr(value, "__len__") else 0))
    return value


def template_filters() -> dict[str, Any]:
    own: dict[str, Any] = {
        **dict.fromkeys(("e", "escape", "forceescape"), escape_html),
        "format": percent_format,
        "indent": indent_text,
        "join": join_text,
        "replace": replace_text,
        "round": round_number,
        "safe": plain_text,
        "tojson": to_json,
        "trim": trim_text,
    }
    # Names with a blank are for the syntax tree alone (`metered_tree`); a template cannot write them.
    hidden: dict[str, Any] = {" concat": concatenate, " steps": pay_steps, " value": pay_value, " length": pay_length}
    known: dict[str, Any] = dict(filters.FILTERS)
    plain = {name: metered(known[name], spreads=name in _SPREADING) for name in _PLAIN_FILTERS}
    return {**plain, **own, **hidden}


def template_tests() -> dict[str, Any]:
    known: dict[str, Any] = dict(tests.TESTS)
    return {name: metered(test) for name, test in known.items()}


def template_globals() -> dict[str, Any]:
    functions = {"range": bounded_range, "strftime_now": strftime_now, "raise_exception": raise_exception}
    return {**functions, "dict": dict, "namespace": TemplateNamespace, "cycler": Cycler, "joiner": Joiner}
