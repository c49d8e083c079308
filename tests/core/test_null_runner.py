from __future__ import annotations

import pytest

from pagoda.core.step import NewRequest, RequestKey, RowResult, ScheduledRow, SchedulerOutput
from pagoda.errors import InvariantError
from pagoda.runner.null import NullRunner
from pagoda.sampling_params import SamplingParams

A, B = RequestKey("a", 0), RequestKey("b", 0)
PROMPT = (3, 1, 4, 1, 5, 9)
VOCAB_SIZE = 1000


def new(key: RequestKey = A, tokens: tuple[int, ...] = PROMPT, **sampling: object) -> NewRequest:
    return NewRequest(key, tokens, len(tokens), SamplingParams(**{"temperature": 0.0, "max_tokens": 9, **sampling}), 0)


def row(
    start: int, count: int, blocks: tuple[int, ...] = (), samples: bool = True, key: RequestKey = A
) -> ScheduledRow:
    return ScheduledRow(key, start, count, blocks, samples)


def execute(runner: NullRunner, *rows: ScheduledRow, new: tuple[NewRequest, ...] = ()) -> list[RowResult]:
    runner.submit(SchedulerOutput(0, (), new, rows))
    return list(runner.collect().rows)


def runner_with_prompt() -> NullRunner:
    runner = NullRunner(VOCAB_SIZE, 4, 4)
    execute(runner, row(0, 6, (0, 1)), new=(new(),))
    return runner


def test_chunks_and_other_blocks_give_the_same_text() -> None:
    whole = NullRunner(VOCAB_SIZE, 4, 4)
    (first,) = execute(whole, row(0, 6, (0, 1)), new=(new(),))
    (second,) = execute(whole, row(6, 1))
    chunked = NullRunner(VOCAB_SIZE, 4, 4)
    execute(chunked, row(0, 5, (3, 2), samples=False), new=(new(),))
    assert execute(chunked, row(5, 1)) == [first]
    assert execute(chunked, row(6, 1)) == [second]


def test_the_text_depends_on_every_token_and_its_place() -> None:
    def first_token(tokens: tuple[int, ...]) -> int | None:
        return execute(NullRunner(VOCAB_SIZE, 4, 4), row(0, 6, (0, 1)), new=(new(A, tokens),))[0].token_id

    assert len({first_token(PROMPT), first_token((3, 1, 4, 1, 5, 8)), first_token((1, 3, 4, 1, 5, 9))}) == 3


def test_only_sampling_depends_on_seed_and_choice() -> None:
    def first_token(temperature: float, choice: int, seed: int) -> int | None:
        key = RequestKey("a", choice)
        request = NewRequest(key, PROMPT, 6, SamplingParams(temperature=temperature, max_tokens=9), seed)
        return execute(NullRunner(VOCAB_SIZE, 4, 4), row(0, 6, (0, 1), key=key), new=(request,))[0].token_id

    assert first_token(0.0, 0, 1) == first_token(0.0, 1, 2)
    assert len({first_token(1.0, 0, 1), first_token(1.0, 0, 2), first_token(1.0, 1, 1)}) == 3


def test_another_request_in_the_same_block_is_noticed() -> None:
    runner = runner_with_prompt()
    execute(runner, row(0, 2, (0,), key=B), new=(new(B, (1, 2)),))
    with pytest.raises(InvariantError, match="has lost what was in block 0"):
        execute(runner, row(6, 1))


def test_no_end_token_before_min_tokens() -> None:
    (free,) = execute(NullRunner(VOCAB_SIZE, 4, 4), row(0, 6, (0, 1)), new=(new(),))
    assert free.token_id is not None
    barred = new(stop_token_ids=[free.token_id], min_tokens=1)
    (result,) = execute(NullRunner(VOCAB_SIZE, 4, 4), row(0, 6, (0, 1)), new=(barred,))
    assert result.token_id == (free.token_id + 1) % VOCAB_SIZE


def test_log_probabilities_come_as_the_contract_says() -> None:
    runner = NullRunner(VOCAB_SIZE, 4, 4)
    request = new(logprobs=2, prompt_logprobs=1)
    (chunk,) = execute(runner, row(0, 4, (0, 1), samples=False), new=(request,))
    (result,) = execute(runner, row(4, 2))
    found = (*chunk.prompt_logprobs, *result.prompt_logprobs)
    assert [entry.token_ids[0] for entry in found] == list(PROMPT[1:])
    assert all(len(entry.token_ids) == len(entry.logprobs) == len(entry.ranks) == 2 for entry in found)
    assert result.logprobs is not None
    assert result.logprobs.token_ids[:2] == (result.token_id, result.token_id)
    assert result.logprobs.ranks == (1, 1, 2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(7, 1), "is to compute positions 7 to 7, but 6 of its 7 known tokens are computed"),
        (row(5, 1), "is to compute positions 5 to 5"),
        (row(6, 2), "is to compute positions 6 to 7"),
        (row(6, 0), "is to compute positions"),
        (row(6, 1, key=B), "is not in the batch"),
        (row(6, 1, (4,)), "is given block 4; there are 4"),
        (row(6, 1, (0,)), "has lost what was in block 0"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(bad: ScheduledRow, message: str) -> None:
    with pytest.raises(InvariantError, match=message):
        execute(runner_with_prompt(), bad)


def test_a_position_without_a_block_is_refused() -> None:
    with pytest.raises(InvariantError, match="position 5, for which its table has no block"):
        execute(NullRunner(VOCAB_SIZE, 4, 4), row(0, 6, (0,)), new=(new(),))


def test_sampling_before_the_last_position_is_refused() -> None:
    with pytest.raises(InvariantError, match="samples after position 4"):
        execute(NullRunner(VOCAB_SIZE, 4, 4), row(0, 5, (0, 1)), new=(new(),))


def test_a_request_that_is_in_the_batch_cannot_enter_it() -> None:
    with pytest.raises(InvariantError, match="it is in the batch already"):
        execute(runner_with_prompt(), new=(new(),))


def test_at_most_two_steps_are_in_flight() -> None:
    runner = NullRunner(VOCAB_SIZE, 4, 4)
    for step in range(2):
        runner.submit(SchedulerOutput(step, (), (), ()))
    with pytest.raises(InvariantError, match="2 steps are in flight already"):
        runner.submit(SchedulerOutput(2, (), (), ()))
    assert [runner.collect().step for _ in range(2)] == [0, 1]
    with pytest.raises(InvariantError, match="no step is in flight"):
        runner.collect()
