"""An HTML page that needs nothing else: no network, no script, no font of its own."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from pagoda.cli.charts import STYLE
from pagoda.version import __version__


def page(template: str, **values: Any) -> str:
    """The page of a template in this package, with `style` and `version` besides the values. What is not Markup is escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = Markup(_text("page.css") + STYLE)  # both are ours
    return environment.from_string(_text(template)).render(**values, style=style, version=__version__)


def _text(name: str) -> str:
    return files("pagoda.cli").joinpath(name).read_text(encoding="utf-8")
