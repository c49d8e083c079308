"""What `pagoda simulate` says of this machine against what a real server does here, under the same trace.

    python benchmarks/validate_simulation.py [MODEL] [--rates 2,3.5,20] [--requests 50] [--calibrate 60] [--rounds 1] [--json]

In each round, one after the other: the machine's limits are measured, a calibration is run, a server answers requests that
arrive at random (Poisson) at each of the rates, the limits are measured again; then the same arrivals are simulated, with the
calibration and with the limits alone. Of the two bandwidths the lower counts: more than that comes and goes on a shared
machine. Errors are of the medians of TTFT, TPOT and end-to-end latency, and of output tokens a second: (simulated - measured)
/ measured. A round's simulation is compared with that round's server only, as a machine's speed drifts from minute to minute;
of several rounds, each with arrivals of its own, the median error is told, and the median size of the errors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from serving import client
from serving.load import Request, Timeline, summary
from serving.processes import Server, Setting, server
from serving.watch import Watch

PAGODA = (sys.executable, "-c", "from pagoda.cli.main import main; main()")
FIGURES = ("ttft", "tpot", "e2e")
SIMULATED = ("calibrated", "uncalibrated")


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests, and when each is sent: seconds from the first."""

    rate: float
    times: list[float]
    requests: list[Request]

    def write(self, path: Path) -> None:
        lines = (
            {"time": time, "prompt_tokens": len(request.prompt_token_ids), "output_tokens": request.max_tokens}
            for time, request in zip(self.times, self.requests, strict=True)
        )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def poisson(rate: float, options: argparse.Namespace, vocabulary: list[int], seed: int) -> Trace:
    numbers = random.Random(seed)
    times = [0.0]
    while len(times) < options.requests:
        times.append(times[-1] + numbers.expovariate(rate))
    requests = [
        Request(
            numbers.choices(vocabulary, k=numbers.randint(*options.prompt_tokens)),
            numbers.randint(*options.output_tokens),
        )
        for _ in times
    ]
    return Trace(rate, times, requests)


def serve(there: Server, trace: Trace) -> dict[str, Any]:
    with Watch(f"{trace.rate:g} a second", sum(request.max_tokens for request in trace.requests)) as on_data:
        timelines: list[Timeline] = asyncio.run(
            client.run_at(there.url, there.model(), trace.requests, trace.times, on_data)
        )
    return summary([timelines])


def figures(report: dict[str, Any]) -> dict[str, float]:
    medians = {name: report[f"{name}_seconds"]["p50"] for name in FIGURES}
    return {**medians, "output_tokens_per_second": report["output_tokens_per_second"]}


