"""`pagoda simulate` in the terminal: the report as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from pagoda.cli.plan_text import duration, rate, significant
from pagoda.cli.printed import printed
from pagoda.planning.ledger import binary_size, decimal_size

LEAST_WIDTH = 110
CLOCKS = {
    "calibrated": "this engine with this model",
    "estimated": "an estimate",
    "bound": "the roofline, not an engine",
}
LATENCIES = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "end to end"}
COLUMNS = ("mean", "p50", "p90", "p95", "p99")
Report = Mapping[str, Any]


def show(report: Report) -> None:
    """Prints the report of `simulation.simulation_report` on stdout."""
    with printed(LEAST_WIDTH) as console:
        for part in _parts(report):
            console.print(part)


def _parts(report: Report) -> list[Table | str]:
    parts: list[Table | str] = []
    if "search" in report:
        notes = [
            f"{_counted(each['devices'], 'device')}: {each['note']}"
            for each in report["search"]["candidates"]
            if each["note"]
        ]
        parts += [_candidates(report["search"]), *notes, _found(report["search"]), ""]
    if "limit" in report:
        parts += [_trials(report["limit"]), _broken(report["limit"]), ""]
    if "device" in report:
        parts = [_head(report), "", *parts]
    if "variants" in report:
        parts.append(_variants(report))
    if "ttft_seconds" in report:
        parts += [_latencies(report), "", _facts(report)]
    return parts


def _head(report: Report) -> Table:
    cluster, load, memory, clock = (report[name] for name in ("cluster", "load", "memory", "clock"))
    devices = f"{report['devices_per_replica']:,} × " if report["devices_per_replica"] > 1 else ""
    replicas = f"{cluster['num_replicas']:,} replicas of " if cluster["num_replicas"] > 1 else ""
    table = _plain(f"{report['model']} on {replicas}{devices}{report['device']['name']}")
    table.add_row("load", _load(load))
    table.add_row(
        "each device",
        f"{binary_size(memory['weight_bytes'])} of weights ({report['weight_format']}), {binary_size(memory['kv_bytes'])} "
        f"of KV cache ({report['kv_format']}): {cluster['num_blocks']:,} blocks of {cluster['block_size']} tokens",
    )
    table.add_row(
        "a step",
        f"at most {cluster['max_num_seqs']:,} requests and {cluster['max_batched_tokens']:,} tokens; "
        f"{cluster['allocation']}, {cluster['batching']}, {cluster['order']}; {cluster['routing']}",
    )
    if cluster["prefill_replicas"]:
        sent = f"and send K and V at {decimal_size(round(cluster['transfer_bandwidth']))}/s to those that decode"
        table.add_row("prompts", f"{cluster['prefill_replicas']:,} of the replicas compute them {sent}")
    low, high = clock["spread"]
    spread = f"; 90% of measured steps took {low:.2f} to {high:.2f} times as long" if low < high else ""
    table.add_row("clock", f"{CLOCKS[clock['kind']]} ({clock['source']}{spread})")
    return table


def _load(load: Report) -> str:
    requests = f"{load['requests']:,} requests"
    said = f"{requests} at once" if load["rate"] is None else f"{requests}, {significant(load['rate'])} a second"
    if "trace" in load:
        return f"{said}, from {load['trace']}"
    tokens = f"{load['mean_prompt_tokens']:,.0f} prompt and {load['mean_output_tokens']:,.0f} output tokens on average"
    kind = {0.0: ", evenly spaced", 1.0: " (Poisson)", None: ""}
    variation = load["variation"]
    return f"{said}{kind.get(variation, f', in bursts (variation {variation})')}; {tokens}; seed {load['seed']}"


def _latencies(report: Report) -> Table:
    table = _figures("", "", *COLUMNS)
    for name, words in LATENCIES.items():
        spread = report[f"{name}_seconds"]
        table.add_row(words, *(_duration(spread[column]) for column in COLUMNS))
    return table


def _facts(report: Report) -> Table:
    table = _plain("")
    refused = f", {report['refused']:,} refused" if report["refused"] else ""
    left_out = f"; {report['left_out']:,} of the warm-up left out" if report["left_out"] else ""
    table.add_row("requests", f"{report['requests']:,} served in {_duration(report['seconds'])}{refused}{left_out}")
    table.add_row(
        "throughput",
        f"{_rate(report['requests_per_second'])} requests/s, {_rate(report['output_tokens_per_second'])} output tokens/s, "
        f"{_rate(report['total_tokens_per_second'])} tokens/s in all",
    )
    slo = report["slo"]
    if slo is not None:
        kept = "kept" if slo["kept"] else "BROKEN"
        table.add_row("objective", f"{_objective(slo)}: {kept}, {slo['attainment']:.2%} of requests meet it")
        table.add_row("goodput", f"{_rate(slo['goodput'])} requests/s within every limit")
    kv = report["kv"]
    stranded = f"; {kv['stranded']:.1%} free but in pieces too small" if kv["stranded"] else ""
    table.add_row(
        "KV cache", f"{kv['use']:.1%} in use, {kv['peak']:.1%} at most; {kv['waste']:.1%} of that empty{stranded}"
    )
    lost = f" ({report['recomputed_tokens']:,} tokens computed again)" if report["preemptions"] else ""
    table.add_row("preemptions", f"{report['preemptions']:,}{lost}")
    if report["cluster"]["prefix_cache"]:
        table.add_row("prefix cache", f"{report['found_tokens']:,} tokens of prompts were found and not computed")
    per_step = "none" if report["tokens_per_step"] is None else significant(report["tokens_per_step"])
    table.add_row("steps", f"{report['steps']:,} of {per_step} tokens; busy {report['utilisation']:.1%} of the time")
    cost = report["cost"]
    if cost is not None:
        output, everything = (_price(cost[f"per_million_{name}tokens"]) for name in ("output_", ""))
        table.add_row(
            "cost", f"{output} a million output tokens, {everything} a million of all; {cost['per_hour']:,.2f} an hour"
        )
    return table


def _variants(report: Report) -> Table:
    """One row a variant, the figures that tell them apart."""
    field, variants = report["compared"], report["variants"]
    table = _figures(
        f"By {field}",
        field,
        "TTFT p50",
        "p99",
        "TPOT p50",
        "p99",
        "tokens/s",
        "refused",
        "preempted",
        "KV used",
        "wasted",
    )
    for variant in variants:
        ttft, tpot, kv = variant["ttft_seconds"], variant["tpot_seconds"], variant["kv"]
        table.add_row(
            variant[field],
            *(_duration(spread[column]) for spread in (ttft, tpot) for column in ("p50", "p99")),
            _rate(variant["output_tokens_per_second"]),
            f"{variant['refused']:,}",
            f"{variant['preemptions']:,}",
            f"{kv['use']:.1%}",
            f"{kv['waste']:.1%}",
        )
    return table


def _trials(limit: Report) -> Table:
    table = _figures("Rates tried", "requests/s", "meet the objective", "kept")
    for trial in sorted(limit["trials"], key=lambda trial: trial["rate"]):
        table.add_row(significant(trial["rate"], 4), f"{trial['attainment']:.2%}", _yes(trial["kept"]))
    return table


def _broken(limit: Report) -> str:
    kept, broken = (
        None if rate is None else significant(rate, 4) for rate in (limit["kept_rate"], limit["broken_rate"])
    )
    if kept is None:
        return f"The objective is not kept at any rate down to {broken} requests/s."
    if broken is None:
        return f"The objective is kept up to {kept} requests/s, the highest rate tried: more requests may break it."
    return f"The objective is kept at {kept} requests/s and breaks at {broken}. What follows is of {kept}."


def _candidates(search: Report) -> Table:
    table = _figures("Devices tried", "devices", "replicas", "devices each", "meet the objective", "kept")
    for each in sorted(search["candidates"], key=lambda each: (each["devices_per_replica"], each["replicas"])):
        share = "not simulated" if each["attainment"] is None else f"{each['attainment']:.2%}"
        numbers = (f"{each[name]:,}" for name in ("devices", "replicas", "devices_per_replica"))
        table.add_row(*numbers, share, _yes(each["kept"]))
    return table


def _found(search: Report) -> str:
    best = search["best"]
    if best is None:
        return (
            "No candidate keeps the objective: try more replicas (--most-replicas), other --devices, or a lower rate."
        )
    return (
        f"The fewest devices: {best['devices']:,}, as {_counted(best['replicas'], 'replica')} of "
        f"{best['devices_per_replica']:,}. What follows is of these."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _objective(slo: Report) -> str:
    limits = [f"{name.upper()} ≤ {_duration(slo[name])}" for name in LATENCIES if slo[name] is not None]
    return f"{', '.join(limits)} for {slo['percentile']:g}%"


def _plain(title: str) -> Table:
    table = Table(
        box=None, show_header=False, pad_edge=False, title=title or None, title_justify="left", title_style="bold"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    return table


def _figures(title: str, first: str, *headers: str) -> Table:
    table = Table(
        box=None, pad_edge=False, title=title or None, title_justify="left", title_style="bold", header_style="dim"
    )
    table.add_column(first, no_wrap=True)
    for header in headers:
        table.add_column(header, justify="right")
    return table


def _duration(seconds: float | None) -> str:
    return "none" if seconds is None else duration(seconds)


def _rate(per_second: float | None) -> str:
    return "none" if per_second is None else rate(per_second)


def _price(amount: float | None) -> str:
    return "none" if amount is None else significant(amount)


def _yes(kept: bool) -> str:
    return "yes" if kept else "no"
