"""What a simulation is summed up as: the fields of a load generator's summary under the same names, and what only a
simulation sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pagoda.simulation.result import Result
from pagoda.simulation.slo import LATENCIES, Latencies, Seconds, Slo
from pagoda.telemetry.summary import percentile

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a result is counted.

    warm_up: seconds from the first arrival; requests that arrive in them are simulated, but not counted.
    num_devices: of all replicas together. price_per_hour: of one device, in any currency; None: costs are left out.
    """

    slo: Slo | None = None
    warm_up: float = 0.0
    num_devices: int = 1
    price_per_hour: float | None = None


def attainment(result: Result, terms: Terms) -> float:
    """The share of the counted requests that meet the objective, 0 to 1; of none at all: 1. `terms.slo` is given."""
    counted = np.array(result.outcomes.arrival_time) >= result.started + terms.warm_up
    assert terms.slo is not None
    met = terms.slo.met(Latencies.of(result.outcomes))[counted]
    return float(met.mean()) if len(met) else 1.0


def summarize(result: Result, terms: Terms) -> dict[str, Any]:
    """The report, as plain data.

    Counted are all requests, or those that arrive after the warm-up. `seconds` is from the first arrival among them to the
    end of the last; rates are over it, as the load generator's are. What cannot be told (a mean of nothing) is None.
    Blocks, preemptions and steps are of the whole simulation, since they belong to no request.
    """
    outcomes = result.outcomes
    arrival, end = np.array(outcomes.arrival_time), np.array(outcomes.end)
    counted = arrival >= result.started + terms.warm_up
    served = counted & ~np.isnan(end)
    latencies = Latencies.of(outcomes).where(counted)
    seconds = float(end[served].max() - arrival[served].min()) if served.any() else 0.0
    num_served = int(served.sum())
    prompt = int(np.array(outcomes.prompt_tokens)[served].sum())
    output = int(np.array(outcomes.output_tokens)[served].sum())
    return {
        "requests": num_served,
        "refused": int(counted.sum()) - num_served,
        "left_out": len(outcomes) - int(counted.sum()),
        "seconds": seconds,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "requests_per_second": _ratio(num_served, seconds),
        "prompt_tokens_per_second": _ratio(prompt, seconds),
        "output_tokens_per_second": _ratio(output, seconds),
        "total_tokens_per_second": _ratio(prompt + output, seconds),
        **{f"{name}_seconds": _spread(getattr(latencies, name)) for name in LATENCIES},
        "slo": None if terms.slo is None else _slo(terms.slo, latencies, seconds),
        "utilisation": result.utilisation,
        "preemptions": result.num_preemptions,
        **_steps(result),
        "kv": {
            "num_blocks": result.num_blocks,
            "block_size": result.block_size,
            "use": result.kv_use,
            "peak": result.kv_peak,
            "waste": result.kv_waste,
            "stranded": result.kv_stranded,
        },
        "cost": None if terms.price_per_hour is None else _cost(terms, seconds, prompt, output),
    }


def _slo(slo: Slo, latencies: Latencies, seconds: float) -> dict[str, Any]:
    """goodput: requests a second that meet every limit."""
    met = slo.met(latencies)
    share = float(met.mean()) if len(met) else 1.0
    return {
        "ttft": slo.ttft,
        "tpot": slo.tpot,
        "e2e": slo.e2e,
        "percentile": slo.percentile,
        "attainment": share,
        "kept": slo.kept_at(share),
        "goodput": _ratio(int(met.sum()), seconds),
    }


def _steps(result: Result) -> dict[str, Any]:
    steps = sum(use.num_steps for use in result.replicas)
    tokens = sum(use.num_tokens for use in result.replicas)
    return {
        "found_tokens": sum(use.num_found_tokens for use in result.replicas),
        "recomputed_tokens": sum(use.num_lost_tokens for use in result.replicas),
        "steps": steps,
        "tokens_per_step": _ratio(tokens, steps),
        "transferred_bytes": sum(use.transferred_bytes for use in result.replicas),
    }


def _cost(terms: Terms, seconds: float, prompt: int, output: int) -> dict[str, Any]:
    """Every device is paid for all of `seconds`, whether it works or not."""
    price = (terms.price_per_hour or 0.0) * terms.num_devices
    spent = price * seconds / 3600
    return {
        "price_per_hour": terms.price_per_hour,
        "devices": terms.num_devices,
        "per_hour": price,
        "per_million_output_tokens": _ratio(1e6 * spent, output),
        "per_million_tokens": _ratio(1e6 * spent, prompt + output),
    }


def _spread(values: Seconds) -> dict[str, float | None]:
    """The mean, and nearest-rank percentiles; NaN is left out."""
    ascending: list[float] = np.sort(values[~np.isnan(values)]).tolist()
    mean = float(np.mean(ascending)) if ascending else None
    return {"mean": mean, **{f"p{percent}": percentile(ascending, percent) for percent in PERCENTILES}}


def _ratio(amount: float, whole: float) -> float | None:
    return amount / whole if whole > 0 else None
