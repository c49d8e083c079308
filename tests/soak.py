"""How often a repeated test repeats: the full count under `make soak`, a twentieth of it in an ordinary run."""

from __future__ import annotations

import os


def soak_count(full: int) -> int:
    """`full` when PAGODA_SOAK is set (as `make soak` does), else a twentieth of it, but at least one."""
    return full if os.environ.get("PAGODA_SOAK") else max(1, full // 20)
