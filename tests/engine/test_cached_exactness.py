"""What the prefix cache has is what would have been computed: tokens and log-probabilities are equal to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest

from pagoda import LLM, _native
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.prefix_cache import PrefixCache, TokenIds
from pagoda.core.request import Request
from pagoda.sampling_params import SamplingParams
from tests.engine.exact import BLOCK_SIZE, LLAMA, VOCAB, WINDOWED, Circumstances, MemoryCheckpoint, Told, request, run
from tests.soak import soak_count

SCHEDULES = soak_count(60)
MODELS = {
    "bf16": (LLAMA, ("BF16",), None),
    "q4_0 windowed": (WINDOWED, ("Q4_0",), None),
    "q8_0 and k-quants": (LLAMA, ("Q8_0", "Q4_K", "Q6_K"), None),
}
TURNS = 3


def with_cache(num_blocks: int, block_size: int) -> KVManager:
    return KVCacheManager(num_blocks, block_size, PrefixCache(block_size))


def with_collisions(num_blocks: int, block_size: int) -> KVManager:
    """Hashes have so few values that different texts meet all the time."""
    cache = PrefixCache(block_size, lambda before, token_ids: hash((before, token_ids)) & 0xFF)
    return KVCacheManager(num_blocks, block_size, cache)


def with_one_text_s_hash_for_all(num_blocks: int, block_size: int) -> KVManager:
    return KVCacheManager(num_blocks, block_size, PrefixCache(block_size, lambda before, token_ids: before + 1))


@dataclass
class Conversations:
    """Requests, the turns before which each one comes, and what they get without a cache, in one batch."""

    make: list[Callable[[], Request]] = field(default_factory=list)
    follows: dict[int, int] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)

    @property
    def requests(self) -> list[Request]:
        return [make() for make in self.make]

    @property
    def longest(self) -> int:
        """Blocks that the longest of them needs."""
        return max(-(-one.max_num_positions // BLOCK_SIZE) for one in self.requests)


@cache
def model(name: str) -> MemoryCheckpoint:
    return MemoryCheckpoint(*MODELS[name])


@cache
def conversations(name: str, instruction_set: str, seed: int) -> Conversations:
    """Under two system prompts; each turn goes on from what was generated in the one before; some have several choices."""
    numbers, made = random.Random(seed), Conversations()
    systems = [[numbers.randrange(VOCAB) for _ in range(length)] for length in (37, 64)]
    heads = [(numbers.choice(systems), -1) for _ in range(4)]  # (text so far, number of the request that it ends with)
    for _ in range(TURNS):
        new = []
        for text, before in heads:
            prompt = (*text, *(numbers.randrange(VOCAB) for _ in range(numbers.choice((1, 5, 16, 30)))))
            sampling = {
                "temperature": numbers.choice((0.0, 0.0, 0.9)),
                "frequency_penalty": numbers.choice((0.0, 0.4)),
                "max_tokens": numbers.randint(2, 40),
                "logprobs": numbers.choice((0, 3)),
                "prompt_logprobs": numbers.choice((None, None, None, 1)),
            }
            for choice in range(numbers.choice((1, 1, 3))):
                number = len(made.make)
                made.make.append(lambda n=number, p=prompt, c=choice, s=sampling: request(n, p, c, **s))
                new.append(made.make[-1]())
                if before >= 0:
                    made.follows[number] = before
        made.told |= run(model(name), instruction_set, Circumstances(num_blocks=512), new).told
        firsts = [one for one in new if one.key.choice == 0]
        heads = [
            ([*one.prompt_token_ids, *made.told[int(one.key.request_id)].token_ids], int(one.key.request_id))
            for one in firsts
        ]
    return made


@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
@pytest.mark.parametrize("name", MODELS)
def test_conversations_get_the_same_with_a_cache_and_without(name: str, instruction_set: str) -> None:
    cached = preempted = 0
    for seed in range(SCHEDULES):
        talk, numbers = conversations(name, instruction_set, seed % 3), random.Random(f"{name} {seed}")
        requests = talk.requests
        circumstances = Circumstances(
            threads=(1, 2, 4)[seed % 3],
            num_blocks=numbers.choice((talk.longest, talk.longest + 3, 2 * talk.longest, 200)),
            max_num_seqs=numbers.randint(2, 9),
            max_batched_tokens=(budget := numbers.choice((9, 17, 33, 64, 100, 300))),
            prefill_chunk=numbers.randint(1, budget),
            manager=numbers.choice((with_cache, with_cache, with_collisions)),
        )
        arrivals = [numbers.randrange(30) for _ in requests]
        aborts = {number: numbers.randint(1, 20) for number in range(len(requests)) if numbers.random() < 0.2}
        crowd = run(
            model(name), instruction_set, circumstances, requests, arrivals, follows=talk.follows, aborts=aborts
        )
        for number, expected in talk.told.items():
            assert crowd.told[number] == cut(expected, aborts.get(number)), (number, circumstances)
        cached += crowd.num_found_tokens
        preempted += crowd.num_preemptions
    assert cached > 200 * SCHEDULES
    assert preempted > 0


def cut(told: Told, num_tokens: int | None) -> Told:
    return Told(told.token_ids[:num_tokens], told.logprobs[:num_tokens], told.prompt_logprobs)


def test_the_comparison_sees_another_text_s_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were tokens not compared, a collision of hashes would give another text's K and V: and the test above would fail."""
    monkeypatch.setattr("pagoda.core.prefix_cache.PrefixCache._next", found_by_hash_alone)
    first, second = request(0, 40, max_tokens=4, logprobs=1), request(1, 40, max_tokens=4, logprobs=1)
    instruction_set = _native.instruction_sets()[0]
    lone = run(model("bf16"), instruction_set, Circumstances(), [second])
    crowd = run(
        model("bf16"),
        instruction_set,
        Circumstances(manager=with_one_text_s_hash_for_all),
        [first, request(1, 40, max_tokens=4, logprobs=1)],
        [0, 9],
    )
    assert crowd.num_found_tokens == 32
    assert crowd.told[1] != lone.told[1]


def found_by_hash_alone(self: object, after: object, token_ids: TokenIds) -> object:
    return self._index.get(self._hash(self._chain_hash(after), token_ids))  # type: ignore[attr-defined]


def test_the_reference_says_the_same_with_a_cache_and_without(tiny_model: str) -> None:
    def conversation(prefix_cache: bool) -> tuple[list[str], int]:
        messages, cached = [{"role": "user", "content": "Tell me of a city in a sentence or two."}], 0
        settings = {"num_kv_blocks": 64, "prefix_cache": prefix_cache, "max_batched_tokens": 32, "threads": 1}
        with LLM(tiny_model, device="reference", **settings) as llm:
            for _ in range(2):
                (output,) = llm.chat(messages, SamplingParams(temperature=0, max_tokens=8, n=2))
                cached += output.usage.cached_tokens
                answer = output.outputs[0].text
                messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
        return [message["content"] for message in messages], cached

    without, with_cache = conversation(False), conversation(True)
    assert without[0] == with_cache[0]
    assert (without[1], with_cache[1] >= 48) == (0, True)
