"""The machine's limits as the native module measures them: numbers one can divide by, and errors for what there is not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pagoda import _native


@pytest.fixture(params=_native.instruction_sets(), scope="module")
def threads(request: pytest.FixtureRequest) -> Iterator[_native.Threads]:
    pool = _native.Threads(2, request.param)
    yield pool
    pool.close()


def positive(rate: float) -> bool:
    return math.isfinite(rate) and rate > 0


@pytest.mark.parametrize("num_bytes", [1 << 17, (1 << 20) + 12345])
def test_read_bandwidth(threads: _native.Threads, num_bytes: int) -> None:
    assert positive(_native.read_bandwidth(threads, num_bytes))


def test_too_little_to_read(threads: _native.Threads) -> None:
    with pytest.raises(ValueError, match="num_bytes is 1000, must be at least 65536 a thread"):
        _native.read_bandwidth(threads, 1000)


@pytest.mark.parametrize("kind", ["int8", "bf16", "fp32"])
def test_peaks(threads: _native.Threads, kind: str) -> None:
    assert positive(_native.peak_operations(threads, kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("format_name", ["F32", "BF16", "Q4_0", "Q6_K"])
def test_ceilings_of_formats(threads: _native.Threads, format_name: str) -> None:
    assert positive(_native.format_ceiling(threads, format_name))


def test_names_that_are_not_known(threads: _native.Threads) -> None:
    with pytest.raises(ValueError, match="int8, bf16 or fp32"):
        _native.peak_operations(threads, "int4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Q9_9"):
        _native.format_ceiling(threads, "Q9_9")
