"""Building the GPU's runner."""

from __future__ import annotations

import pytest

from pagoda.errors import DoesNotFitError
from tests.runner.cuda_tiny import cuda_runner


def test_a_cache_that_no_memory_holds_is_one_sentence(tiny_model: str) -> None:
    with pytest.raises(DoesNotFitError, match=r"ran out of memory .* 10,000,000,000,000 KV blocks; choose fewer"):
        cuda_runner(tiny_model, 10**13)
