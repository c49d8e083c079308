"""Trouble 1: "no available memory for the cache blocks", with advice that points both ways.

Right: a ledger in bytes, and the one setting that fixes it, which does fix it.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError
from pagoda.planning.holding import torch_holding
from pagoda.planning.ledger import MemoryPlan
from pagoda.planning.memory import plan_memory
from pagoda.planning.model_spec import ModelSpec
from tests.planning.specs import llama_7b, llama_spec, smollm2

MIB = 1 << 20


def wide_vocabulary() -> ModelSpec:
    """A model whose sampling takes more than its layers."""
    return llama_spec(
        hidden_size=64,
        intermediate_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        vocab_size=50_000,
        context_length=1024,
    )


def refusal(spec: ModelSpec, config: EngineConfig, element_bytes: int, usable_bytes: int) -> str:
    with pytest.raises(DoesNotFitError) as refused:
        plan_memory(torch_holding(spec, element_bytes), config, usable_bytes=usable_bytes)
    return str(refused.value)


def apply_remedy(message: str, spec: ModelSpec, config: EngineConfig, usable_bytes: int) -> tuple[str, MemoryPlan]:
    """Do what the message says, and plan again."""
    found = re.search(r"set (\w+) to ([\w.]+)$", message)
    assert found, message
    name, value = found.groups()
    values: dict[str, Any] = {name: value if name == "dtype" else float(value) if "." in value else int(value)}
    changed = replace(config, **values)
    element_bytes = 2 if changed.dtype == "bfloat16" else 4
    return name, plan_memory(torch_holding(spec, element_bytes), changed, usable_bytes=usable_bytes)


@pytest.mark.parametrize(
    ("spec", "settings", "usable_bytes", "remedy"),
    [
        (smollm2(), {}, 1024 * MIB, "memory_fraction"),
        (smollm2(), {"num_kv_blocks": 60_000, "memory_fraction": 0.5}, 3072 * MIB, "num_kv_blocks"),
        (smollm2(), {"max_model_len": 8192, "memory_fraction": 0.9}, 1024 * MIB, "max_model_len"),
        (smollm2(), {"max_batched_tokens": 8192, "memory_fraction": 0.9}, 2048 * MIB, "max_batched_tokens"),
        (wide_vocabulary(), {"max_batched_tokens": 64, "memory_fraction": 0.9}, 190 * MIB, "max_num_seqs"),
        (llama_7b(), {"memory_fraction": 0.9}, 16 * 1024 * MIB, "dtype"),
    ],
)  # fmt: skip
def test_the_one_setting_named_fixes_it(
    spec: ModelSpec, settings: dict[str, Any], usable_bytes: int, remedy: str
) -> None:
    config = EngineConfig(**settings)
    message = refusal(spec, config, 4, usable_bytes)
    name, plan = apply_remedy(message, spec, config, usable_bytes)
    assert name == remedy
    assert plan.left_bytes >= 0


def test_all_of_memory_is_the_last_resort() -> None:
    spec, config = llama_7b(), EngineConfig(max_batched_tokens=1, max_num_seqs=1, memory_fraction=0.9)
    usable_bytes = 15_300_000_000
    with pytest.raises(DoesNotFitError, match=r"set memory_fraction to 0\.9[0-9]$"):
        plan_memory(torch_holding(spec, 2), config, usable_bytes=usable_bytes)


def test_the_message_has_every_figure() -> None:
    message = refusal(smollm2(), EngineConfig(), 4, 1024 * MIB)
    for figure in (
        "weights 513.13 MiB",
        "workspace ",
        "256 tokens (16 blocks) 11.25 MiB",
        "1,073,741,824 B usable",
        "644,245,094 B",
    ):
        assert figure in message


def test_loading_is_counted_where_it_takes_more_than_the_first_blocks() -> None:
    message = refusal(llama_7b(), EngineConfig(max_batched_tokens=64, memory_fraction=0.9), 2, 15_300_000_000)
    assert (
        "weights 12.55 GiB, and the largest of them twice more in float32 while they are loaded 1000.00 MiB" in message
    )


def test_where_no_setting_helps_it_says_how_much_memory_would() -> None:
    message = refusal(llama_7b(), EngineConfig(), 4, 8 << 30)
    found = re.search(r"no one setting changes that; a smaller model would, or ([\d.]+) GiB usable$", message)
    assert found, message
    plan_memory(torch_holding(llama_7b(), 4), EngineConfig(), usable_bytes=int((float(found[1]) + 0.01) * (1 << 30)))
