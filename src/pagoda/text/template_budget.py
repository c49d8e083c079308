"""How much work one rendering of a chat template may do. A template comes with a model: it is somebody else's program."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from pagoda.errors import ModelFileError

# Four times the longest template seen; it also bounds the time to compile one.
MAX_SOURCE_CHARACTERS = 64_000
MAX_INTEGER_BITS = 10_000
MAX_DEPTH = 200

# A step is about one node of the template's syntax tree, evaluated once (some 100 ns): what one message may take is far
# above any real template, which goes over the messages once or twice, and the whole stays within a second or so.
BASE_STEPS = 1_000_000
STEPS_PER_ITEM = 20_000
BASE_CHARACTERS = 50_000_000
CHARACTERS_PER_INPUT_CHARACTER = 200

_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)


class TemplateBudgetError(ModelFileError):
    """The template does more work than any chat can need."""

    def __init__(self, what: str) -> None:
        super().__init__(f"chat_template: {what}, so it was stopped; give another one with the setting chat_template")


class TemplateBudget:
    """Steps and characters that are left. Every operation pays before it works; what it cannot pay for is not begun."""

    def __init__(self, steps: int, characters: int) -> None:
        self._steps, self._characters = steps, characters
        self._limits = f"{steps:,} steps and {characters:,} characters"

    @classmethod
    def for_input(cls, value: object, num_items: int) -> TemplateBudget:
        """A budget in proportion to what is rendered: `value` in all, of which `num_items` messages and tools."""
        counter = cls(2**62, 2**62)
        counter.measure(value)
        num_characters = 2**62 - counter._characters
        return cls(
            BASE_STEPS + STEPS_PER_ITEM * num_items, BASE_CHARACTERS + CHARACTERS_PER_INPUT_CHARACTER * num_characters
        )

    def charge(self, steps: int, characters: int = 0) -> None:
        self._steps -= steps
        self._characters -= characters
        if self._steps < 0 or self._characters < 0:
            raise TemplateBudgetError(f"it needs more than {self._limits}")

    def measure(self, value: Any) -> None:
        """Pays for going through the whole value once, as printing or comparing it does."""
        if isinstance(value, str):
            self.charge(1, len(value))
        elif isinstance(value, int):
            self._check_integer(value)
        elif isinstance(value, (dict, *_CONTAINERS)):
            self._measure_container(value)
        else:
            self.charge(1)

    def counted(self, values: Iterator[Any]) -> Iterator[Any]:
        """The same values, a step each."""
        for value in values:
            self.charge(2)
            yield value

    def _measure_container(self, value: Any) -> None:
        pending: list[tuple[Any, int]] = [(value, 0)]
        while pending:
            item, depth = pending.pop()
            # Python itself goes down nested containers by recursion in C, which must not get deep.
            if depth > MAX_DEPTH:
                raise TemplateBudgetError(f"it nests values more than {MAX_DEPTH} deep")
            if isinstance(item, (dict, *_CONTAINERS)):
                self.charge(3 + len(item))
                children = [*item.keys(), *item.values()] if isinstance(item, Mapping) else list(item)
                pending += [(child, depth + 1) for child in children]
            else:
                self.measure(item)

    def _check_integer(self, value: int) -> None:
        if value.bit_length() > MAX_INTEGER_BITS:
            raise TemplateBudgetError(f"it computes with numbers of more than {MAX_INTEGER_BITS:,} bits")
        self.charge(1)
