"""Trouble 2: a context longer than the cache is found after minutes of start-up.

Right: checked from the description alone, before anything is loaded; fitted by default.
"""

import pytest

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError
from pagoda.planning.holding import torch_holding
from pagoda.planning.memory import plan_memory
from tests.planning.specs import smollm2

USABLE = 1_700_000_000


def test_by_default_the_context_is_what_the_cache_holds() -> None:
    plan = plan_memory(torch_holding(smollm2(), 4), EngineConfig(), usable_bytes=USABLE)
    assert 256 <= plan.max_model_len < 8192
    assert plan.max_model_len == plan.num_kv_tokens


def test_with_room_enough_the_context_is_the_models_own() -> None:
    plan = plan_memory(torch_holding(smollm2(), 4), EngineConfig(), usable_bytes=8 * USABLE)
    assert plan.max_model_len == 8192


def test_a_context_asked_for_that_does_not_fit_is_refused_before_loading() -> None:
    with pytest.raises(DoesNotFitError, match=r"KV cache for 8,192 tokens .* set memory_fraction to 0\.\d+$"):
        plan_memory(torch_holding(smollm2(), 4), EngineConfig(max_model_len=8192), usable_bytes=USABLE)


def test_the_fitted_context_can_be_asked_for() -> None:
    fitted = plan_memory(torch_holding(smollm2(), 4), EngineConfig(), usable_bytes=USABLE)
    config = EngineConfig(max_model_len=fitted.max_model_len)
    asked = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=USABLE)
    assert (asked.num_blocks, asked.max_model_len) == (fitted.num_blocks, fitted.max_model_len)


def test_a_context_too_short_to_be_of_use_is_never_fitted() -> None:
    with pytest.raises(DoesNotFitError, match="256 tokens"):
        plan_memory(torch_holding(smollm2(), 4), EngineConfig(), usable_bytes=1_500_000_000)
