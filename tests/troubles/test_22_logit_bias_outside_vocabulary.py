"""Trouble 22: a logit_bias outside the vocabulary crashes the engine.

Right: it is refused at the door, naming field, value and limit; so is a stop token that does not exist.
"""

from __future__ import annotations

import pytest

from pagoda.errors import InvalidValueError
from pagoda.sampling.limits import check_vocabulary
from pagoda.sampling_params import SamplingParams


def test_the_last_token_is_allowed_and_the_next_is_not() -> None:
    check_vocabulary(SamplingParams(logit_bias={0: 1.0, 99: -1.0}, stop_token_ids=(0, 99)), 100)
    with pytest.raises(InvalidValueError, match=r"logit_bias.*got 100, must be .* 0 to 99") as caught:
        check_vocabulary(SamplingParams(logit_bias={5: 1.0, 100: 1.0}), 100)
    assert caught.value.value == 100


def test_a_stop_token_that_does_not_exist() -> None:
    with pytest.raises(InvalidValueError, match=r"stop_token_ids\[1\].*got 123456, must be .* 0 to 99"):
        check_vocabulary(SamplingParams(stop_token_ids=(1, 123456)), 100)
