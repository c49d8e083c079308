"""Python packages that the GPU's machine may lack and cannot fetch: taken along as wheels."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = "3.12"
# What the machine must have itself: torch, Triton, numpy. Name of the package → what is imported. Of the tests' some need
# `transformers`, and are skipped or fail without it.
PACKAGES = {
    "tokenizers": "tokenizers",
    "jinja2": "jinja2",
    "markupsafe": "markupsafe",
    "safetensors": "safetensors",
    "pytest": "pytest",
    "iniconfig": "iniconfig",
    "pluggy": "pluggy",
    "packaging": "packaging",
    "pygments": "pygments",
    "hypothesis": "hypothesis",
    "sortedcontainers": "sortedcontainers",
    "gguf": "gguf",
    "pyyaml": "yaml",
    "tqdm": "tqdm",
}
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def prepare(folder: str) -> int:
    """Download the wheels. Returns the exit status."""
    command = [
        *PIP,
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--implementation",
        "cp",
    ]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    command += ["--constraint", str(ROOT / "constraints.txt"), "--dest", folder, *PACKAGES]
    code = subprocess.run(command, check=False).returncode
    wheels = list(Path(folder).glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    print(f"{len(wheels)} wheels for Python {PYTHON}, {size:.1f} MB, in {folder}: give it to --wheels there")
    return code


def install_missing(wheels: Path, site: Path) -> str:
    """What cannot be imported here is installed into `site`, which is returned."""
    site.mkdir()
    if missing := [name for name, module in PACKAGES.items() if importlib.util.find_spec(module) is None]:
        command = [*PIP, "install", "--no-index", "--no-deps", "--find-links", str(wheels), "--target", str(site)]
        subprocess.run([*command, *missing], check=True)
    return str(site)
