"""A machine without compilers: this one, seen through a PATH that has all its other programs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Compilers, what they need, and the programs that build; also under names such as x86_64-linux-gnu-g++-12.
BUILDS = re.compile(
    r"(.*-)?(c\+\+|g\+\+|gcc|cc|cpp|c89|c99|clang|clang\+\+|as|ld|ld\..*|ar|ranlib|nm|strip|objcopy|objdump|zig)(-[\d.]+)?"
    r"|cmake|ninja"
)
# What would tell a build of this machine's compilers, or of the `make` that runs the tests.
TELLING = re.compile(r"CC|CXX|C(XX|PP)?FLAGS|LDFLAGS|CMAKE_.*|MAKE.*|MFLAGS|PYTHON.*|VIRTUAL_ENV|VENV|PAGODA_.*")


def without_compilers(directory: Path) -> dict[str, str]:
    """The environment of such a machine; its programs are links in `directory`, which is made."""
    directory.mkdir()
    for folder in filter(os.path.isdir, os.get_exec_path()):
        for program in os.scandir(folder):
            link = directory / program.name
            if not BUILDS.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program.path)
    kept = {name: value for name, value in os.environ.items() if not TELLING.fullmatch(name)}
    return kept | {"PATH": str(directory)}


def run(
    command: Sequence[str | Path], cwd: Path, env: dict[str, str] | None = None, seconds: int = 300
) -> subprocess.CompletedProcess[str]:
    """The command's end, of whatever kind, with its output as text."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
