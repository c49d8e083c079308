"""The memory formula against what the torch reference really allocates: weights and cache to the byte, a step within it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pagoda.core.step import NewRequest, RequestKey, ScheduledRow, SchedulerOutput
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.models.weights import load_model
from pagoda.ops.reference_cache import allocate_kv
from pagoda.ops.reference_weights import TorchWeightOps
from pagoda.planning.holding import held_format, weight_bytes
from pagoda.planning.memory import kv_block_bytes
from pagoda.planning.workspace import activation_bytes
from pagoda.runner.torch_runner import TorchRunner, build_torch_runner
from pagoda.sampling_params import SamplingParams

CPU = torch.device("cpu")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BLOCK_SIZE, ROWS, CONTEXT = 16, 8, 256
BLOCKS_PER_ROW = CONTEXT // BLOCK_SIZE
EVERYTHING = SamplingParams(
    temperature=1.0, top_p=0.9, frequency_penalty=0.5, logprobs=5, prompt_logprobs=5, max_tokens=2
)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_weights_and_cache_take_what_the_formula_says(tiny_model: str, dtype: str) -> None:
    checkpoint = open_checkpoint(tiny_model)
    family = family_for(checkpoint.config)
    spec, size = family.spec(checkpoint.config), DTYPES[dtype].itemsize
    ops = TorchWeightOps(CPU, DTYPES[dtype])
    load_model(checkpoint, family, spec, ops)
    assert ops.num_bytes == weight_bytes(spec, held_format(size))
    cache = allocate_kv(spec, 10, BLOCK_SIZE, CPU, DTYPES[dtype])
    assert sum(tensor.nbytes for tensor in (*cache.keys, *cache.values)) == 10 * kv_block_bytes(spec, BLOCK_SIZE, size)
    checkpoint.close()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_no_step_takes_more_than_the_workspace(tiny_model: str, dtype: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_model)
    family = family_for(checkpoint.config)
    spec = family.spec(checkpoint.config)
    runner = build_torch_runner(
        checkpoint,
        family,
        spec,
        device="cpu",
        dtype=dtype,
        num_blocks=ROWS * BLOCKS_PER_ROW,
        block_size=BLOCK_SIZE,
        max_num_seqs=ROWS,
        real_vocab_size=spec.vocab_size,
    )
    workspace = activation_bytes(
        spec,
        max_batched_tokens=ROWS * (CONTEXT - 1),
        max_num_seqs=ROWS,
        max_model_len=CONTEXT,
        element_bytes=DTYPES[dtype].itemsize,
    )
    for step in (prefill(), decode()):
        assert 0 < peak_bytes(runner, step, tmp_path) <= workspace
    runner.close()
    checkpoint.close()


def prefill() -> SchedulerOutput:
    """Every row's prompt but for one token of the context, all at once."""
    length = CONTEXT - 1
    sampling = EVERYTHING.resolved({}, 2)
    new = [
        NewRequest(
            key=key(index),
            token_ids=tuple((7 * position + index) % 250 for position in range(length)),
            num_prompt_tokens=length,
            sampling=sampling,
            seed=index,
            end_token_ids=frozenset(),
        )
        for index in range(ROWS)
    ]
    rows = [ScheduledRow(key(index), 0, length, blocks(index), True) for index in range(ROWS)]
    return SchedulerOutput(0, (), tuple(new), tuple(rows))


def decode() -> SchedulerOutput:
    return SchedulerOutput(
        1, (), (), tuple(ScheduledRow(key(index), CONTEXT - 1, 1, (), True) for index in range(ROWS))
    )


def key(index: int) -> RequestKey:
    return RequestKey(f"r{index}", 0)


def blocks(index: int) -> tuple[int, ...]:
    return tuple(range(index * BLOCKS_PER_ROW, (index + 1) * BLOCKS_PER_ROW))


def peak_bytes(runner: TorchRunner, step: SchedulerOutput, tmp_path: Path) -> int:
    """The most that the step held beside what was there before it, by torch's own count of allocations."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        runner.submit(step)
        results = runner.collect().rows
    assert all(result.error is None for result in results)
    trace = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    totals = [event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]"]
    return int(max(totals) - min(0, *totals))
