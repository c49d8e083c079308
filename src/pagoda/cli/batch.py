"""A batch file, from its lines to their results: a bounded number in flight, each written as soon as it is finished."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda.cli.batch_input import BatchLine, InputSummary, read_lines
from pagoda.cli.batch_output import BatchOutput
from pagoda.cli.results import result_json
from pagoda.config import EngineConfig
from pagoda.errors import EngineClosedError, InvalidValueError, PagodaError
from pagoda.progress import Progress
from pagoda.sampling_params import SamplingParams

if TYPE_CHECKING:
    from pagoda.engine.handle import RequestHandle
    from pagoda.llm import LLM

# How often finished requests are looked for: far below a request's own time, far above the cost of looking.
POLL_SECONDS = 0.02
# What changes the results of a run; threads, memory and batching do not.
DECISIVE = (
    "model",
    "revision",
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "deterministic",
    "max_model_len",
    "generation_config",
    "chat_template",
)


@dataclass(frozen=True, slots=True)
class _InFlight:
    line: BatchLine
    handle: RequestHandle

    @property
    def num_choices(self) -> int:
        return self.line.sampling.n if self.line.sampling else 1


def fingerprint(source: InputSummary, config: EngineConfig, defaults: SamplingParams) -> dict[str, Any]:
    """What an output was made from, as its `.meta.json` keeps it. JSON types only, so that it compares equal when read back."""
    settings = {name: getattr(config, name) for name in DECISIVE}
    if Path(config.model).exists():
        settings["model"] = str(Path(config.model).resolve())
    set_fields = {name: getattr(defaults, name) for name in SamplingParams.__dataclass_fields__}
    sampling = {name: list(value) if isinstance(value, tuple) else value for name, value in set_fields.items()}
    sampling["logit_bias"] = {str(token_id): bias for token_id, bias in defaults.logit_bias.items()}
    return {"input": {"bytes": source.num_bytes, "sha256": source.sha256}, **settings, "sampling_params": sampling}


def run_batch(
    llm: LLM, path: Path, defaults: SamplingParams, output: BatchOutput, *, num_lines: int, bars: Progress
) -> None:
    """Complete every line that `output` does not have yet. A line's own fault ends that line; the others go on.

    Raises `EngineClosedError` when the engine itself fails: the lines it took down are not written, but left for a resumption.
    """
    _Run(llm, path, defaults, output, lambda: bars("Generating", output.num_done, num_lines)).finish()


class _Run:
    def __init__(
        self, llm: LLM, path: Path, defaults: SamplingParams, output: BatchOutput, on_line: Callable[[], None]
    ) -> None:
        self._llm = llm
        self._output = output
        self._on_line = on_line
        self._todo = (line for line in read_lines(path, defaults) if not output.has(line.number))
        self._in_flight: list[_InFlight] = []
        # Enough waiting that the batch never runs dry between two looks, few enough that a huge input stays on disk.
        self._window = 2 * llm.config.max_num_seqs

    def finish(self) -> None:
        self._on_line()
        while self._refill() or self._in_flight:
            if self._in_flight:
                with contextlib.suppress(TimeoutError):
                    self._in_flight[0].handle.result(timeout=POLL_SECONDS)
            for entry in [entry for entry in self._in_flight if entry.handle.done()]:
                self._in_flight.remove(entry)
                self._write_result(entry)

    def _refill(self) -> bool:
        """Submit lines until the window is full. False once there are none left."""
        while sum(entry.num_choices for entry in self._in_flight) < self._window:
            line = next(self._todo, None)
            if line is None:
                return False
            error: PagodaError | None = line.error
            if error is None:
                try:
                    handle = self._llm.submit(
                        line.prompt, line.sampling, priority=line.priority, cache_salt=line.cache_salt
                    )
                    self._in_flight.append(_InFlight(line, handle))
                except EngineClosedError:
                    raise
                except PagodaError as refusal:
                    error = refusal
            if error is not None:
                self._write_error(line, error)
        return True

    def _write_result(self, entry: _InFlight) -> None:
        result = entry.handle.result()
        if isinstance(result.error, EngineClosedError):
            raise result.error
        if result.error is not None:
            self._write_error(entry.line, result.error)
        else:
            self._write(entry.line, result_json(result))

    def _write_error(self, line: BatchLine, error: PagodaError) -> None:
        field = {"field": error.field} if isinstance(error, InvalidValueError) else {}
        self._write(line, {"error": {**field, "message": str(error)}})

    def _write(self, line: BatchLine, entry: dict[str, Any]) -> None:
        identity = {} if line.id is None else {"id": line.id}
        self._output.append(line.number, {**identity, **entry})
        self._on_line()
