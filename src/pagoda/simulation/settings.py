"""SimulationSettings: everything that `pagoda simulate` can be told, typed, with its help text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pagoda.config import EngineConfig, Knob, check_knobs, default_of, knobs
from pagoda.errors import InvalidValueError
from pagoda.simulation import arrivals, lengths
from pagoda.simulation.cluster import CHOICES
from pagoda.simulation.trace import MAX_REQUESTS

if TYPE_CHECKING:
    from pagoda.simulation.slo import Slo

DEFAULT_REQUESTS = 1000
MAX_RATE = 1e6
_ENGINE = {name: knob for name, (_, knob, _) in knobs(EngineConfig).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """What to simulate. Immutable; checked when made. Raises `InvalidValueError`, naming field, value and limit."""

    model: Annotated[
        str,
        Knob(
            "A local directory or its config.json, a .gguf file, a hub id, smollm2, or a published shape such as "
            "llama-3-8b (pagoda plan lists them)."
        ),
    ] = "smollm2"
    revision: Annotated[str | None, _ENGINE["revision"]] = None
    device: Annotated[
        str,
        Knob(
            "A device's id such as a100-80g, figures such as flops=312e12,bandwidth=2e12,memory=80e9, or this: the "
            "machine that this runs on, as it is measured."
        ),
    ] = "this"
    devices: Annotated[
        str,
        Knob(
            "Devices of one replica, which share its model by tensor parallelism. With --search: sizes to try, as 1,2,4."
        ),
    ] = "1"
    weight_format: Annotated[
        str | None, Knob("Number format of weights, such as bf16, fp8, int8, int4. Default: as stored.")
    ] = None
    kv_format: Annotated[str | None, Knob("Number format of K and V. Default: as the engine holds them there.")] = None

    rate: Annotated[
        float | None, Knob("Requests a second, on average. A trace without it comes at its own rate.", 1e-6, MAX_RATE)
    ] = None
    requests: Annotated[
        int | None,
        Knob(
            f"End after so many requests. Default: {DEFAULT_REQUESTS:,}, or all of a trace, unless --duration is given.",
            1,
            MAX_REQUESTS,
        ),
    ] = None
    duration: Annotated[
        float | None, Knob("Requests arrive for so many seconds (of a trace: of the recording).", 1e-3, 1e9)
    ] = None
    arrivals: Annotated[
        str,
        Knob(
            f"How they come: {arrivals.FORMS}. VARIATION is the standard deviation of gaps over their mean: 1 is poisson, "
            f"the default of bursty {arrivals.DEFAULT_VARIATION:g}."
        ),
    ] = "poisson"
    prompt_tokens: Annotated[str, Knob(f"Lengths of prompts: {lengths.FORMS} (one length a line).")] = "512"
    output_tokens: Annotated[str, Knob(f"Lengths of outputs, each exactly so long: {lengths.FORMS}.")] = "128"
    trace: Annotated[
        str | None,
        Knob(
            "Recorded requests instead: JSON lines with time, prompt_tokens, output_tokens and optionally prefix and "
            "prefix_tokens, or a CSV file with the columns of Azure's or BurstGPT's traces."
        ),
    ] = None
    seed: Annotated[int, Knob("The same seed is the same load, and the same report.", 0, (1 << 63) - 1)] = 0

    replicas: Annotated[int, Knob("Engines that serve side by side.", 1, 100_000)] = 1
    routing: Annotated[
        str,
        Knob(
            "Which replica a request goes to: one after the other; the one with the fewest outstanding requests; or where "
            "others with its prefix went, whose prefix cache has it, unless that one is much more loaded.",
            choices=CHOICES["routing"],
        ),
    ] = "round-robin"
    allocation: Annotated[
        str,
        Knob(
            "KV blocks as they are needed, anywhere; or one run of blocks for prompt and output at admission.",
            choices=CHOICES["allocation"],
        ),
    ] = "paged"
    batching: Annotated[
        str,
        Knob(
            "Requests enter at any step; or a batch is filled and nobody enters until all of it have ended.",
            choices=CHOICES["batching"],
        ),
    ] = "continuous"
    order: Annotated[
        str,
        Knob(
            "mixed, as the engine does it: every step holds all decodes, and prompts in what is left; prefill-first: while "
            "there are prompts, steps hold nothing else; decode-first: prompts only in steps in which nobody decodes.",
            choices=CHOICES["order"],
        ),
    ] = "mixed"
    prefix_cache: Annotated[
        bool | None,
        Knob(
            "Keep K and V of full blocks, as the engine does, for prompts that begin alike and for preempted requests. "
            "Default: on where a trace names prefixes and allocation is paged."
        ),
    ] = None
    prefill_replicas: Annotated[
        int,
        Knob(
            "So many of the replicas compute prompts only and send K and V to the others, which decode. 0: all do both.",
            0,
            100_000,
        ),
    ] = 0
    transfer_bandwidth: Annotated[
        float | None, Knob("Bytes a second from a replica that computes prompts to one that decodes.", 1.0, 1e18)
    ] = None

    max_model_len: Annotated[int | None, _ENGINE["max_model_len"]] = None
    max_num_seqs: Annotated[int, _ENGINE["max_num_seqs"]] = default_of("max_num_seqs")
    max_batched_tokens: Annotated[int, _ENGINE["max_batched_tokens"]] = default_of("max_batched_tokens")
    max_prefill_chunk: Annotated[int | None, _ENGINE["max_prefill_chunk"]] = None
    block_size: Annotated[int, _ENGINE["block_size"]] = default_of("block_size")
    num_kv_blocks: Annotated[int | None, _ENGINE["num_kv_blocks"]] = None
    memory_fraction: Annotated[
        float,
        Knob("Share of a device's memory for weights, KV cache and workspace, as of pagoda plan.", 0.01, 1.0),
    ] = 0.9

    slo: Annotated[
        str | None,
        Knob("An objective: seconds that a request may take, such as ttft=0.5,tpot=0.05,e2e=20; any of the three."),
    ] = None
    slo_percentile: Annotated[
        float, Knob("The objective is kept when so many percent of the requests meet it.", 0.0, 100.0)
    ] = 99.0
    warm_up: Annotated[
        float, Knob("Requests that arrive in the first so many seconds are simulated, but not counted.", 0.0, 1e9)
    ] = 0.0
    price_per_hour: Annotated[
        float | None, Knob("Of one device, in any currency: the report has the cost of a million tokens.", 0.0, 1e9)
    ] = None
    find_limit: Annotated[bool, Knob("Find the rate at which the objective breaks, beginning at --rate.")] = False
    search: Annotated[bool, Knob("Find the fewest devices that keep the objective: replicas × --devices.")] = False
    most_replicas: Annotated[int, Knob("With --search: try no more replicas than this.", 1, 100_000)] = 64
    compare: Annotated[
        str | None,
        Knob(
            "Run the same load under each choice of one of these, and show them side by side.", choices=tuple(CHOICES)
        ),
    ] = None

    calibration: Annotated[str | None, Knob("The clock: a file that pagoda bench calibrate saved, of this model.")] = (
        None
    )
    efficiency: Annotated[
        float | None,
        Knob(
            "The clock is the roofline instead: each step takes the least time that the device permits, divided by this. At "
            "1 nothing can be faster.",
            0.01,
            1.0,
        ),
    ] = None

    def __post_init__(self) -> None:
        check_knobs(self)
        for field, value, limit in _contradictions(self):
            raise InvalidValueError(field, value, limit)

    @property
    def objective(self) -> Slo | None:
        """Raises `InvalidValueError`."""
        from pagoda.simulation.slo import parse_slo  # numpy is not loaded for the sake of `pagoda --help`

        return None if self.slo is None else parse_slo("--slo", self.slo, self.slo_percentile)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Devices of one replica; several with --search. Raises `InvalidValueError`."""
        limit = "a number from 1 to 9,999" + (
            ", or several as 1,2,4" if self.search else "; several only with --search"
        )
        parts = self.devices.split(",")
        if not all(part.isascii() and part.isdigit() and len(part) < 5 and int(part) for part in parts):
            raise InvalidValueError("--devices", self.devices, limit)
        if len(parts) > (32 if self.search else 1):
            raise InvalidValueError("--devices", self.devices, limit)
        return tuple(int(part) for part in parts)


