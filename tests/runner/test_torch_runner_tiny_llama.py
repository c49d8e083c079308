"""The torch runner under the real scheduler, with a real if tiny LLaMA: a request's text does not depend on circumstances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from pagoda.core import invariants
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.policies import FirstComeFirstServed
from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import RequestKey, TokenLogprobs
from pagoda.errors import DoesNotFitError
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.runner.torch_runner import TorchRunner, build_torch_runner
from pagoda.sampling_params import SamplingParams
from tests.parity.configs import CONFIGS

transformers = pytest.importorskip("transformers")

LENGTHS = (1, 17, 40, 5, 33)
NUM_TOKENS = 20
REAL_VOCAB = 250


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    # More threads only wait for each other over a model so small, and for seconds where the machine is busy.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(1)
    config = CONFIGS["llama-gqa"]()
    # Larger than what training starts with, so that the text is not one token repeated.
    config.initializer_range = 0.3
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    generator = np.random.default_rng(3)
    return [tuple(generator.integers(3, REAL_VOCAB, length).tolist()) for length in LENGTHS]


def new_runner(directory: Path, num_blocks: int, real_vocab_size: int = REAL_VOCAB) -> TorchRunner:
    checkpoint = open_checkpoint(str(directory))
    family = family_for(checkpoint.config)
    runner = build_torch_runner(
        checkpoint,
        family,
        family.spec(checkpoint.config),
        device="cpu",
        dtype="float32",
        num_blocks=num_blocks,
        block_size=4,
        max_num_seqs=8,
        real_vocab_size=real_vocab_size,
    )
    checkpoint.close()
    return runner


def generate(
    runner: TorchRunner,
    prompts: list[tuple[int, ...]],
    sampling: SamplingParams,
    *,
    num_blocks: int = 100,
    max_batched_tokens: int = 512,
    in_flight: int = 0,
) -> tuple[list[list[int]], list[list[TokenLogprobs]], int]:
    """Tokens and prompt log-probabilities of each prompt, and how often one was preempted."""
    config = SchedulerConfig(max_num_seqs=8, max_batched_tokens=max_batched_tokens, prefill_chunk=max_batched_tokens)
    scheduler = Scheduler(config, KVCacheManager(num_blocks, 4), FirstComeFirstServed())
    sampling = sampling.resolved({}, NUM_TOKENS)
    for index, prompt in enumerate(prompts):
        scheduler.add(Request(RequestKey(str(prompt), 0), prompt, sampling, seed=11, arrival_time=index))
    tokens: dict[str, list[int]] = {str(prompt): [] for prompt in prompts}
    logprobs: dict[str, list[TokenLogprobs]] = {str(prompt): [] for prompt in prompts}
    while scheduler.has_unfinished or scheduler.in_flight:
        step = scheduler.schedule()
        if step.rows:
            runner.submit(step)
        if len(scheduler.in_flight) > in_flight or not step.rows:
            for event in scheduler.update(runner.collect()):
                assert event.error is None
                tokens[event.key.request_id] += event.token_ids
                logprobs[event.key.request_id] += event.prompt_logprobs
        invariants.check(scheduler)
    return list(tokens.values()), list(logprobs.values()), scheduler.num_preemptions


def test_a_cache_that_no_memory_holds_is_one_sentence(directory: Path) -> None:
    with pytest.raises(DoesNotFitError, match=r"cpu ran out of memory .* 10,000,000,000,000 KV blocks; choose fewer"):
        new_runner(directory, 10**13)


def test_greedy_text_is_that_of_transformers(directory: Path, prompts: list[tuple[int, ...]]) -> None:
    model = transformers.LlamaForCausalLM.from_pretrained(directory).eval()
    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            for _ in range(NUM_TOKENS):
                ids = torch.cat([ids, model(ids).logits[:, -1, :REAL_VOCAB].argmax(-1, keepdim=True)], 1)
        expected.append(ids[0, len(prompt) :].tolist())
    assert generate(new_runner(directory, 100), prompts, SamplingParams(temperature=0.0))[0] == expected
    assert len({tuple(tokens) for tokens in expected}) > 1
    assert max(len(set(tokens)) for tokens in expected) > 5


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.8, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2, min_tokens=5),
    ],
)
def test_text_is_the_same_alone_in_a_crowd_in_chunks_and_after_preemption(
    directory: Path, prompts: list[tuple[int, ...]], sampling: SamplingParams
) -> None:
    crowd, _, _ = generate(new_runner(directory, 100), prompts, sampling)
    assert all(len(tokens) == NUM_TOKENS for tokens in crowd)
    alone = [generate(new_runner(directory, 100), [prompt], sampling)[0][0] for prompt in prompts]
    assert alone == crowd
    for chunk in (5, 7, 32):
        assert generate(new_runner(directory, 100), prompts, sampling, max_batched_tokens=chunk)[0] == crowd
    assert generate(new_runner(directory, 100), prompts, sampling, in_flight=1)[0] == crowd
    for in_flight in (0, 1):
        text, _, preemptions = generate(
            new_runner(directory, 26), prompts, sampling, num_blocks=26, in_flight=in_flight
        )
        assert text == crowd
        assert preemptions > 0


def test_prompt_logprobs_are_those_of_the_whole_prompt_whatever_the_chunk(
    directory: Path, prompts: list[tuple[int, ...]]
) -> None:
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=2, max_tokens=1)
    _, whole, _ = generate(new_runner(directory, 100), prompts, sampling)
    _, chunked, _ = generate(new_runner(directory, 100), prompts, sampling, max_batched_tokens=6)
    model = transformers.LlamaForCausalLM.from_pretrained(directory).eval()
    for prompt, entries, pieces in zip(prompts, whole, chunked, strict=True):
        assert [entry.token_ids[0] for entry in entries] == list(prompt[1:])
        with torch.inference_mode():
            expected = model(torch.tensor([prompt])).logits[0, :-1, :REAL_VOCAB].log_softmax(-1)
        for position, entry in enumerate(entries):
            assert entry.logprobs == pytest.approx(expected[position, list(entry.token_ids)].tolist(), abs=1e-3)
        assert [entry.token_ids for entry in pieces] == [entry.token_ids for entry in entries]
        for entry, piece in zip(entries, pieces, strict=True):
            assert piece.logprobs == pytest.approx(entry.logprobs, abs=1e-4)
