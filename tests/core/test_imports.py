from __future__ import annotations

import subprocess
import sys


def test_core_needs_neither_numpy_nor_torch() -> None:
    """What makes it import in milliseconds; benchmarks/startup.py measures that."""
    code = (
        "import sys, pagoda.core.scheduler, pagoda.core.invariants, pagoda.runner.null;"
        "print(sorted({'numpy', 'torch', 'tokenizers', 'jinja2'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