Contradiction = tuple[str, object, str]


def _contradictions(settings: SimulationSettings) -> Iterator[Contradiction]:
    """What cannot be meant together: (field, value, what it must be). Nothing that was asked for is left out silently."""
    if settings.max_prefill_chunk is not None and settings.max_prefill_chunk > settings.max_batched_tokens:
        limit = f"at most max_batched_tokens ({settings.max_batched_tokens:,})"
        yield "max_prefill_chunk", settings.max_prefill_chunk, limit
    if settings.efficiency is not None and settings.calibration is not None:
        yield "efficiency", settings.efficiency, "left out with --calibration: there is one clock"
    yield from _of_the_load(settings)
    yield from _of_the_cluster(settings)
    yield from _of_the_question(settings)


def _of_the_load(settings: SimulationSettings) -> Iterator[Contradiction]:
    if settings.trace is not None:
        names = ("arrivals", "prompt_tokens", "output_tokens", "seed")
        yield from _changed(settings, "left out with --trace, which has them", *names)
    elif settings.arrivals == "at-once":
        yield from _changed(settings, "left out where all requests come at once", "rate", "duration", "find_limit")
    elif settings.rate is None:
        yield "rate", None, "given, in requests a second (or --trace, or --arrivals at-once)"


def _of_the_cluster(settings: SimulationSettings) -> Iterator[Contradiction]:
    if settings.routing == "prefix-aware" and settings.trace is None:
        yield "routing", settings.routing, "round-robin or least-loaded without --trace: only a trace names prefixes"
    if settings.prefix_cache and (settings.allocation != "paged" or settings.compare == "allocation"):
        yield "prefix_cache", True, "left out with contiguous allocation, where nothing is shared"
    if not settings.prefill_replicas:
        yield from _changed(settings, "left out without --prefill-replicas", "transfer_bandwidth")
        return
    if settings.prefill_replicas >= settings.replicas:
        yield "prefill_replicas", settings.prefill_replicas, f"less than --replicas ({settings.replicas:,})"
    if settings.transfer_bandwidth is None:
        yield "transfer_bandwidth", None, "given with --prefill-replicas, in bytes a second"


def _of_the_question(settings: SimulationSettings) -> Iterator[Contradiction]:
    if settings.slo is None:
        names = ("find_limit", "search", "slo_percentile")
        yield from _changed(settings, "left out without --slo, the objective to keep", *names)
    if settings.search:
        others = ("replicas", "prefill_replicas", "find_limit", "compare")
        yield from _changed(settings, "left out with --search", *others)
    else:
        yield from _changed(settings, "left out without --search", "most_replicas")
    if settings.find_limit:
        yield from _changed(settings, "left out with --find-limit", "compare")


def _changed(settings: SimulationSettings, limit: str, *names: str) -> Iterator[Contradiction]:
    """Those of the fields that do not have their default."""
    for name in names:
        if (value := getattr(settings, name)) != default_of(name, SimulationSettings):
            yield name, value, limit
