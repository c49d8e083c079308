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
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64) * np.arange(_ROUNDS, dtype=np.uint64)[:, None, None]
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: UInt32, key: UInt32) -> UInt32:
    """The ten-round bijection for N counters [N, 4] under their keys [N, 2]: [N, 4], uint32 each."""
    # Held in uint64, so that a product of two 32-bit words is exact; and both halves of a counter in one array, as numpy's
    # calls cost more than its arithmetic.
    even, odd = counter.T[::2].astype(np.uint64), counter.T[1::2].astype(np.uint64)  # [2, N]
    for round_key in (key.T + _KEY_STEPS) & _LOW:  # [2, N]
        products = _MULTIPLIERS * even
        even, odd = (products[::-1] >> _HALF) ^ odd ^ round_key, products[::-1] & _LOW
    return np.stack([even[0], odd[0], even[1], odd[1]], axis=1).astype(np.uint32)


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
