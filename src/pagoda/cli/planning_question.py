"""What was typed at `pagoda plan` or `pagoda simulate`, as the Question that both ask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagoda import checks
from pagoda.cli.typed_figures import parse_count
from pagoda.errors import InvalidValueError
from pagoda.planning.hardware import Hardware
from pagoda.planning.question import Question

if TYPE_CHECKING:
    from pagoda.planning.calibrated_time import CalibratedTimer
    from pagoda.planning.step_time import StepTimer

THIS = "this"
DEFAULT_CONTEXT = 2048
DEFAULT_FRACTION, DEFAULT_BLOCK, DEFAULT_STEP = 0.9, 16, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The options of both commands, by their names; see `pagoda plan --help`."""

    model: str
    revision: str | None = None
    device: str = THIS
    devices: int = 1
    context: int | None = None
    concurrency: int = 1
    parameters: str | None = None
    weight_format: str | None = None
    kv_format: str | None = None
    memory_fraction: float = DEFAULT_FRACTION
    block_size: int = DEFAULT_BLOCK
    max_batched_tokens: int = DEFAULT_STEP
    weights_only: bool = False
    calibration: str | None = None


def ask(typed: Typed) -> Question:
    """All that can be refused without opening the model is refused first. Only a hub's model uses the network.

    Raises `InvalidValueError` by the option's name, `ModelFileError`, `UnsupportedModelError`, or another `PagodaError`.
    """
    parameters = None if typed.parameters is None else parse_count("--parameters", typed.parameters)
    checks.integer("--devices", typed.devices, 1)
    checks.integer("--concurrency", typed.concurrency, 1)
    checks.integer("--block-size", typed.block_size, 1)
    checks.number("--memory-fraction", typed.memory_fraction, 0.01, 1.0)
    measured = None if typed.calibration is None else _measured(typed.calibration)
    hardware, threads = named_device(typed.device)

    from pagoda.models.describe import describe_model

    try:
        described = describe_model(typed.model, typed.revision)
    except InvalidValueError as error:
        option = {"model": "MODEL", "revision": "--revision"}.get(error.field, error.field)
        raise InvalidValueError(option, error.value, error.limit) from None
    context = min(DEFAULT_CONTEXT, described.context_length) if typed.context is None else typed.context
    question = Question(
        model=typed.model,
        spec=described.spec,
        stored=described.stored,
        served_as=described.served_as,
        revision=typed.revision,
        device=hardware,
        num_devices=typed.devices,
        parameters=parameters,
        weight_format=typed.weight_format,
        kv_format=typed.kv_format,
        context=context,
        concurrency=typed.concurrency,
        block_size=typed.block_size,
        memory_fraction=typed.memory_fraction,
        max_batched_tokens=typed.max_batched_tokens,
        threads=threads,
        weights_only=typed.weights_only,
    )
    return replace(question, timer=_timer(question, measured))


def named_device(text: str) -> tuple[Hardware, int | None]:
    """The device, and the threads of its CPU where it is this machine: what is measured by `pagoda bench limits`, once."""
    if text != THIS:
        from pagoda.planning.devices import parse_device

        return parse_device(text), None
    from pagoda.cli.this_machine import this_machine
    from pagoda.progress import TerminalProgress
    from pagoda.runner.host_cores import usable_cores

    with TerminalProgress() as bars:
        return this_machine(bars), usable_cores()


def _measured(path: str) -> CalibratedTimer:
    from pagoda.planning.calibrated_time import load_timer

    return load_timer(Path(path))


def _timer(question: Question, measured: CalibratedTimer | None) -> StepTimer | None:
    """What was measured, if it is of this model; else from the device's ceilings and what engines make of them. None where a
    ceiling that this needs is not known."""
    from pagoda.planning.deployment import deploy

    deployment = deploy(question)
    if measured is not None:
        measured.check_model(deployment.costs)
        return measured
    from pagoda.planning.engine_time import engine_timer

    return engine_timer(question.spec, deployment.holding.format_of, question.device, question.num_devices)
