"""Counter-based random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.sampling.random import philox4x32, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Random123's own known answers for philox4x32-10.
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    words = philox4x32(_words(counter), _words(key))
    assert " ".join(f"{word:08x}" for word in words[0]) == expected


def test_many_counters_at_once_are_each_their_own() -> None:
    generator = np.random.default_rng(1)
    counters = generator.integers(0, 1 << 32, (50, 4), dtype=np.uint32)
    keys = generator.integers(0, 1 << 32, (50, 2), dtype=np.uint32)
    together = philox4x32(counters, keys)
    for row in range(50):
        assert (philox4x32(counters[row : row + 1], keys[row : row + 1]) == together[row]).all()


def test_uniforms_are_in_range_even_and_keyed_by_each_part() -> None:
    count = 20_000
    zeros, ones, indices = np.zeros(count, np.int64), np.ones(count, np.int64), np.arange(count)
    numbers = uniforms(zeros, zeros, indices)
    assert ((numbers >= 0) & (numbers < 1)).all()
    # Twenty equal bins: the sum of squared deviations over the expectation stays below the 0.999 quantile for 19 degrees.
    bins = np.bincount((numbers * 20).astype(int), minlength=20)
    assert ((bins - count / 20) ** 2 / (count / 20)).sum() < 43.8
    for other in (uniforms(ones, zeros, indices), uniforms(zeros, ones, indices), uniforms(zeros, zeros, indices + 1)):
        assert not (other == numbers).any()


def test_the_largest_seed_has_bits_of_its_own() -> None:
    seeds = np.array([0, 1 << 32, (1 << 63) - 1], np.int64)
    assert len(set(uniforms(seeds, np.zeros(3, np.int64), np.zeros(3, np.int64)).tolist())) == 3


def _words(text: str) -> np.ndarray:
    return np.array([[int(word, 16) for word in text.split()]], np.uint32)
