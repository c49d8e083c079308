"""The kernels' tests on the device: each file in a process of its own, several at once, then some under compute-sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from gpu.context import Context

ROOT = Path(__file__).parents[2]
SANITIZER = "/usr/local/cuda/bin/compute-sanitizer"
# It compiles for GPUs that are not there.
NOT_HERE = "tests/kernels/test_triton_compile.py"
# Of the stage's time, for what comes after the last test.
RESERVE_SECONDS = 2
# What tests need that is not Pagoda's: harmless warnings of other versions than ours do not fail, plugins do not interfere.
PYTEST = ("-m", "pytest", "-q", "-ra", "-W", "default", "-p", "no:cacheprovider")
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TRITON_INTERPRET": "1"}
ON_GPU = {"TRITON_INTERPRET": "0"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one file. words: the end of what it printed, unless all went well."""

    file: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    words: str

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def run(context: Context) -> None:
    _each(context, (sys.executable, *PYTEST), {}, at_once=min(8, os.cpu_count() or 1))


def run_sanitized(context: Context) -> None:
    """memcheck: accesses outside of memory, leaks aside. Each allocation is one of the driver's, so that ends are seen."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(SANITIZER)
    if sanitizer is None:
        context.report(not_run="compute-sanitizer is not installed")
        return
    command = (sanitizer, "--tool", "memcheck", "--error-exitcode", "9", "--target-processes", "all")
    plugin = ("-p", "gpu.some_tests", f"--some-tests={context.sizes.sanitized_tests}")
    more = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    _each(context, (*command, sys.executable, *PYTEST, *plugin), more, at_once=4)


def _each(context: Context, command: tuple[str, ...], more: dict[str, str], at_once: int) -> None:
    until, report = time.monotonic() + context.seconds - RESERVE_SECONDS, context.report
    files = sorted({path for pattern in context.sizes.tests for path in ROOT.glob(pattern)} - {ROOT / NOT_HERE})
    environment = {**os.environ, **ENVIRONMENT, **(ON_GPU if torch.cuda.is_available() else {}), **more}
    outcomes: dict[str, Any] = {}
    with ThreadPoolExecutor(at_once) as pool:
        for outcome in pool.map(lambda file: _run_file(command, file, environment, until), files):
            outcomes[outcome.file] = outcome.as_dict()
            report(files=outcomes)
    report(
        **{kind: sum(outcome[kind] for outcome in outcomes.values()) for kind in ("passed", "failed", "skipped")},
        unfinished=[name for name, outcome in outcomes.items() if outcome["words"].startswith("not finished")],
    )


def _run_file(command: tuple[str, ...], file: Path, environment: dict[str, str], until: float) -> Outcome:
    name, begun = str(file.relative_to(ROOT)), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        left = until - begun
        if left < 1:
            return Outcome(name, 0, 0, 0, 0.0, "not finished: no time was left")
        try:
            ended = subprocess.run(
                [*command, f"--junitxml={found}", str(file)],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=left,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            printed = late.stdout or b""
            words = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
            return Outcome(name, 0, 0, 0, time.monotonic() - begun, f"not finished: {words[-500:]}")
        suites = list(ElementTree.parse(found).getroot().iter("testsuite")) if found.exists() else []
    total, failures, errors, skipped = (
        sum(int(suite.get(kind, 0)) for suite in suites) for kind in ("tests", "failures", "errors", "skipped")
    )
    # A sanitizer that found something, or a process that died, fails with every test passed.
    failed = failures + errors or (1 if ended.returncode not in (0, 5) else 0)
    words = ended.stdout[-3000:] if failed else ""
    return Outcome(name, total - failures - errors - skipped, failed, skipped, time.monotonic() - begun, words)
