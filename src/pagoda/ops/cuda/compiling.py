"""Compiling kernels before they are needed, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from triton.runtime.jit import JITFunction

try:
    from triton.runtime._async_compile import AsyncCompileMode
except ImportError:  # It is not one of Triton's promises.
    AsyncCompileMode = None

# What launches asked for, each once, where they are not to be done.
_asked_for: ContextVar[dict[int, Any] | None] = ContextVar("asked_for", default=None)
_one_at_a_time = threading.Lock()
_launch = JITFunction.run


@contextmanager
def only_compiling(num_threads: int) -> Iterator[None]:
    """Inside, this thread's launches have their kernels compiled, so many at a time, and are not done; other work is.

    When it is left, all are compiled and loaded. What does not compile or fit raises no error before it is launched. So
    launchers decide what to compile, and nothing else has to know a kernel's variants. With a Triton that cannot do this,
    launches are done.
    """
    if AsyncCompileMode is None:
        yield
        return
    kernels: dict[int, Any] = {}
    with _one_at_a_time, ThreadPoolExecutor(num_threads, "compile") as executor:
        token = _asked_for.set(kernels)
        JITFunction.run = _compile_or_launch
        try:
            with AsyncCompileMode(executor, ignore_errors=True):
                yield
            list(executor.map(_load, kernels.values()))
        finally:
            JITFunction.run = _launch
            _asked_for.reset(token)


def _compile_or_launch(kernel, *args, grid, warmup, **options):
    kernels = _asked_for.get()
    if kernels is None:
        return _launch(kernel, *args, grid=grid, warmup=warmup, **options)
    # A launch that is to warm up ends with the kernel handed to the executor.
    compiled = _launch(kernel, *args, grid=grid, warmup=True, **options)
    kernels[id(compiled)] = compiled
    return compiled


def _load(kernel):
    """What Triton would do at the first launch. Triton 3.6 has a C compiler run for it."""
    with suppress(Exception):  # It comes again with the launch.
        compiled = kernel.result() if hasattr(kernel, "result") else kernel
        compiled._init_handles()
