"""Pagoda and its peers on this machine's CPU, in turn: medians, ratios within a round, and the targets.

    benchmarks/peers/install.sh FOLDER                       # once: an environment for each peer
    python benchmarks/make_model.py MODELS --format q4_0     # once, and q8_0, bf16, safetensors
    python benchmarks/compare_cpu.py --environments FOLDER --models MODELS [--rounds 5] [--only l1.7b-q4_0 …] [--json]

Every engine is a process of its own, loads a model once and waits. A round is one load after the other, each given to all
engines in turn, whose order changes; a round more, before the first, warms up. A peer that is missing or fails is named and
left out. Then come a server under mixed load, the start and the installed size (--parts).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from comparing import figures, mixed, whole
from comparing.cases import LOADS, MODELS, PAGODA, PEERS, SMOLLM2, Case, cases_of, peers_of
from comparing.engines import Engine, EngineError, Sample, engine

from pagoda.loading.default_model import default_model_path
from pagoda.runner.host_cores import usable_cores

# Threads of an engine that has just answered may spin for a while before they sleep.
PAUSE_SECONDS = 0.3
PARTS = ("rates", "mixed", "start", "size")
# Whose figures are files beside each other in the folder of models.
FILES = {SMOLLM2: "", "qwen2.5-0.5b-q4_k_m": "qwen2.5-0.5b-q4_k_m.gguf"}


def measure_model(model: str, cases: Sequence[Case], options: argparse.Namespace) -> dict[str, Any]:
    """Every case of one model, all its engines loaded at once."""
    with ExitStack() as stack:
        engines = _start(model, cases, options, stack)
        rounds: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        for number in range(-1, options.rounds):
            for index, case in enumerate(cases):
                shift = (number + index) % max(1, len(engines))
                for each in (*engines[shift:], *engines[:shift]):
                    sample = _measure(each, case, options.seed + number, engines)
                    if sample is not None and number >= 0:
                        rounds[case.load.name][each.kind].append(sample)
            _progress(f"{model}: round {number + 1} of {options.rounds}")
    own = [sample for by_engine in rounds.values() for sample in by_engine.get(PAGODA, ())]
    return {
        "engines": {each.kind: {"name": each.name, "load_seconds": each.load_seconds} for each in engines},
        "cases": [figures.report(case, rounds[case.load.name]) for case in cases],
        "memory": figures.memory(own),
    }


def _start(model: str, cases: Sequence[Case], options: argparse.Namespace, stack: ExitStack) -> list[Engine]:
    engines = []
    for kind in (PAGODA, *(peer for peer in peers_of(model) if peer in options.peers)):
        started = engine(
            kind,
            options.environments,
            str(model_path(model, kind, options.models)),
            threads=options.threads,
            max_batch=max(case.load.batch for case in cases),
            max_length=max(case.load.length for case in cases),
        )
        try:
            engines.append(stack.enter_context(started))
            _progress(f"{model}: {engines[-1].name} loaded in {engines[-1].load_seconds:.1f} s")
        except EngineError as error:
            _progress(f"{model}: {error}")
    return engines


def _measure(each: Engine, case: Case, seed: int, engines: list[Engine]) -> Sample | None:
    try:
        return each.measure(case.load, seed)
    except EngineError as error:
        _progress(str(error))
        engines.remove(each)
        return None
    finally:
        time.sleep(PAUSE_SECONDS)


def model_path(model: str, kind: str, folder: Path) -> Path:
    """Where a model's file is; vLLM reads safetensors, which have a folder."""
    if model == SMOLLM2:
        return default_model_path()
    return folder / (model if kind == "vllm" else FILES.get(model, f"{model}.gguf"))


def _progress(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path(os.environ.get("PAGODA_PEERS", "build/peers")),
        help="where peers/install.sh made them (default: $PAGODA_PEERS or build/peers)",
    )
    parser.add_argument("--models", type=Path, default=Path("build/models"), help="where make_model.py wrote")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL", help=", ".join(MODELS))
    loads = tuple(load.name for load in LOADS)
    parser.add_argument("--loads", nargs="+", choices=loads, default=loads, metavar="LOAD", help=", ".join(loads))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of every engine (default: all cores)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round's prompts")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    machine = {"python": platform.python_version(), "machine": platform.machine(), "threads": options.threads}
    report: dict[str, Any] = {**machine, "rounds": options.rounds, "models": {}}
    for model in options.only if "rates" in options.parts else ():
        if cases := cases_of(model, tuple(options.loads)):
            report["models"][model] = measure_model(model, cases, options)
    if "mixed" in options.parts:
        report["mixed"] = mixed.compare(
            options.environments, threads=options.threads, rounds=options.rounds, seed=options.seed, say=_progress
        )
    if "start" in options.parts:
        models = {model: model_path(model, PAGODA, options.models) for model in (SMOLLM2, "l1.7b-q4_0")}
        report["start"] = whole.starts(models, options.rounds, options.environments)
    if "size" in options.parts:
        report["size"] = whole.installed_size(options.environments)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print("\n".join(lines(report)))


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    models = report["models"]
    shown = figures.table([case for model in models.values() for case in model["cases"]]) if models else []
    for name, model in models.items():
        if model["memory"]:
            shown.append(whole.memory_line(name, model["memory"]))
        for case in model["cases"]:
            if case["load"] == "decode 16" and case.get("overhead") is not None:
                shown.append(
                    f"{name}: {case['overhead']:.1%} of a step at batch 16 is outside native calls (target 5%)"
                )
    if "mixed" in report:
        shown += mixed.lines(report["mixed"])
    for name, start in report.get("start", {}).items():
        shown.append(whole.start_line(name, start))
    if "size" in report:
        shown.append(whole.size_line(report["size"]))
    return shown


if __name__ == "__main__":
    main()
