"""A Jinja environment for templates that nobody has vouched for: what they may touch, and what they must pay for."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.visitor import NodeTransformer

from pagoda.text.template_budget import TemplateBudget, TemplateBudgetError
from pagoda.text.template_filters import (
    apply_operator,
    budget_of,
    joined,
    pay_value,
    replaced,
    template_filters,
    template_globals,
    template_tests,
)

_PLAIN_TYPES = (str, bytes, int, float, list, tuple, dict, set, frozenset, range)
_BOUND = (BuiltinMethodType, MethodType)
# Python looks for these arguments by trying every place, or every character, in turn.
_TIMES_ARGUMENT = frozenset(("rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip"))
_METHODS = frozenset(
    (
        "capitalize", "casefold", "count", "endswith", "find", "format", "get", "grouper", "index", "isalnum", "isalpha",
        "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "items", "join", "keys", "list",
        "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition",
        "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "values",
    )
)  # fmt: skip


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, with only harmless methods, and every operation paid from the rendering's budget."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, finalize=pay_value, extensions=[loopcontrols, GenerationTag]
        )
        self.filters = template_filters()
        self.tests = template_tests()
        self.globals = template_globals()

    def compile_metered(self, source: str) -> Template:
        """The template with payments put into its syntax tree. Raises Jinja's TemplateSyntaxError."""
        tree = MeteredTree().visit(self.parse(source))
        return Template.from_code(self, self.compile(tree, filename="chat_template"), self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        allowed = attr in _METHODS if isinstance(obj, _PLAIN_TYPES) else True
        return allowed and super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        # To look up a tuple is to hash all that is in it, and no message has such keys.
        if isinstance(argument, tuple):
            return self.undefined(obj=obj, name="a tuple")
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return apply_operator(budget_of(context), operator, self.binop_table[operator], left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in Jinja
        budget = budget_of(__context)
        budget.charge(5)
        # The compiler adds the variables of the loop and the block around the call, under these names.
        own = {name: value for name, value in kwargs.items() if name not in {"_loop_vars", "_block_vars"}}
        for value in (*args, *own.values()):
            budget.measure(value)
        if isinstance(__obj, _BOUND) and isinstance(__obj.__self__, str):
            return _call_text_method(budget, __obj, args, own)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, (list, tuple, dict)):
            budget.charge(len(result))
        elif isinstance(result, str):
            budget.charge(1, len(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if not isinstance(value, _BOUND) or not isinstance(value.__self__, str):
            return None
        if value.__name__ == "format_map":
            raise SecurityError("format_map is not available to chat templates")
        if value.__name__ != "format":
            return None
        text = str(value.__self__)

        @pass_context
        def formatted(context: Context, *args: Any, **kwargs: Any) -> str:
            return _MeteredFormatter(self, budget_of(context)).vformat(text, args, kwargs)

        return formatted


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's part for training; here it just contains it."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class MeteredTree(NodeTransformer):
    """Puts payments into a syntax tree: for each turn of a loop or call of a macro its number of nodes and its text, and
    for values that are compared, concatenated, sliced or used as keys their size."""

    def get_visitor(self, node: nodes.Node) -> Any:
        return getattr(self, f"meter_{type(node).__name__.lower()}", None)

    def meter_for(self, node: nodes.For) -> nodes.Node:
        payment = _payment(node.body)
        self.generic_visit(node)
        node.iter = _filter(node.iter, " length")
        node.body.insert(0, payment)
        return node

    def meter_macro(self, node: nodes.Macro) -> nodes.Node:
        return self._pay_for_body(node)

    def meter_callblock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._pay_for_body(node)

    def meter_block(self, node: nodes.Block) -> nodes.Node:
        return self._pay_for_body(node)

    def meter_compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _value(node.expr)
        for operand in node.ops:
            operand.expr = _value(operand.expr)
        return node

    def meter_concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes).set_lineno(node.lineno), " concat")

    def meter_pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _value(node.key)
        return node

    def meter_getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filter(node.node, " length")
        return node

    def meter_scopedevalcontextmodifier(self, node: nodes.ScopedEvalContextModifier) -> nodes.Node:
        # It would give strings of another class, with methods of their own.
        raise TemplateSyntaxError("autoescape is not available to chat templates", node.lineno)

    def _pay_for_body(self, node: Any) -> nodes.Node:
        payment = _payment(node.body)
        self.generic_visit(node)
        node.body.insert(0, payment)
        return node  # type: ignore[no-any-return]


class _MeteredFormatter(SandboxedFormatter):
    def __init__(self, environment: TemplateEnvironment, budget: TemplateBudget) -> None:
        super().__init__(environment)
        self._budget = budget

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._budget.measure(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        # A width or precision of four digits or more.
        if sum(character.isdigit() for character in format_spec) > 3:
            raise TemplateBudgetError("it formats to a width of thousands")
        self._budget.measure(value)
        self._budget.charge(1, 1000)
        return super().format_field(value, format_spec)


def _call_text_method(budget: TemplateBudget, method: BuiltinMethodType | MethodType, args: Any, kwargs: Any) -> Any:
    """A method of a string. What it makes is paid for before it is made where that can be more than the string itself."""
    text: str = method.__self__  # type: ignore[assignment]
    budget.charge(1, len(text))
    if method.__name__ in _TIMES_ARGUMENT and args and isinstance(args[0], str):
        budget.charge(1, len(text) * len(args[0]) // 4)
    if method.__name__ == "replace" and len(args) >= 2 and not kwargs:
        return replaced(budget, text, *args)
    if method.__name__ == "join" and len(args) == 1:
        return joined(budget, args[0], text)
    if method.__name__ in ("split", "rsplit", "splitlines"):
        separator = args[0] if args else kwargs.get("sep")
        # Where the parts cannot be counted beforehand, one in four characters is taken to begin one.
        parts = text.count(separator) if isinstance(separator, str) and separator else len(text) // 4
        budget.charge(1 + parts)
    result = method(*args, **kwargs)
    budget.charge(1, len(result) if isinstance(result, str) else 0)
    return result


def _payment(body: list[nodes.Node]) -> nodes.Node:
    num_nodes = 1 + len(body)
    num_characters = 0
    for statement in body:
        for found in statement.find_all(nodes.Node):
            num_nodes += 1
            num_characters += len(found.data) if isinstance(found, nodes.TemplateData) else 0
        num_characters += len(statement.data) if isinstance(statement, nodes.TemplateData) else 0
    line = body[0].lineno if body else 1
    call = _filter(nodes.Const(num_nodes).set_lineno(line), " steps", nodes.Const(num_characters))
    return nodes.ExprStmt(call).set_lineno(line)


def _value(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _filter(node, " value")


def _filter(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None).set_lineno(node.lineno)  # type: ignore[return-value]
