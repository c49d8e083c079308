"""`benchmarks/gpu.sh`: runs the stages, each in a process of its own, and keeps what they found out."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu.apart import run_apart
from gpu.report import Report, read_json, write_json
from gpu.sizes import FULL, TINY, Sizes
from gpu.stages import Stage, stages
from gpu.table import table

# Where the models go: 15 GB, best in memory.
MODEL_BYTES = 16 << 30
PLACES = ("/dev/shm", tempfile.gettempdir())
LEAST_SECONDS = 15.0
WORDS_KEPT = 4000


def main() -> int:
    options = _options()
    if options.stage:
        return _run_stage(options)
    if options.prepare:
        from gpu.wheels import prepare

        return prepare(options.prepare)
    until = time.monotonic() + 60 * options.minutes
    sizes = TINY if options.tiny else FULL
    out = Path(options.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pagoda-gpu-", dir=_place(options.tiny)) as folder:
        results = _run_all(options, sizes, until, out, Path(folder))
    print((out / "table.txt").read_text(encoding="utf-8"))
    return 0 if all(each["outcome"] == "done" for each in results["stages"].values()) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description="Check and measure Pagoda on an NVIDIA GPU.")
    parser.add_argument(
        "--out", default=os.environ.get("OUT", "gpu-results"), help="where results.json and table.txt go"
    )
    parser.add_argument("--minutes", type=float, default=8.7, help="all must be done by then")
    parser.add_argument("--only", default="", help="stages, with commas between them")
    parser.add_argument("--wheels", help="a folder that --prepare made: what is missing here is taken from it")
    parser.add_argument("--tiny", action="store_true", help="on the CPU, tiny: whether this still runs")
    parser.add_argument("--prepare", metavar="DIR", help="download what the GPU's machine may lack, and end")
    for hidden in ("--stage", "--folder", "--started", "--seconds"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args()


def _place(is_tiny: bool) -> str:
    if is_tiny:
        return PLACES[-1]
    roomy = [place for place in PLACES if os.path.isdir(place) and shutil.disk_usage(place).free > MODEL_BYTES]
    return roomy[0] if roomy else PLACES[-1]


def _run_all(options: argparse.Namespace, sizes: Sizes, until: float, out: Path, folder: Path) -> dict[str, Any]:
    """Runs each stage as far as time allows; after each one, all that is known is in `out`."""
    every = stages(sizes)
    wanted = options.only.split(",") if options.only else [stage.name for stage in every]
    if unknown := set(wanted) - {stage.name for stage in every}:
        raise SystemExit(
            f"--only: there is no stage {', '.join(unknown)}; there are {', '.join(s.name for s in every)}"
        )
    environment = _environment(options, folder)
    results: dict[str, Any] = {"sizes": "tiny" if options.tiny else "full", "stages": {}}
    with open(out / "log.txt", "w", encoding="utf-8") as log:
        for stage in (stage for stage in every if stage.name in wanted):
            begun = time.monotonic()
            seconds = min(stage.seconds * sizes.patience, until - begun)
            outcome, words = "no time was left", ""
            if seconds >= LEAST_SECONDS:
                outcome, words = run_apart(_command(stage, options, folder, seconds), seconds, environment)
            took = round(time.monotonic() - begun, 1)
            log.write(f"=== {stage.name}: {outcome}, {took} s\n{words}\n")
            log.flush()
            results["stages"][stage.name] = {
                "outcome": outcome,
                "seconds": took,
                "figures": read_json(_report_path(folder, stage)),
                **({} if outcome == "done" else {"words": words[-WORDS_KEPT:]}),
            }
            write_json(out / "results.json", results)
            (out / "table.txt").write_text(table(results), encoding="utf-8")
            print(f"{stage.name}: {outcome}, {took} s", flush=True)
            if stage.name == "environment" and outcome != "done":
                break
    return results


def _environment(options: argparse.Namespace, folder: Path) -> dict[str, str]:
    """With a cache of compiled kernels of its own, so that the first start is one."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton")}
    if options.tiny:
        environment["TRITON_INTERPRET"] = "1"
    if options.wheels:
        from gpu.wheels import install_missing

        site = install_missing(Path(options.wheels), folder / "site")
        environment["PYTHONPATH"] = os.pathsep.join((os.environ["PYTHONPATH"], site))
    return environment


def _command(stage: Stage, options: argparse.Namespace, folder: Path, seconds: float) -> list[str]:
    command = [sys.executable, "-m", "gpu.main", "--stage", stage.name, "--folder", str(folder)]
    return [*command, "--started", str(time.time()), "--seconds", str(seconds), *(["--tiny"] if options.tiny else [])]


def _run_stage(options: argparse.Namespace) -> int:
    from gpu.context import Context

    sizes, folder = TINY if options.tiny else FULL, Path(options.folder)
    stage = next(stage for stage in stages(sizes) if stage.name == options.stage)
    report = Report(_report_path(folder, stage))
    stage.run(Context(sizes, report, folder, float(options.started), float(options.seconds)))
    return 0


def _report_path(folder: Path, stage: Stage) -> Path:
    return folder / f"{stage.name}.json"


if __name__ == "__main__":
    sys.exit(main())
