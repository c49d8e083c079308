"""Question: what `pagoda plan` and `pagoda simulate` are asked, resolved to plain figures."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.planning.hardware import Hardware
from pagoda.planning.holding import FormatOf
from pagoda.planning.model_spec import ModelSpec
from pagoda.planning.step_time import StepTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One model on one kind of device.

    model: as typed. stored: the formats of its files, or one for all where there is only a configuration.
    served_as: what `pagoda serve` takes for it, at `revision`; None: only a configuration is known, no weights.
    parameters: a count to reckon with instead of the model's own (`--parameters 7e9`).
    weight_format, kv_format: "bf16", "fp16", "fp8", "int8", "int4", …; None: weights as stored, K and V as the engine
        holds them on that device.
    threads: of the CPU whose native kernels run it; None: the device is a GPU.
    weights_only: leave the reading of K and V out of the decode step.
    timer: what the engine takes for a step there; None: bounds alone can be told.
    """

    model: str
    spec: ModelSpec
    stored: FormatOf
    served_as: str | None = None
    revision: str | None = None
    device: Hardware
    num_devices: int = 1
    parameters: int | None = None
    weight_format: str | None = None
    kv_format: str | None = None
    context: int
    concurrency: int
    block_size: int = 16
    memory_fraction: float = 0.9
    max_batched_tokens: int = 512
    threads: int | None = None
    weights_only: bool = False
    timer: StepTimer | None = None
