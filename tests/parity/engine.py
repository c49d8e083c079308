"""Scheduler and torch runner without the rest of the engine: token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.policies import FirstComeFirstServed
from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import RequestKey
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.runner.torch_runner import build_torch_runner
from pagoda.sampling_params import SamplingParams

BLOCK_SIZE = 16


def generate(
    model: str,
    prompts: Sequence[Sequence[int]],
    num_tokens: int,
    *,
    dtype: str = "float32",
    max_num_seqs: int = 8,
    max_batched_tokens: int = 64,
    prefill_chunk: int = 32,
    num_blocks: int = 256,
) -> tuple[list[list[int]], int]:
    """Greedy continuations of all prompts in one engine, and how often a request was preempted on the way."""
    checkpoint = open_checkpoint(model)
    family = family_for(checkpoint.config)
    spec = family.spec(checkpoint.config)
    runner = build_torch_runner(
        checkpoint,
        family,
        spec,
        device="cpu",
        dtype=dtype,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=max_num_seqs,
        real_vocab_size=spec.vocab_size,
    )
    config = SchedulerConfig(max_num_seqs, max_batched_tokens, prefill_chunk)
    scheduler = Scheduler(config, KVCacheManager(num_blocks, BLOCK_SIZE), FirstComeFirstServed())
    sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True).resolved({}, num_tokens)
    requests = [
        Request(RequestKey(f"r{index}", 0), tuple(prompt), sampling, seed=0, arrival_time=float(index))
        for index, prompt in enumerate(prompts)
    ]
    for request in requests:
        scheduler.add(request)
    while scheduler.has_unfinished:
        runner.submit(scheduler.schedule())
        scheduler.update(runner.collect())
    runner.close()
    checkpoint.close()
    return [request.output_token_ids for request in requests], sum(request.num_preemptions for request in requests)
