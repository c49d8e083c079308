"""What `pagoda simulate` finds out, as plain data: the object that `--json` prints and the terminal view shows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagoda.cli.planning_question import Typed, ask
from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError, InvalidValueError
from pagoda.planning.deployment import Deployment, deploy
from pagoda.planning.ledger import MemoryPlan
from pagoda.progress import Progress
from pagoda.simulation.arrivals import parse_arrivals
from pagoda.simulation.cluster import CHOICES, ClusterConfig
from pagoda.simulation.deployed import Clock, clock_of, costs_of, memory_of
from pagoda.simulation.lengths import parse_lengths
from pagoda.simulation.load import DrawnLoad, Load, TraceLoad
from pagoda.simulation.report import Terms, summarize
from pagoda.simulation.scenario import Scenario, compare, find_limit, search
from pagoda.simulation.settings import DEFAULT_REQUESTS, SimulationSettings

# The native kernels read keys 16 at a time, so the engine refuses other blocks on the CPU.
CPU_BLOCK_MULTIPLE = 16


def simulation_report(settings: SimulationSettings, bars: Progress) -> dict[str, Any]:
    """The whole report. What can be refused without opening the model is refused first.

    Raises `PagodaError` by the option's name.
    """
    sizes, load = settings.sizes, load_of(settings)
    terms = Terms(
        slo=settings.objective,
        warm_up=settings.warm_up,
        num_devices=sizes[0] * settings.replicas,
        price_per_hour=settings.price_per_hour,
    )
    if settings.search:
        return _searched(settings, load, terms, bars)
    replica = _Replica(settings, sizes[0])
    scenario = replica.scenario(settings, load, terms)
    head = _head(settings, replica, scenario)
    if settings.find_limit:
        return {**head, **_limit(scenario, bars)}
    if settings.compare is not None:
        field = settings.compare
        runs = compare(scenario, field, _choices(settings, field), bars)
        return {**head, "compared": field, "variants": [{field: name, **summarize(run, terms)} for name, run in runs]}
    return {**head, **summarize(scenario.run(bars), terms)}


def load_of(settings: SimulationSettings) -> Load:
    """Raises `InvalidValueError`; what `read_trace` raises, for the first line of a trace that is wrong."""
    if settings.trace is not None:
        trace = TraceLoad.of(Path(settings.trace), settings.requests, settings.duration)
        if settings.rate is None and not settings.find_limit:
            return trace
        if trace.rate is None:
            limit = "left out for a trace whose requests all come at one time"
            raise InvalidValueError("--rate", settings.rate, limit)
        return trace if settings.rate is None else trace.at(settings.rate)
    unbounded = settings.requests is None and settings.duration is None
    return DrawnLoad(
        process=parse_arrivals("--arrivals", settings.arrivals),
        rate=settings.rate,
        prompt_tokens=parse_lengths("--prompt-tokens", settings.prompt_tokens),
        output_tokens=parse_lengths("--output-tokens", settings.output_tokens),
        seed=settings.seed,
        requests=DEFAULT_REQUESTS if unbounded else settings.requests,
        duration=settings.duration,
    )


class _Replica:
    """A model on so many devices, as the planner has it. Raises what `ask`, `deploy` and `plan_memory` raise."""

    def __init__(self, settings: SimulationSettings, num_devices: int) -> None:
        question = ask(
            Typed(
                model=settings.model,
                revision=settings.revision,
                device=settings.device,
                devices=num_devices,
                weight_format=settings.weight_format,
                kv_format=settings.kv_format,
                memory_fraction=settings.memory_fraction,
                block_size=settings.block_size,
                max_batched_tokens=settings.max_batched_tokens,
                calibration=settings.calibration,
            )
        )
        if question.threads is not None and settings.block_size % CPU_BLOCK_MULTIPLE:
            limit = f"a multiple of {CPU_BLOCK_MULTIPLE} on the CPU"
            raise InvalidValueError("--block-size", settings.block_size, limit)
        self.config = EngineConfig(
            model=settings.model,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            max_batched_tokens=settings.max_batched_tokens,
            max_prefill_chunk=settings.max_prefill_chunk,
            block_size=settings.block_size,
            num_kv_blocks=settings.num_kv_blocks,
            memory_fraction=settings.memory_fraction,
        )
        self.deployment: Deployment = deploy(question)
        self.memory: MemoryPlan = memory_of(self.deployment, self.config)
        self.clock: Clock = clock_of(
            self.deployment, calibrated=settings.calibration is not None, efficiency=settings.efficiency
        )

    def scenario(self, settings: SimulationSettings, load: Load, terms: Terms) -> Scenario:
        choices: dict[str, Any] = {name: getattr(settings, name) for name in CHOICES}
        cluster = ClusterConfig(
            num_blocks=self.memory.num_blocks,
            block_size=settings.block_size,
            max_num_seqs=settings.max_num_seqs,
            max_batched_tokens=settings.max_batched_tokens,
            prefill_chunk=self.config.prefill_chunk,
            num_replicas=settings.replicas,
            prefix_cache=_has_prefix_cache(settings, load),
            prefill_replicas=settings.prefill_replicas,
            transfer_bandwidth=settings.transfer_bandwidth,
            window=self.deployment.spec.widest_window,
            **choices,
        )
        return Scenario(
            load=load,
            cluster=cluster,
            costs=costs_of(self.deployment),
            timer=self.clock.timer,
            max_model_len=self.memory.max_model_len,
            terms=terms,
            devices_per_replica=self.deployment.question.num_devices,
        )


def _has_prefix_cache(settings: SimulationSettings, load: Load) -> bool:
    """`prefix_cache` with its default resolved: the engine's, but off where it would find nothing and only take time, and
    where allocations are compared, which then differ in nothing else."""
    if settings.prefix_cache is not None:
        return settings.prefix_cache
    return load.has_prefixes and settings.allocation == "paged" and settings.compare != "allocation"


def _choices(settings: SimulationSettings, field: str) -> Sequence[str]:
    """What there is to compare: without a trace nobody has a prefix to go by."""
    return [choice for choice in CHOICES[field] if settings.trace is not None or choice != "prefix-aware"]


def _limit(scenario: Scenario, bars: Progress) -> dict[str, Any]:
    """The breaking point, and the report of the highest rate at which the objective is kept."""
    found = find_limit(scenario, bars)
    limit = {
        "kept_rate": found.kept,
        "broken_rate": found.broken,
        "trials": [dataclasses.asdict(trial) for trial in found.trials],
    }
    if found.kept is None:
        return {"limit": limit}
    at_limit = dataclasses.replace(scenario, load=scenario.load.at(found.kept))
    return {"limit": limit, "load": _load(at_limit.load), **summarize(at_limit.run(bars), scenario.terms)}


def _searched(settings: SimulationSettings, load: Load, terms: Terms, bars: Progress) -> dict[str, Any]:
    """Every candidate, and the report of the best of them."""
    slo = terms.slo
    assert slo is not None

    @functools.cache
    def replica(size: int) -> _Replica:
        try:
            return _Replica(settings, size)
        except InvalidValueError as error:
            if error.field != "--devices":
                raise
            raise DoesNotFitError(f"{size} must be {error.limit}") from None

    def scenario(size: int) -> Scenario:
        return replica(size).scenario(settings, load, terms)

    found = search(scenario, slo, settings.sizes, settings.most_replicas, bars)
    best = found.best
    candidates = [{**dataclasses.asdict(each), "devices": each.devices} for each in found.candidates]
    if best is None:
        return {"model": settings.model, "search": {"best": None, "candidates": candidates}}
    chosen = scenario(best.devices_per_replica).with_replicas(best.replicas)
    return {
        **_head(settings, replica(best.devices_per_replica), chosen),
        "search": {"best": {**dataclasses.asdict(best), "devices": best.devices}, "candidates": candidates},
        **summarize(chosen.run(bars), chosen.terms),
    }


def _head(settings: SimulationSettings, replica: _Replica, scenario: Scenario) -> dict[str, Any]:
    """What was simulated."""
    deployment, memory, clock = replica.deployment, replica.memory, replica.clock
    device = deployment.question.device
    return {
        "model": settings.model,
        "device": {"name": device.name, "source": device.source},
        "devices_per_replica": scenario.devices_per_replica,
        "weight_format": deployment.weight_format,
        "kv_format": deployment.kv_format,
        "memory": {
            "bytes": memory.usable_bytes,
            "weight_bytes": memory.weight_bytes,
            "workspace_bytes": memory.workspace_bytes,
            "kv_bytes": memory.kv_bytes,
            "kv_bytes_per_token": memory.kv_bytes_per_token,
            "max_model_len": memory.max_model_len,
        },
        "clock": {
            "kind": clock.kind,
            "source": clock.timer.source,
            "request_seconds": clock.timer.request_seconds,
            "spread": list(clock.timer.spread),
        },
        "load": _load(scenario.load),
        "cluster": dataclasses.asdict(scenario.cluster),
    }


def _load(load: Load) -> dict[str, Any]:
    described: dict[str, Any] = {"rate": load.rate, "requests": load.num_requests}
    if isinstance(load, DrawnLoad):
        described |= {
            "variation": None if load.process.at_once else load.process.variation,
            "mean_prompt_tokens": load.prompt_tokens.mean,
            "mean_output_tokens": load.output_tokens.mean,
            "duration": load.duration,
            "seed": load.seed,
        }
    if isinstance(load, TraceLoad):
        described |= {"trace": str(load.path), "speed": load.speed}
    return described
