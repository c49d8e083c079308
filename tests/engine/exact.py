"""Tiny models in memory, in any weight format, and engines over them that are driven by hand: what tests of exactness need."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from pagoda.core import invariants
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.policies import FirstComeFirstServed
from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import RequestKey, TokenEvent, TokenLogprobs
from pagoda.core.watermark import FixedShare
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.models.registry import family_for
from pagoda.planning.formats import FORMATS
from pagoda.runner.native_runner import build_native_runner
from pagoda.sampling_params import SamplingParams

VOCAB = 300
BLOCK_SIZE = 16
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
}
WINDOWED = {**LLAMA, "model_type": "mistral", "sliding_window": 40, "tie_word_embeddings": False}
# Each query head has K and V of its own.
ALONE = {**LLAMA, "num_key_value_heads": 4}
# Where the fp16 numbers of a block are, and their size: so that weights have a deviation of about 0.05.
SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 0.011),),
    "Q4_1": ((0, 0.011), (2, -0.08)),
    "Q5_0": ((0, 0.0055),),
    "Q5_1": ((0, 0.0055), (2, -0.085)),
    "Q8_0": ((0, 0.0007),),
    "Q4_K": ((0, 0.0003), (2, 0.0023)),
    "Q5_K": ((0, 0.00015), (2, 0.0023)),
    "Q6_K": ((208, 0.00007),),
}


class MemoryCheckpoint:
    """Random weights: matrices in the formats given, one after the other in turn; gains near 1.

    quantization, kv_dtype: with which it is to be loaded, None, "int8" or "int4"; "bfloat16" or "int8".
    """

    kind: Literal["huggingface", "gguf"] = "huggingface"
    name = "random"
    directory = None
    metadata: Mapping[str, Any] = {}
    generation_config: Mapping[str, Any] = {}

    def __init__(
        self,
        config: Mapping[str, Any],
        formats: Sequence[str],
        quantization: str | None = None,
        kv_dtype: str = "bfloat16",
    ) -> None:
        self.config, self.quantization, self.kv_dtype = config, quantization, kv_dtype
        family = family_for(config)
        self.spec = family.spec(config)
        sources = family.sources(self.spec)
        generator, self._stored = np.random.default_rng(0), dict[str, StoredTensor]()
        for number, weight in enumerate(self.spec.weights):
            names, transform = sources[weight.name].of("huggingface")
            shape = transform.stored_shape(weight.shape)
            format_name = formats[number % len(formats)] if len(shape) > 1 else "F32"
            self._stored[names[0]] = _random(names[0], shape, format_name, generator)
        self.tensors = {name: stored.info for name, stored in self._stored.items()}

    def read(self, name: str) -> StoredTensor:
        return self._stored[name]

    def release(self, name: str) -> None: ...

    def close(self) -> None: ...


def _random(name: str, shape: tuple[int, ...], format_name: str, generator: np.random.Generator) -> StoredTensor:
    kind = FORMATS[format_name]
    if kind.block_elements == 1:
        values = generator.normal(1.0 if len(shape) == 1 else 0.0, 0.05, shape).astype(np.float32)
        dense = {
            "F32": values,
            "F16": values.astype(np.float16),
            "BF16": (values.view(np.uint32) >> 16).astype(np.uint16),
        }
        data = dense[format_name].view(np.uint8).reshape(1 if len(shape) == 1 else shape[0], -1)
    else:
        num_blocks = shape[0] * shape[1] // kind.block_elements
        blocks = generator.integers(0, 256, (num_blocks, kind.block_bytes), np.uint8)
        for place, size in SCALES[format_name]:
            scales = generator.uniform(0.5, 1.5, (num_blocks, 1)) * size
            blocks[:, place : place + 2] = scales.astype(np.float16).view(np.uint8)
        data = blocks.reshape(shape[0], -1)
    return StoredTensor(TensorInfo(name, shape, format_name, data.size), data)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What must not change a request's numbers."""

    threads: int = 1
    num_blocks: int = 256
    max_num_seqs: int = 16
    max_batched_tokens: int = 512
    prefill_chunk: int = 512
    manager: Callable[[int, int], KVManager] = KVCacheManager


