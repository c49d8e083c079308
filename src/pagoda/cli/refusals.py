"""How the command line words a refusal: by the names that the user typed."""

from __future__ import annotations

import re

import typer

from pagoda.cli.options import option_name
from pagoda.config import EngineConfig, ServerConfig
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.sampling_params import SamplingParams

FIELDS = frozenset(
    name for source in (EngineConfig, ServerConfig, SamplingParams) for name in source.__dataclass_fields__
)


def worded(error: PagodaError) -> str:
    """The error's sentence; a field that is an option is named as one: `logit_bias (its key)` → `--logit-bias`."""
    if isinstance(error, InvalidValueError):
        name = re.match(r"\w*", error.field)
        if name is not None and name.group() in FIELDS:
            return str(InvalidValueError(option_name(name.group()), error.value, error.limit))
    return str(error)


def mistyped(error: typer.BadParameter) -> str:
    """What was typed is none of the option's type. Newer versions of typer read values by pydantic, whose sentences leave
    out what was given: then in the words of other refusals."""
    problems = getattr(error.__cause__, "errors", None)
    if problems is None or error.param is None:
        return str(error.format_message())
    (problem, *_) = problems()
    limit = problem["msg"].removeprefix("Input should be ").partition(",")[0]
    return str(InvalidValueError(error.param.opts[0], problem["input"], limit))
