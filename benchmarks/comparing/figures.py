"""From samples to figures: medians, ratios within a round, and whether a target is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from comparing.cases import PAGODA, Case
from comparing.engines import Sample

Rounds = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Pagoda's rate over a peer's: the median over rounds, its smallest and largest. target: None where there is none."""

    peer: str
    median: float
    least: float
    most: float
    target: float | None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.median >= self.target


def ratios(case: Case, rounds: Rounds) -> list[Ratio]:
    """One for each peer that was measured. A round's ratio is of neighbours in time, which the same noise met."""
    found = []
    for peer, samples in rounds.items():
        if peer == PAGODA or PAGODA not in rounds:
            continue
        values = [
            ours.rate(case.load) / theirs.rate(case.load) for ours, theirs in zip(rounds[PAGODA], samples, strict=False)
        ]
        if values:
            found.append(Ratio(peer, median(values), min(values), max(values), case.targets.get(peer)))
    return found


def report(case: Case, rounds: Rounds) -> dict[str, Any]:
    """One case as plain data. Rates are tokens a second."""
    rates = {kind: median(sample.rate(case.load) for sample in samples) for kind, samples in rounds.items() if samples}
    compared = [
        {"peer": r.peer, "median": r.median, "least": r.least, "most": r.most, "target": r.target, "met": r.met}
        for r in ratios(case, rounds)
    ]
    return {
        "model": case.model,
        "load": case.load.name,
        "rounds": {kind: len(samples) for kind, samples in rounds.items()},
        "tokens_per_second": rates,
        "ratios": compared,
        "without_figures": [peer for peer in case.targets if peer not in rates],
        **_own(case, rounds.get(PAGODA, ())),
    }


def _own(case: Case, samples: Sequence[Sample]) -> dict[str, Any]:
    """What only Pagoda's worker tells, of decode: how near to reading at the limit, and the time outside native calls."""
    decoding = [sample for sample in samples if sample.decode_seconds > 0 and sample.more]
    if case.load.is_prefill or not decoding:
        return {}
    fractions = [s.more["bytes_read"] / s.decode_seconds / s.more["read_bandwidth"] for s in decoding]
    watched = [s.more for s in decoding if s.more["watched_seconds"] > 0]
    return {
        "read_bandwidth": median(s.more["read_bandwidth"] for s in decoding),
        "fraction_of_bandwidth": median(fractions),
        "bandwidth_target": case.bandwidth,
        "overhead": median(1 - more["native_seconds"] / more["watched_seconds"] for more in watched)
        if watched
        else None,
    }


def memory(samples: Sequence[Sample]) -> dict[str, Any] | None:
    """Of Pagoda's process after its loads: anonymous and shared bytes, and 1.1 × the file + KV cache + 200 MB."""
    known = [sample.more for sample in samples if "resident_bytes" in sample.more]
    if not known:
        return None
    last = known[-1]
    resident, limit = last["resident_bytes"], 1.1 * last["file_bytes"] + last["kv_bytes"] + 200e6
    return {
        "resident_bytes": resident,
        "file_bytes": last["file_bytes"],
        "kv_bytes": last["kv_bytes"],
        "limit_bytes": limit,
        "met": resident <= limit,
    }


def table(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of text: rates, then each ratio beside its target."""
    lines = [
        f"{'model':22}{'load':13}{'pagoda':>9}{'peer':>12}{'tokens/s':>10}{'ratio':>7}{'range':>13}{'target':>8}  met"
    ]
    for case in reports:
        ours = case["tokens_per_second"].get(PAGODA)
        head = f"{case['model']:22}{case['load']:13}{_number(ours, 9)}"
        rows = [
            f"{r['peer']:>12}{_number(case['tokens_per_second'][r['peer']], 10)}{r['median']:7.2f}"
            f"{r['least']:7.2f}–{r['most']:5.2f}{_target(r['target']):>8}  {_met(r['met'])}"
            for r in case["ratios"]
        ]
        if case.get("bandwidth_target") is not None:
            reached, target = case["fraction_of_bandwidth"], case["bandwidth_target"]
            read = f"{case['read_bandwidth'] / 1e9:.1f} GB/s"
            rows.append(f"{'bandwidth':>12}{read:>10}{reached:7.2f}{'':13}{target:8.2f}  {_met(reached >= target)}")
        rows += [f"{peer:>12}   no figures" for peer in case["without_figures"]]
        for index, row in enumerate(rows or [""]):
            lines.append((head if index == 0 else " " * len(head)) + row)
    return lines


def _number(value: float | None, width: int) -> str:
    return f"{'—':>{width}}" if value is None else f"{value:{width},.1f}"


def _target(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _met(met: bool | None) -> str:
    return {None: "", True: "yes", False: "no"}[met]
