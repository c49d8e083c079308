"""Every error that Pagoda raises on purpose. `str(error)` is a sentence a user can act on; the CLI prints just that."""

from __future__ import annotations

from collections.abc import Iterable


class PagodaError(Exception):
    """The base class: catch this to catch all that Pagoda refuses or fails at."""


class InvalidValueError(PagodaError, ValueError):
    """A parameter is outside its limit. Carries the field, the value and the limit, for programs as well as people.

    `limit` completes the phrase "must be …".
    """

    def __init__(self, field: str, value: object, limit: str) -> None:
        self.field, self.value, self.limit = field, value, limit
        super().__init__(f"{field}: got {shown(value)}, must be {limit}")

    def __reduce__(self) -> tuple[type[InvalidValueError], tuple[str, object, str]]:
        # So that it survives the way back from a worker process.
        return type(self), (self.field, self.value, self.limit)


class UnsupportedModelError(PagodaError):
    """The model needs something this version does not have: an architecture, a RoPE scaling, a weight format."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        self.what, self.name, self.known = what, name, tuple(known)
        super().__init__(f"{what} {shown(name)} is not supported; known: {', '.join(self.known)}")

    def __reduce__(self) -> tuple[type[UnsupportedModelError], tuple[str, object, tuple[str, ...]]]:
        return type(self), (self.what, self.name, self.known)


class ModelFileError(PagodaError):
    """A model's files are missing, corrupt or contradict each other."""


class DoesNotFitError(PagodaError):
    """The model, or what was asked of it, needs more memory than there is. The message has the figures and the remedy."""


class RequestFailedError(PagodaError):
    """One request failed while running; its neighbours did not."""


class QueueFullError(PagodaError):
    """The engine's inbox is full: try again later. Carries how many choices are open, over all requests, and may be."""

    def __init__(self, num_open: int, limit: int) -> None:
        self.num_open, self.limit = num_open, limit
        super().__init__(f"{num_open:,} choices are open, the limit is {limit:,}; try again when some have finished")

    def __reduce__(self) -> tuple[type[QueueFullError], tuple[int, int]]:
        return type(self), (self.num_open, self.limit)


class EngineClosedError(PagodaError):
    """The engine was shut down, or has failed, before the request could finish."""


class InvariantError(RuntimeError):
    """Pagoda's own bookkeeping is wrong: a bug, never a user's doing, hence no `PagodaError`."""


def shown(value: object, limit: int = 80) -> str:
    """The value as an error message shows it: its repr, cut to `limit` characters so that a huge input stays readable."""
    # A container's repr costs time and memory in proportion to its size, so a large one is described instead.
    if isinstance(value, (list, tuple, dict, set)) and len(value) > 16:
        return f"a {type(value).__name__} of {len(value):,} entries"
    if isinstance(value, (str, bytes)) and len(value) > limit:
        return f"{value[: limit // 2]!r}… ({len(value):,} long)"
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print very long ones
        return f"an integer of {value.bit_length():,} bits"
    try:
        text = repr(value)
    except Exception:  # a stranger's repr, or a very long integer in a list
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[:limit] + "…"
