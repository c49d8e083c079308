"""Trouble 5: the fit step ignores a part, warns, then runs out.

Right: the fit is the truth or it stops. The ledger's parts sum exactly to the whole, for every model and setting.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError
from pagoda.planning.holding import held_format, torch_holding, weight_bytes
from pagoda.planning.memory import kv_block_bytes, plan_memory
from pagoda.planning.workspace import activation_bytes
from tests.planning.specs import smollm2


@settings(deadline=None)
@given(
    usable_bytes=st.integers(1 << 29, 1 << 36),
    fraction=st.floats(0.01, 1.0),
    max_num_seqs=st.integers(1, 512),
    max_batched_tokens=st.integers(1, 4096),
    block_size=st.integers(1, 256),
)
def test_the_parts_are_all_there_and_sum_to_the_whole(
    usable_bytes: int, fraction: float, max_num_seqs: int, max_batched_tokens: int, block_size: int
) -> None:
    config = EngineConfig(
        memory_fraction=fraction,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        block_size=block_size,
    )
    try:
        plan = plan_memory(torch_holding(smollm2(), 2), config, usable_bytes=usable_bytes)
    except DoesNotFitError:
        return
    parts = {entry.name: entry.num_bytes for entry in plan.entries}
    assert sum(parts.values()) == usable_bytes
    assert min(parts.values()) >= 0
    assert parts["weights"] == weight_bytes(smollm2(), held_format(2))
    assert parts["KV cache"] == plan.num_blocks * kv_block_bytes(smollm2(), block_size, 2)
    assert parts["workspace"] == activation_bytes(
        smollm2(),
        max_batched_tokens=max_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=plan.max_model_len,
        element_bytes=2,
    )
    assert parts["left"] == plan.left_bytes


def test_one_byte_less_than_needed_is_one_block_less() -> None:
    config = EngineConfig(memory_fraction=1.0, max_model_len=512)
    plan = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=1 << 30)
    needed = plan.usable_bytes - plan.left_bytes
    exact = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=needed)
    short = plan_memory(torch_holding(smollm2(), 4), config, usable_bytes=needed - 1)
    assert (exact.num_blocks, short.num_blocks) == (plan.num_blocks, plan.num_blocks - 1)
