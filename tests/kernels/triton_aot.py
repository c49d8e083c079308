"""Compiles Triton kernels for GPUs that are not there: what the interpreter cannot tell, whether a kernel fits the chip.

    python -m tests.kernels.triton_aot [FILE …] [--json] [--everywhere]    FILE: a module of tests/kernels/aot; without one, all

To add a kernel's variants, add a line for each to `tests/kernels/aot/FILE.py`, FILE being named as the kernel's own:

    from pagoda.ops.cuda.FILE import _kernel
    from tests.kernels.triton_aot import variant

    VARIANTS = [
        variant(_kernel, "bf16, gated", x="*bf16", out="*bf16", bias=None, width="i32:16", eps="fp32", BLOCK=1024, num_warps=8),
    ]

Each parameter of the kernel gets its type or its value. Types are Triton's: "*bf16" is a pointer (taken as 16-byte aligned, as
torch's tensors are), "i32" a number, "i32:16" a number that is a multiple of 16, "fp32", "tensordesc<bf16[64,64]>". Values are
what the launcher passes for a constexpr; and None for a pointer that a launch leaves out, and 1 for a number that is 1, as
Triton makes constants of these too. `num_warps`, `num_stages` and others are Triton's options. A variant is compiled for all of
`ARCHITECTURES`, unless `architectures` names those that the launcher would use it on. It must not spill registers, unless
`most_spilled` says how many bytes are accepted. A few variants of each kernel are enough: the largest tile of each kind.

To save time, a kernel's variants after its first are not compiled for sm_80, whose code is nearly that of sm_89, with more
shared memory; with `--everywhere` they are.

Kernels are compiled in a process without TRITON_INTERPRET, so `test_triton_compile.py` starts this file.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import multiprocessing
import os
import pkgutil
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import triton

# Shared memory that one program may take, in bytes ("CUDA C++ Programming Guide", technical specifications per capability).
ARCHITECTURES = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10}
PACKAGE = "tests.kernels.aot"
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Variant:
    kernel: Any
    label: str
    arguments: dict[str, Any]
    options: dict[str, Any]
    architectures: tuple[int, ...]
    most_spilled: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """shared, spilled: bytes of a program and of a thread. problem: why the variant is refused, or ""."""

    file: str
    kernel: str
    label: str
    architecture: int
    registers: int = 0
    spilled: int = 0
    shared: int = 0
    problem: str = ""


def variant(
    kernel: Any,
    label: str,
    *,
    architectures: Sequence[int] = tuple(ARCHITECTURES),
    most_spilled: int = 0,
    options: dict[str, Any] | None = None,
    num_warps: int = 4,
    num_stages: int = 3,
    **arguments: Any,
) -> Variant:
    """See above. options: further options of Triton, for instance launch_pdl."""
    every = {"num_warps": num_warps, "num_stages": num_stages, **(options or {})}
    return Variant(kernel, label, arguments, every, tuple(architectures), most_spilled)


def compile_variant(file: str, wanted: Variant, architecture: int) -> Compiled:
    """Never raises for what is wrong with the kernel: that is the result's `problem`."""
    name = wanted.kernel.__name__
    try:
        shared, log = _compile(wanted, architecture)
        registers, spilled = _usage(log)
    except Exception as error:
        return Compiled(file, name, wanted.label, architecture, problem=f"{type(error).__name__}: {error}"[:1000])
    problem, limit = "", ARCHITECTURES[architecture]
    if shared > limit:
        problem = f"takes {shared:,} bytes of shared memory of {limit:,}"
    elif spilled > wanted.most_spilled:
        problem = f"spills {spilled} bytes a thread; {wanted.most_spilled} are accepted"
    return Compiled(file, name, wanted.label, architecture, registers, spilled, shared, problem)


def _compile(wanted: Variant, architecture: int) -> tuple[int, str]:
    """Bytes of shared memory, and what the assembler says of it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = wanted.kernel.arg_names
    if set(names) != set(wanted.arguments):
        raise TypeError(f"parameters without a type or value, or unknown: {set(names) ^ set(wanted.arguments)}")
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(wanted.kernel.params):
        value = wanted.arguments[parameter.name]
        if parameter.is_constexpr or not isinstance(value, str):
            signature[parameter.name], constants[(index,)] = "constexpr", value
            continue
        signature[parameter.name], _, multiple = value.partition(":")
        if value.startswith("*") or multiple == "16":
            attributes[(index,)] = [["tt.divisibility", 16]]
    triton.knobs.nvidia.dump_ptxas_log = True
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        source = ASTSource(wanted.kernel, signature, constants, attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=wanted.options)
    return compiled.metadata.shared, printed.getvalue()


def _usage(log: str) -> tuple[int, int]:
    """Registers, and bytes of them that are stored elsewhere, of ptxas's log."""
    registers = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    if registers is None or spilled is None:
        raise ValueError(f"the assembler did not say what the kernel uses: {log}")
    return int(registers[1]), int(spilled[1])


def files() -> list[str]:
    """Modules with variants, without importing them."""
    return [module.name for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__)]


def compile_files(modules: Sequence[str], *, everywhere: bool) -> list[Compiled]:
    """modules: names as Python imports them, each with `VARIANTS`. everywhere: all variants for all of their architectures."""
    jobs = []
    seen = set()
    for name in modules:
        for each in importlib.import_module(name).VARIANTS:
            architectures = each.architectures
            if each.kernel in seen and not everywhere:
                architectures = tuple(number for number in architectures if number != 80 or 89 not in architectures)
            seen.add(each.kernel)
            jobs += [(name.rpartition(".")[2], each, architecture) for architecture in architectures]
    _Jobs.every = jobs
    # Forked, as kernels cannot be sent, and so that torch and Triton are imported once.
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(_Jobs.compile, range(len(jobs))))


class _Jobs:
    """What the forked processes find."""

    every: list[tuple[str, Variant, int]]

    @classmethod
    def compile(cls, index: int) -> Compiled:
        return compile_variant(*cls.every[index])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="*")
    parser.add_argument(
        "--json", action="store_true", help="print one object a variant and architecture instead of a table"
    )
    parser.add_argument("--everywhere", action="store_true", help="every variant for every architecture")
    options = parser.parse_args()
    if triton.knobs.runtime.interpret:
        parser.error("TRITON_INTERPRET is set: with it Triton interprets kernels and compiles none")
    chosen = [name if "." in name else f"{PACKAGE}.{name}" for name in options.file or files()]
    with tempfile.TemporaryDirectory(prefix="triton-") as cache:
        os.environ["TRITON_CACHE_DIR"] = cache  # what is cached says nothing of registers
        results = compile_files(chosen, everywhere=options.everywhere)
    if options.json:
        print(json.dumps([asdict(each) for each in results]))
    else:
        for each in results:
            print(
                f"{each.file:18} {each.kernel:28} {each.label:36} sm_{each.architecture} {each.registers:4} registers "
                f"{each.spilled:5} B spilled {each.shared:8,} B shared  {each.problem}"
            )
    return 1 if any(each.problem for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
