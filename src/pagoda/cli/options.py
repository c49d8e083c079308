"""The options of the command line, derived from the knobs of configurations and `SamplingParams`' fields.

A new knob or field appears here by itself, with its type, default, help and range.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import typer

from pagoda.config import EngineConfig, Knob, ServerConfig, default_of, knobs
from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams
from pagoda.simulation.settings import SimulationSettings


def with_derived_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command one option per field instead of its parameters annotated with one of the `SOURCES`.

    The command gets the finished objects. A configuration's field `model` becomes the optional argument MODEL. A value out
    of its range is an `InvalidValueError` that names the option.
    """
    parameters: list[inspect.Parameter] = []
    sources: dict[str, _Source] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.annotation in SOURCES:
            source = SOURCES[parameter.annotation]()
            sources[parameter.name] = source
            parameters += source.parameters
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**values: Any) -> None:
        built = {name: source.build(values) for name, source in sources.items()}
        command(**values, **built)

    functools.update_wrapper(run, command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    del run.__wrapped__  # type: ignore[attr-defined]  # typer would read the original's annotations through it
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def option_name(field: str) -> str:
    """How the command line spells a field: `top_k` → `--top-k`, `stop[0]` → `--stop[0]`, `model` → `MODEL`."""
    return "MODEL" if field == "model" else "--" + field.replace("_", "-")


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a group of options comes from: `kind` is made from the values of `parameters`, which `build` takes away."""

    kind: type
    parameters: list[inspect.Parameter]
    json_fields: frozenset[str]

    def build(self, values: dict[str, Any]) -> Any:
        chosen = {parameter.name: values.pop(parameter.name) for parameter in self.parameters}
        for name in self.json_fields:
            chosen[name] = _json_object(name, chosen[name])
        # Typer gives an empty list for a repeated option that was not used.
        given = {name: value for name, value in chosen.items() if value is not None and value != []}
        try:
            return self.kind(**given)
        except InvalidValueError as error:
            raise InvalidValueError(option_name(error.field), error.value, error.limit) from None


def _config_source(config: type[Any]) -> _Source:
    parameters = []
    for name, (kind, knob, optional) in knobs(config).items():
        annotation = kind | None if optional else kind
        text = knob.help + _range(knob)
        if name == "model":
            info: Any = typer.Argument(metavar="MODEL", help=text)
        else:
            metavar = "|".join(knob.choices) if knob.choices else None
            info = typer.Option(_spelling(name, kind, default_of(name, config)), metavar=metavar, help=text)
        parameters.append(_parameter(name, Annotated[annotation, info], default_of(name, config)))
    return _Source(config, parameters, frozenset())


def _sampling_source() -> _Source:
    hints = get_type_hints(SamplingParams)
    texts = _docstring_table(SamplingParams)
    parameters, json_fields = [], set()
    for field in fields(SamplingParams):
        name, kind = field.name, _without_none(hints[field.name])
        default: Any = None if field.default is MISSING else field.default
        text, metavar, annotation = texts.get(name, ""), None, cast("Any", kind)
        if get_origin(kind) is tuple:
            element = get_args(kind)[0]
            annotation, default, text = GenericAlias(list, (element,)) | None, None, text + " (may be repeated)"
            metavar = f"<{element.__name__}>"
        elif get_origin(kind) is Mapping:
            annotation, metavar = str | None, "<json>"
            json_fields.add(name)
        elif kind is not bool:
            annotation = kind | None
        info = typer.Option(_spelling(name, kind, default), metavar=metavar, help=text)
        parameters.append(_parameter(name, Annotated[annotation, info], default))
    return _Source(SamplingParams, parameters, frozenset(json_fields))


# What a command's parameter may be annotated with, and the options that come of it.
SOURCES: dict[type, Callable[[], _Source]] = {
    EngineConfig: functools.partial(_config_source, EngineConfig),
    ServerConfig: functools.partial(_config_source, ServerConfig),
    SimulationSettings: functools.partial(_config_source, SimulationSettings),
    SamplingParams: _sampling_source,
}


def _docstring_table(kind: type) -> dict[str, str]:
    """The lines `name   what it means` of a class's docstring."""
    rows = re.findall(r"^ +(\w+) {2,}(\S.*)$", kind.__doc__ or "", re.MULTILINE)
    return {name: text[0].upper() + text[1:] for name, text in rows}


def _without_none(hint: Any) -> type:
    """`float | None` → float; anything else as it is."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return cast("type", next(alternative for alternative in alternatives if alternative is not NoneType))


def _spelling(name: str, kind: type, default: object) -> str:
    spelling = option_name(name)
    return f"{spelling}/--no-{spelling[2:]}" if kind is bool and default is not False else spelling


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _range(knob: Knob) -> str:
    if knob.minimum is not None and knob.maximum is not None:
        return f" From {knob.minimum:,} to {knob.maximum:,}."
    return f" At least {knob.minimum:,}." if knob.minimum is not None else ""


def _json_object(field: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidValueError(option_name(field), text, 'a JSON object such as {"42": -5}')
    return value