@dataclass(slots=True)
class Told:
    """All that a request's client was told, numbers in full."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """By the requests' numbers; how often one was preempted; in which step each entered last; and how many tokens were found
    in the prefix cache."""

    told: dict[int, Told]
    num_preemptions: int
    entered: dict[int, int]
    num_found_tokens: int


def request(number: int, prompt: int | Sequence[int], choice: int = 0, **sampling: Any) -> Request:
    """prompt: token ids, or how many it is to have, of its own."""
    if isinstance(prompt, int):
        prompt = np.random.default_rng(number).integers(0, VOCAB, prompt).tolist()
    params = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **sampling}).resolved({}, 64)
    return Request(RequestKey(f"{number}", choice), tuple(prompt), params, seed=number, arrival_time=float(number))


def make_requests(seed: int, count: int = 8) -> list[Request]:
    """Greedy ones and ones that choose at random, with short and long prompts, some with penalties or prompt logprobs."""
    numbers = random.Random(seed)
    return [
        request(
            number,
            numbers.choice((1, 2, 15, 16, 17, 40, 70, 130)),
            temperature=numbers.choice((0.0, 0.0, 0.8, 1.3)),
            top_p=numbers.choice((1.0, 0.9)),
            top_k=numbers.choice((0, 20)),
            frequency_penalty=numbers.choice((0.0, 0.4)),
            max_tokens=numbers.randint(2, 24),
            logprobs=numbers.choice((None, 0, 3)),
            prompt_logprobs=numbers.choice((None, 1)),
        )
        for number in range(count)
    ]


def run(
    checkpoint: MemoryCheckpoint,
    instruction_set: str,
    circumstances: Circumstances,
    requests: Sequence[Request],
    arrivals: Sequence[int] = (),
    *,
    follows: Mapping[int, int] = MappingProxyType({}),
    aborts: Mapping[int, int] = MappingProxyType({}),
) -> Outcome:
    """Run the requests to their ends.

    arrivals: before which step each comes; empty: all before the first. follows: which of them come only when another has
    ended. aborts: which are aborted, after how many tokens.
    """
    runner = build_native_runner(
        checkpoint,
        family_for(checkpoint.config),
        checkpoint.spec,
        threads=circumstances.threads,
        instruction_set=instruction_set,
        quantization=checkpoint.quantization,
        kv_dtype=checkpoint.kv_dtype,
        num_blocks=circumstances.num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=circumstances.max_num_seqs,
        max_batched_tokens=circumstances.max_batched_tokens,
        real_vocab_size=VOCAB,
    )
    limits = (circumstances.max_num_seqs, circumstances.max_batched_tokens, circumstances.prefill_chunk)
    kv = circumstances.manager(circumstances.num_blocks, BLOCK_SIZE)
    scheduler = Scheduler(SchedulerConfig(*limits), kv, FirstComeFirstServed(), watermark=FixedShare(0.0))
    told = {number_of(request.key): Told() for request in requests}
    to_come = sorted(zip(arrivals or [0] * len(requests), range(len(requests)), strict=True))
    entered: dict[int, int] = {}
    ended: set[int] = set()
    step = 0
    while to_come or scheduler.has_unfinished:
        for arrival, place in tuple(to_come):
            first = follows.get(number_of(requests[place].key))
            if arrival <= step and (first is None or first in ended):
                to_come.remove((arrival, place))
                scheduler.add(requests[place])
        step += 1
        output = scheduler.schedule()
        entered |= {number_of(new.key): step for new in output.new}
        if output.rows:
            runner.submit(output)
            events = scheduler.update(runner.collect())
            for event in events:
                _note(told[number_of(event.key)], event)
            left = [number for number, count in aborts.items() if len(told[number].token_ids) >= count]
            events += [event for number in left for event in scheduler.abort(f"{number}")]
            ended |= {number_of(event.key) for event in events if event.finish_reason is not None}
        invariants.check(scheduler)
    runner.close()
    num_preemptions = sum(request.num_preemptions for request in requests)
    return Outcome(told, num_preemptions, entered, kv.prefix_stats.hit_tokens)


def number_of(key: RequestKey) -> int:
    return int(key.request_id)


def _note(mine: Told, event: TokenEvent) -> None:
    assert event.error is None
    mine.token_ids += event.token_ids
    mine.logprobs += event.logprobs
    mine.prompt_logprobs += event.prompt_logprobs
