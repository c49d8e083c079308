"""Trouble 3: a cache for 175,856 tokens allocated for one request of 1,024.

Right: capped by what the limits could ever use.
"""

from pagoda.config import EngineConfig
from pagoda.planning.holding import torch_holding
from pagoda.planning.memory import plan_memory
from tests.planning.specs import smollm2


def test_one_request_of_1024_tokens_gets_a_cache_for_1024_tokens() -> None:
    config = EngineConfig(max_num_seqs=1, max_model_len=1024)
    plan = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=64 << 30)
    assert plan.num_kv_tokens == 1024
    assert plan.left_bytes > 30 << 30


def test_every_sequence_may_end_in_a_block_that_is_not_full() -> None:
    config = EngineConfig(max_num_seqs=3, max_model_len=1025)
    plan = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=64 << 30)
    assert plan.num_blocks == 3 * 65


def test_the_models_own_context_caps_it_too() -> None:
    plan = plan_memory(torch_holding(smollm2(), 4), EngineConfig(max_num_seqs=2), usable_bytes=64 << 30)
    assert plan.num_kv_tokens == 2 * 8192
