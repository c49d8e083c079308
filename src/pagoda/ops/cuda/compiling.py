"""Compiling kernels before they are needed, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar

from triton.runtime.jit import JITFunction

try:
    from triton.runtime._async_compile import AsyncCompileMode
except ImportError:  # It is not one of Triton's promises.
    AsyncCompileMode = None

_only_compiles: ContextVar[bool] = ContextVar("only_compiles", default=False)
_one_at_a_time = threading.Lock()
_launch = JITFunction.run


@contextmanager
def only_compiling(num_threads: int) -> Iterator[None]:
    """Inside, this thread's launches have their kernels compiled, so many at a time, and are not done; other work is.

    When it is left, all are compiled. What does not compile raises no error before it is launched. So launchers decide what to
    compile, and nothing else has to know a kernel's variants. With a Triton that cannot do this, launches are done.
    """
    if AsyncCompileMode is None:
        yield
        return
    with _one_at_a_time, ThreadPoolExecutor(num_threads, "compile") as executor:
        token = _only_compiles.set(True)
        JITFunction.run = _compile_or_launch
        try:
            with AsyncCompileMode(executor, ignore_errors=True):
                yield
        finally:
            JITFunction.run = _launch
            _only_compiles.reset(token)


def _compile_or_launch(kernel, *args, grid, warmup, **options):
    # A launch that is to warm up ends with the kernel handed to the executor.
    return _launch(kernel, *args, grid=grid, warmup=warmup or _only_compiles.get(), **options)
