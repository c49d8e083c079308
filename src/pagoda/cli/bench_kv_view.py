"""What `pagoda bench kv-cache` says, as tables and sentences: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagoda.cli.plan_text import Grid, significant
from pagoda.planning.ledger import binary_size

Report = Mapping[str, Any]


def headline(report: Report) -> str:
    return f"The KV cache of {report['model']}"


def subject(report: Report) -> str:
    """What was measured, in a line."""
    kernels = report["instruction_set"] or report["dtype"]
    return (
        f"Greedy tokens after a prompt of {report['prompt_tokens']} tokens, alone, on {report['device']} ({kernels}, "
        f"{report['threads']} threads), blocks of {report['block_size']} tokens."
    )


def grids(report: Report) -> list[Grid]:
    return [_comparison(report["lengths"]), _allocation(report["allocation"])]


def verdict(report: Report) -> str:
    """What the comparison shows at the longest length."""
    last = report["lengths"][-1]
    cached, anew = last["cached"], last["recomputed"]
    return (
        f"At {last['tokens']:,} tokens the cache spares {significant(anew['ms_per_token'] / cached['ms_per_token'])} × of a "
        f"token's time and {significant(anew['flops_per_token'] / cached['flops_per_token'])} × of its FLOPs; for all tokens "
        f"together {significant(anew['ms'] / cached['ms'])} × and {significant(anew['flops'] / cached['flops'])} ×."
    )


def equality(report: Report) -> str:
    """Whether both ways gave the same, and how much of it was compared."""
    last = report["lengths"][-1]
    compared = last["compared_tokens"]
    every = last["tokens"] - last["prompt_tokens"]
    which = "every token" if compared == every else f"{compared:,} of {every:,} tokens, evenly spaced"
    equal = all(each["equal_ids"] for each in report["lengths"])
    bits = all(each["equal_logprobs"] for each in report["lengths"])
    if not equal:
        return f"The ids differ ({which} compared)."
    numbers = "their log-probabilities too, to the last bit" if bits else "their log-probabilities not to the last bit"
    return f"Equal ids in both ways, {numbers} ({which} compared; between these, time is interpolated)."


def damage_lines(report: Report) -> list[str]:
    """What became of the text whose block was overwritten."""
    found = report["damage"]
    first, last = found["overwritten_positions"]
    lines = [
        f"K and V of positions {first} to {last} were overwritten after token {found['overwritten_after_token']} of "
        f"{found['tokens']}."
    ]
    if found["first_changed_token"] is None:
        changed = found["first_changed_logprob"]
        numbers = "nothing changed" if changed is None else f"the probabilities changed from token {changed} on"
        return [*lines, f"The text did not depart from the undisturbed one; {numbers}."]
    numbers, text = found["first_changed_logprob"], found["first_changed_token"]
    return [
        *lines,
        f"The probabilities changed at token {numbers}, the text at token {text}:",
        f"  until then    {_end(found['equal_text'])!r}",
        f"  undisturbed   {_beginning(found['text'])!r}",
        f"  overwritten   {_beginning(found['damaged_text'])!r}",
    ]


def _comparison(lengths: Sequence[Report]) -> Grid:
    headers = ("tokens", "", "ms a token", "ms in all", "FLOP a token", "FLOP in all", "bytes a token", "bytes in all")
    rows = []
    for each in lengths:
        for name, shown in (("cached", "with the cache"), ("recomputed", "recomputed")):
            way = each[name]
            about = "~" if way.get("ms_is_interpolated") else ""
            rows.append(
                (
                    f"{each['tokens']:,}" if name == "cached" else "",
                    shown,
                    significant(way["ms_per_token"]),
                    about + significant(way["ms"]),
                    *(_scaled(way[key]) for key in ("flops_per_token", "flops", "bytes_per_token", "bytes")),
                )
            )
    note = "~: measured at some tokens, interpolated between. Bytes: weights, and K and V read and written."
    return Grid("With the cache, and without", headers, tuple(rows), note=note)


def _allocation(found: Report) -> Grid:
    headers = (
        "",
        "admitted at once",
        "running, mean",
        "most",
        "steps",
        "seconds",
        "wasted",
        "of what is given out",
        "gaps",
    )
    rows = []
    for name in ("paged", "contiguous"):
        way = found[name]
        rows.append(
            (
                name,
                f"{way['admitted_at_once']}",
                f"{way['mean_running']:.1f}",
                f"{way['most_running']}",
                f"{way['steps']:,}",
                significant(way["seconds"]),
                binary_size(round(way["mean_bytes_wasted"])),
                f"{way['wasted_share']:.0%}",
                f"{way['steps_blocked_by_gaps']:,}",
            )
        )
    equal = "the same" if found["equal_outputs"] else "DIFFERENT"
    note = (
        f"{found['requests']} requests of random length, max_tokens {found['max_tokens']}, in {found['blocks']} blocks; "
        f"outputs are {equal}. Wasted: given out, but without K and V of a token, mean over steps. Gaps: steps after which the "
        "next request waits although enough blocks are free, but not in one run."
    )
    return Grid("Paged and contiguous allocation", headers, tuple(rows), note=note)


def _scaled(value: float) -> str:
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{significant(value / size)} {unit}"
    return significant(value)


def _beginning(text: str) -> str:
    return text if len(text) <= 90 else text[:90] + "…"


def _end(text: str) -> str:
    return text if len(text) <= 90 else "…" + text[-90:]
