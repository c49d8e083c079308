"""The scripts of `benchmarks/` import their parts by name, as Python finds them beside a script."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
for folder in (BENCHMARKS, BENCHMARKS / "peers"):
    sys.path.append(str(folder))
