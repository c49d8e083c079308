"""A server under mixed streaming load, and what the server costs against the engine alone.

    python benchmarks/serve.py [MODEL] [--requests 64] [--concurrency 64] [--repeat 1] [--set threads=2 …] [--json]
    python benchmarks/serve.py --url http://127.0.0.1:8000 [--pid PID]

With MODEL it starts two processes, `pagoda serve MODEL` and the engine alone, and gives both the same loads in turn. With
--url it loads the server that is there. Each prompt is new, each answer has exactly the tokens that were asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from serving.load import Shape, summary
from serving.processes import Alone, Run, Server, Setting, alone, server

from pagoda.version import __version__


def measure(server: Server, engine: Alone | None, shape: Shape, seed: int, repeat: int) -> dict[str, Any]:
    """Both sides in turn, so that what else happens on the machine meets both."""
    served: list[Run] = []
    unserved: list[Run] = []
    words = server.vocabulary()
    # The shortest that the shape has; they do not count.
    warm_up = Shape(2, 2, (shape.prompt_tokens[0],) * 2, (shape.output_tokens[0],) * 2)
    for index in range(-1, repeat):
        this = warm_up if index < 0 else shape
        served.append(server.run(this, seed + index, words))
        if engine is not None:
            unserved.append(engine.run(this, seed + index, words))
    report: dict[str, Any] = {"server": _report(served[1:])}
    if unserved:
        report["in_process"] = _report(unserved[1:])
        report["cost"] = _cost(report["server"], report["in_process"])
    return report


def _report(runs: Sequence[Run]) -> dict[str, Any]:
    report = summary([run.timelines for run in runs])
    report["client_cpu_seconds"] = sum(run.client_cpu_seconds for run in runs)
    known = [run.cpu for run in runs if run.cpu is not None]
    if known:
        cpu = reduce(add, known)
        report["engine_cpu_seconds"], report["api_cpu_seconds"] = cpu.engine, cpu.others
    return report


def _cost(served: dict[str, Any], unserved: dict[str, Any]) -> dict[str, float]:
    return {
        "tokens_per_second_ratio": served["total_tokens_per_second"] / unserved["total_tokens_per_second"],
        "api_cpu_over_wall": served["api_cpu_seconds"] / served["seconds"],
        "api_cpu_microseconds_per_output_token": 1e6 * served["api_cpu_seconds"] / served["output_tokens"],
        "in_process_cpu_over_wall": unserved["api_cpu_seconds"] / unserved["seconds"],
        "client_cpu_over_wall": served["client_cpu_seconds"] / served["seconds"],
    }


def _print(report: dict[str, Any]) -> None:
    for side in ("server", "in_process"):
        if side not in report:
            continue
        figures = report[side]
        print(
            f"{side.replace('_', ' ')}: {figures['requests']:,} requests in {figures['seconds']:.1f} s,"
            f" {figures['output_tokens_per_second']:,.1f} output tokens/s, {figures['total_tokens_per_second']:,.1f} in total"
        )
        print(f"  {'ms':14}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}")
        for name in ("ttft", "tpot", "inter_token", "e2e"):
            spread = figures[f"{name}_seconds"]
            print(
                f"  {name:14}" + "".join(f"{1e3 * (spread[key] or 0):10,.1f}" for key in ("mean", "p50", "p90", "p99"))
            )
        if "api_cpu_seconds" in figures:
            print(
                f"  CPU seconds: engine {figures['engine_cpu_seconds']:.2f}, all else in its process"
                f" {figures['api_cpu_seconds']:.2f}, client {figures['client_cpu_seconds']:.2f}"
            )
    if "cost" in report:
        cost = report["cost"]
        print(
            f"cost of the server: {cost['tokens_per_second_ratio']:.3f} of the tokens/s in process,"
            f" API CPU {cost['api_cpu_over_wall']:.2%} of the time"
            f" ({cost['api_cpu_microseconds_per_output_token']:,.0f} µs an output token);"
            f" client CPU {cost['client_cpu_over_wall']:.2%}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="a local directory, a .gguf file, or smollm2")
    parser.add_argument("--url", help="load this server instead of starting one")
    parser.add_argument("--pid", type=int, help="its process, to tell its CPU time")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=64, help="requests at once")
    parser.add_argument("--prompt-tokens", type=_range, default=(32, 512), metavar="FROM:TO")
    parser.add_argument("--output-tokens", type=_range, default=(16, 128), metavar="FROM:TO")
    parser.add_argument("--repeat", type=int, default=1, help="loads on each side")
    parser.add_argument("--seed", type=int, help="of the first load; the others follow it (default: a new one)")
    parser.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="of EngineConfig"
    )
    parser.add_argument("--server-only", action="store_true", help="do not compare with the engine alone")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    return parser.parse_args()


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last or first)


def _setting(text: str) -> tuple[str, Setting]:
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _measured(options: argparse.Namespace, shape: Shape, settings: dict[str, Setting], seed: int) -> dict[str, Any]:
    model = str(Path(options.model).resolve()) if os.path.exists(options.model) else options.model
    with ExitStack() as stack:
        if options.url:
            return measure(Server(options.url.rstrip("/"), options.pid), None, shape, seed, options.repeat)
        there = stack.enter_context(server(model, settings))
        engine = None if options.server_only else stack.enter_context(alone(model, settings))
        return measure(there, engine, shape, seed, options.repeat)


def main() -> None:
    options = _arguments()
    shape = Shape(options.requests, options.concurrency, options.prompt_tokens, options.output_tokens)
    # Room for the load and no more, as two engines share the memory.
    settings = {"max_model_len": max(shape.prompt_tokens) + max(shape.output_tokens), **dict(options.set)}
    # A new one each time, as a server may still know the prompts of the last.
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    try:
        report = _measured(options, shape, settings, seed)
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))
    if not options.json:
        _print(report)
        return
    host = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    about = {
        "version": __version__,
        "model": options.model,
        "settings": settings,
        "seed": seed,
        "repeat": options.repeat,
    }
    print(json.dumps({**host, **about, "load": asdict(shape), **report}, indent=2))


if __name__ == "__main__":
    main()
