"""Counter-based random numbers: the same (seed, choice, token index) gives the same number, whoever else is sampled.

Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). There is no state to keep, to
share or to lose: a request resumed after preemption goes on with exactly the numbers it would have had.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt32 = npt.NDArray[np.uint32]
Float64 = npt.NDArray[np.float64]

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: UInt32, key: UInt32) -> UInt32:
    """The ten-round bijection for N counters [N, 4] under their keys [N, 2]: [N, 4], uint32 each."""
    # Held in uint64, so that a product of two 32-bit words is exact.
    c0, c1, c2, c3 = counter.astype(np.uint64).T
    k0, k1 = key.astype(np.uint64).T
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c2 = (product1 >> _HALF) ^ c1 ^ k0, (product0 >> _HALF) ^ c3 ^ k1
        c1, c3 = product1 & _LOW, product0 & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def uniforms(seeds: npt.NDArray[np.int64], choices: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]) -> Float64:
    """One number in [0, 1) with 53 random bits for each of N (seed, choice, token index), all [N] and not negative.

    The key is the seed, low word first; the counter is (index, choice, 0, 0); the number is made of the first two words.
    """
    wide = seeds.astype(np.uint64)
    key = np.stack([wide & _LOW, wide >> _HALF], axis=1).astype(np.uint32)
    counter = np.zeros((len(seeds), 4), np.uint32)
    counter[:, 0], counter[:, 1] = indices, choices
    words = philox4x32(counter, key).astype(np.uint64)
    bits = (words[:, 0] >> np.uint64(5)) << np.uint64(26) | words[:, 1] >> np.uint64(6)
    numbers: Float64 = np.ldexp(bits.astype(np.float64), -53)
    return numbers