def pagoda(*arguments: str, cache: Path) -> dict[str, Any]:
    """The command's JSON. cache: where it keeps what it measures, so that nothing older is used."""
    done = subprocess.run(
        [*PAGODA, *arguments, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"pagoda {' '.join(arguments)} ended with {done.returncode}; it has said why above")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def validate(options: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """One round."""
    model = str(Path(options.model).resolve()) if os.path.exists(options.model) else options.model
    settings: dict[str, Setting] = {"max_model_len": max(options.prompt_tokens) + max(options.output_tokens)}
    same = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    calibration = folder / "calibration.json"
    before = pagoda("bench", "limits", cache=folder)
    calibrate = ("--output", str(calibration), "--seconds", str(options.calibrate))
    fit = pagoda("bench", "calibrate", model, *calibrate, *same, cache=folder)
    measured = []
    with server(model, settings) as there:
        words = there.vocabulary()
        for number, rate in enumerate(options.rates):
            trace = poisson(rate, options, words, seed + number)
            measured.append((trace, figures(serve(there, trace))))
    after = pagoda("bench", "limits", "--save", cache=folder)
    _use_lower_bandwidth(folder, before, after)
    loads = []
    for trace, real in measured:
        path = folder / f"{trace.rate:g}.jsonl"
        trace.write(path)
        load: dict[str, Any] = {"rate": trace.rate, "measured": real}
        for name, more in (("calibrated", ("--calibration", str(calibration))), ("uncalibrated", ())):
            simulated = figures(
                pagoda("simulate", model, "--device", "this", "--trace", str(path), *more, *same, cache=folder)
            )
            load[name] = {**simulated, "error": {key: simulated[key] / real[key] - 1 for key in real}}
        loads.append(load)
    bandwidths = [limits["read_bandwidth"] for limits in (before, after)]
    return {"model": options.model, "read_bandwidth": bandwidths, "calibration": fit, "loads": loads}


def summed_up(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each rate and way of simulating: the median of the rounds' errors, and of their sizes."""
    result = []
    for loads in zip(*(each["loads"] for each in rounds), strict=True):
        for name in SIMULATED:
            errors = {key: [load[name]["error"][key] for load in loads] for key in loads[0]["measured"]}
            result.append(
                {
                    "rate": loads[0]["rate"],
                    "simulated": name,
                    "error": {key: median(values) for key, values in errors.items()},
                    "error_size": {key: median(map(abs, values)) for key, values in errors.items()},
                }
            )
    return result


def _use_lower_bandwidth(folder: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    (path,) = (folder / "pagoda").glob("limits-*.json")
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved["read_bandwidth"] = min(before["read_bandwidth"], after["read_bandwidth"])
    path.write_text(json.dumps(saved), encoding="utf-8")


def show(report: dict[str, Any]) -> None:
    low, high = (f"{bandwidth / 1e9:.0f}" for bandwidth in report["read_bandwidth"])
    print(f"{report['model']}; read bandwidth {low} GB/s before, {high} after")
    print(f"{'requests/s':<12}{'':<14}{'TTFT ms':>16}{'TPOT ms':>16}{'e2e ms':>16}{'output tokens/s':>18}")
    for load in report["loads"]:
        for name in ("measured", *SIMULATED):
            row = load[name]
            cells = [f"{1e3 * row[key]:,.1f}" for key in FIGURES] + [f"{row['output_tokens_per_second']:,.1f}"]
            if "error" in row:
                cells = [
                    f"{cell} ({100 * error:+.1f}%)" for cell, error in zip(cells, row["error"].values(), strict=True)
                ]
            print(f"{load['rate']:<12g}{name:<14}" + "".join(f"{cell:>16}" for cell in cells[:3]) + f"{cells[3]:>18}")


def show_summary(summary: list[dict[str, Any]], rounds: int) -> None:
    print(f"\nof {rounds} rounds: median error (median size)")
    for row in summary:
        pairs = zip(row["error"].values(), row["error_size"].values(), strict=True)
        cells = [f"{100 * error:+.1f}% ({100 * size:.1f}%)" for error, size in pairs]
        print(f"{row['rate']:<12g}{row['simulated']:<14}" + "".join(f"{cell:>16}" for cell in cells))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="a local directory, a .gguf file, or smollm2")
    parser.add_argument(
        "--rates", type=lambda text: [float(part) for part in text.split(",")], default=[2.0, 3.5, 20.0]
    )
    parser.add_argument("--requests", type=int, default=50, help="at each rate")
    parser.add_argument("--prompt-tokens", type=_range, default=(32, 512), metavar="FROM:TO")
    parser.add_argument("--output-tokens", type=_range, default=(16, 128), metavar="FROM:TO")
    parser.add_argument("--calibrate", type=float, default=60.0, help="seconds of pagoda bench calibrate")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    return parser.parse_args()


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last or first)


def main() -> None:
    options = _arguments()
    rounds = []
    for number in range(options.rounds):
        try:
            with TemporaryDirectory() as folder:
                rounds.append(validate(options, Path(folder), options.seed + 100 * number))
        except (OSError, RuntimeError) as error:
            sys.exit(str(error))
        if not options.json:
            show(rounds[-1])
    summary = summed_up(rounds)
    if options.json:
        print(json.dumps({"rounds": rounds, "summary": summary}, indent=2))
    elif options.rounds > 1:
        show_summary(summary, options.rounds)


if __name__ == "__main__":
    main()
