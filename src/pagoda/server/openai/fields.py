"""Fields: each one of OpenAI's requests, and Pagoda's own, is honoured, accepted without effect, or refused by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError


class Treatment(Enum):
    HONOURED = "honoured"
    WITHOUT_EFFECT = "without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a request.

    note: what it does, or why it is refused; the documentation's words.
    schema: JSON Schema of its values; null, which always means unset, is understood besides.
    values: the only values accepted (those that ask for nothing), where it is not honoured in general.
    """

    name: str
    treatment: Treatment
    note: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    values: Sequence[Any] | None = None

    def check(self, value: object) -> None:
        """Raises `InvalidValueError` for a value that this field does not take. Honoured ones are checked where used."""
        if self.values is not None:
            if not any(type(value) is type(known) and value == known for known in self.values):
                choices = " or ".join(["null", *map(_json, self.values)])
                raise InvalidValueError(self.name, value, f"left out, or {choices}: {self.note}")
        elif self.treatment is Treatment.WITHOUT_EFFECT:
            if self.schema.get("type") == "string":
                checks.text(self.name, value)
            elif self.schema.get("type") == "boolean":
                checks.boolean(self.name, value)
            elif not isinstance(value, dict):
                raise InvalidValueError(self.name, value, "an object")


Fields = Mapping[str, Field]


def honoured(name: str, note: str, **schema: Any) -> Field:
    return Field(name, Treatment.HONOURED, note, schema)


def without_effect(name: str, note: str, **schema: Any) -> Field:
    return Field(name, Treatment.WITHOUT_EFFECT, note, schema)


def only(name: str, note: str, *values: Any, treatment: Treatment = Treatment.REFUSED) -> Field:
    """Refused, but for values that ask for nothing."""
    return Field(name, treatment, note, {"enum": list(values)} if values else {"type": "null"}, values)


def table(*fields: Field) -> Fields:
    return {entry.name: entry for entry in fields}


def accepted(body: Mapping[str, Any], fields: Fields, path: str = "") -> dict[str, Any]:
    """The honoured fields that are set. Raises `InvalidValueError` naming a field that is unknown or refused.

    path: what the fields' names begin with in messages, e.g. "stream_options.".
    """
    used: dict[str, Any] = {}
    for name, value in body.items():
        known = fields.get(name)
        if known is None:
            raise InvalidValueError(f"{path}{_short(name)}", value, "left out: there is no such field")
        if value is None:
            continue
        if known.treatment is Treatment.HONOURED:
            used[name] = value
        else:
            try:
                known.check(value)
            except InvalidValueError as error:
                raise InvalidValueError(f"{path}{name}", value, error.limit) from None
    return used


def json_schema(fields: Fields, required: Sequence[str]) -> dict[str, Any]:
    """JSON Schema of the object that has these fields and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {
            name: {**_nullable(copy.deepcopy(dict(entry.schema)), name in required), "description": entry.note}
            for name, entry in fields.items()
        },
    }


def _nullable(schema: Mapping[str, Any], required: bool) -> dict[str, Any]:
    if required or schema == {"type": "null"}:
        return dict(schema)
    return {"anyOf": [dict(schema), {"type": "null"}]}


def _short(name: str) -> str:
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    return shown.encode("utf-8", "replace").decode()


def _json(value: object) -> str:
    return json.dumps(value)
