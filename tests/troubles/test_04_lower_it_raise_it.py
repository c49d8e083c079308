"""Trouble 4: "out of memory, lower it" at 0.85, "raise it" at 0.84.

Right: one solver, no cliff. More memory never means fewer blocks, and a refusal never turns back.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError
from pagoda.planning.holding import torch_holding
from pagoda.planning.ledger import MemoryPlan
from pagoda.planning.memory import plan_memory
from tests.planning.specs import llama_7b, smollm2, tiny

MODELS = {"smollm2": (smollm2(), 1 << 31), "llama-7b": (llama_7b(), 1 << 35), "tiny": (tiny(), 1 << 22)}

limits = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(1, 300),
        "max_batched_tokens": st.integers(1, 2048),
        "block_size": st.sampled_from((1, 16, 128)),
        "max_model_len": st.none() | st.integers(2, 1024),
    }
)
fractions = st.integers(1, 100).map(lambda hundredths: hundredths / 100)


def planned(name: str, values: dict[str, int | None], fraction: float) -> MemoryPlan | str:
    spec, usable_bytes = MODELS[name]
    config = EngineConfig(memory_fraction=fraction, **values)  # type: ignore[arg-type]
    try:
        return plan_memory(torch_holding(spec, 2), config, usable_bytes=usable_bytes)
    except DoesNotFitError as refused:
        return str(refused)


@settings(deadline=None)
@given(st.sampled_from(sorted(MODELS)), limits, fractions, fractions)
def test_more_memory_never_makes_it_worse(name: str, values: dict[str, int | None], one: float, other: float) -> None:
    less, more = planned(name, values, min(one, other)), planned(name, values, max(one, other))
    if isinstance(more, str):
        assert isinstance(less, str), "refused with more memory, accepted with less"
    elif isinstance(less, MemoryPlan):
        assert less.num_blocks <= more.num_blocks
        assert less.max_model_len <= more.max_model_len


@settings(deadline=None)
@given(st.sampled_from(sorted(MODELS)), limits, fractions)
def test_memory_fraction_is_only_ever_to_be_raised_and_then_it_fits(
    name: str, values: dict[str, int | None], fraction: float
) -> None:
    outcome = planned(name, values, fraction)
    if isinstance(outcome, str) and "set memory_fraction to" in outcome:
        named = float(outcome.rsplit(" ", 1)[1])
        assert named > fraction
        assert isinstance(planned(name, values, named), MemoryPlan)
        assert isinstance(planned(name, values, named - 0.01), str) or named - 0.01 <= fraction
