"""What it costs to start: seconds to import parts of Pagoda, and to print the command line's help, each in a fresh process.

python benchmarks/startup.py [--json] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

CASES: dict[str, tuple[str, ...]] = {
    "python -c pass": ("-c", "pass"),
    "import pagoda": ("-c", "import pagoda"),
    "import pagoda.core": ("-c", "import pagoda.core.scheduler, pagoda.core.invariants"),
    "import pagoda.planning": ("-c", "import pagoda.planning.memory, pagoda.planning.costs"),
    "pagoda --help": ("-c", "import sys; sys.argv = ['pagoda', '--help']; from pagoda.cli.main import main; main()"),
}


def median_seconds(arguments: tuple[str, ...], repeats: int) -> float:
    """The median wall time of a whole process. The first run, which may write bytecode files, is not counted."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to start, each case in a fresh process.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.add_argument("--repeats", type=int, default=9, help="processes per case")
    options = parser.parse_args()
    medians = {name: round(median_seconds(arguments, options.repeats), 4) for name, arguments in CASES.items()}
    if options.json:
        host = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
        print(json.dumps({**host, "median_seconds": medians}, indent=2))
        return
    for name, seconds in medians.items():
        print(f"{name:24} {1e3 * seconds:8.1f} ms")


if __name__ == "__main__":
    main()
