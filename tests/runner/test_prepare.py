"""Steps laid out as arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.errors import InvalidValueError, InvariantError
from pagoda.runner.prepare import InputBatch, PreparedStep, on_its_way
from tests.runner.steps import request, row, step
from tests.soak import soak_count

PROPERTY_EXAMPLES = soak_count(1000)
VOCAB = 50


def inputs(num_blocks: int = 20, block_size: int = 4, max_num_seqs: int = 8) -> InputBatch:
    return InputBatch(num_blocks, block_size, max_num_seqs, VOCAB)


def test_a_mixed_step_by_hand() -> None:
    batch = inputs()
    prepared = batch.prepare(step(0, [row("a", 0, 5, [7, 2])], [request("a", [10, 11, 12, 13, 14])]))
    assert _arrays(prepared) == {
        "input_ids": [10, 11, 12, 13, 14],
        "positions": [0, 1, 2, 3, 4],
        "slot_mapping": [28, 29, 30, 31, 8],
        "query_start_loc": [0, 5],
        "seq_lens": [5],
        "block_table": [[7, 2]],
        "logit_rows": [4],
        "new_blocks": [2],
    }
    prepared.running[0].arrived(5, 33)
    new = [request("b", [20, 21, 22, 23, 24, 25, 26, 27, 28])]
    prepared = batch.prepare(step(1, [row("a", 5, 1), row("b", 0, 6, [0, 9, 3], samples=False)], new))
    assert _arrays(prepared) == {
        "input_ids": [33, 20, 21, 22, 23, 24, 25],
        "positions": [5, 0, 1, 2, 3, 4, 5],
        "slot_mapping": [9, 0, 1, 2, 3, 36, 37],
        "query_start_loc": [0, 1, 7],
        "seq_lens": [6, 6],
        "block_table": [[7, 2, 0], [0, 9, 3]],
        "logit_rows": [0],
        "new_blocks": [9, 3],
    }
    assert prepared.sampling_rows.tolist() == [0]
    prepared.running[0].arrived(6, 34)
    prepared = batch.prepare(step(2, [row("b", 6, 3)], dropped=["a"]))
    assert _arrays(prepared)["input_ids"] == [26, 27, 28]
    assert _arrays(prepared)["slot_mapping"] == [38, 39, 12]
    assert len(batch) == 1


def test_rows_of_logits_with_prompt_logprobs() -> None:
    batch = inputs()
    new = [request("a", [1, 2, 3], prompt_logprobs=0), request("b", [4, 5]), request("c", [6, 7, 8], prompt_logprobs=1)]
    rows = [row("a", 0, 3, [0]), row("b", 0, 2, [1]), row("c", 0, 2, [2], samples=False)]
    prepared = batch.prepare(step(0, rows, new))
    # Positions 0 and 1 of a and c speak of the prompt; the last of a and of b choose tokens.
    assert prepared.batch.logit_rows.tolist() == [0, 1, 2, 4, 5, 6]
    assert prepared.sampling_rows.tolist() == [0, 1]
    assert prepared.sampling_logits.tolist() == [2, 3]
    assert [(p.row, p.first, p.token_ids.tolist(), p.position) for p in prepared.prompts] == [
        (0, 0, [2, 3], 1),
        (2, 4, [7, 8], 1),
    ]


def test_prompt_logprobs_end_with_the_prompt() -> None:
    batch = inputs()
    new = [request("a", [1, 2], output=[3, 4], prompt_logprobs=0), request("b", [1], prompt_logprobs=0)]
    prepared = batch.prepare(step(0, [row("a", 0, 4, [0]), row("b", 0, 1, [1])], new))
    assert [(p.row, p.token_ids.tolist()) for p in prepared.prompts] == [(0, [2])]
    assert prepared.batch.logit_rows.tolist() == [0, 3, 4]


def test_the_scheduled_blocks_of_a_returning_request_replace_its_old_ones() -> None:
    batch = inputs()
    batch.prepare(step(0, [row("a", 0, 2, [5])], [request("a", [1, 2])]))
    prepared = batch.prepare(step(1, [row("a", 0, 3, [6])], [request("a", [1, 2], output=[3])], dropped=["a"]))
    assert prepared.batch.slot_mapping.tolist() == [24, 25, 26]


def test_a_token_on_its_way_is_named_by_its_place_among_those_that_the_step_before_chose() -> None:
    batch = inputs()
    new = [request("a", [1, 2]), request("b", [3, 4]), request("c", [5])]
    rows = [row("a", 0, 1, [0], samples=False), row("b", 0, 2, [1]), row("c", 0, 1, [2])]
    first = batch.prepare(step(0, rows, new))
    second = batch.prepare(step(1, [row("c", 1, 1), row("a", 1, 1), row("b", 2, 1)]))
    assert second.batch.input_ids.tolist() == [on_its_way(1), 2, on_its_way(0)]
    for index, token_id in ((1, 40), (2, 41)):
        first.running[index].arrived(int(first.batch.seq_lens[index]), token_id)
    assert [list(each.tokens) for each in second.running] == [[5, 41, -1], [1, 2, -2], [3, 4, 40, -3]]


def test_a_token_that_arrives_late_goes_to_the_request_that_it_was_chosen_for() -> None:
    batch = inputs()
    first = batch.prepare(step(0, [row("a", 0, 2, [5])], [request("a", [1, 2])]))
    second = batch.prepare(step(1, [row("a", 0, 3, [6])], [request("a", [7, 8, 9])], dropped=["a"]))
    first.running[0].arrived(2, 33)
    assert list(second.running[0].tokens) == [7, 8, 9, on_its_way(0)]


@pytest.mark.parametrize(
    ("rows", "new", "said"),
    [
        ([], [], "no rows"),
        ([row("b", 0, 1, [0])], [], "not running"),
        ([row("a", 0, 1)], [], "positions 0 to 0, but 2 of its 3"),
        ([row("a", 2, 0)], [], "positions 2 to 1, but 2 of its 3"),
        ([row("a", 2, 2)], [], "positions 2 to 3, but 2 of its 3"),
        ([row("b", 0, 1, [0])], [request("b", [1, 2])], "samples after position 0"),
        ([row("a", 2, 1, [20])], [], "a block that is not one of the 20"),
        ([row("a", 2, 1, [-1])], [], "a block that is not one of the 20"),
        ([row("b", 0, 5, [0])], [request("b", [1] * 5)], "position 4, for which its table has no block"),
        ([row("a", 2, 1)], [request("a", [1])], "running already"),
        ([row("b", 0, 1, [0])], [request("b", [VOCAB])], "token ids that are not from 0 to 49"),
        ([row("b", 0, 1, [0])], [request("b", [-1])], "token ids that are not from 0 to 49"),
        ([row("b", 0, 1, [0])], [request("b", [])], "0 prompt tokens of 0"),
        ([row("a", 2, 1)], [request("b", [1]), request("c", [1])], "the 2 that may run at once are running"),
    ],
)
def test_a_step_that_contradicts_what_is_known(rows: list, new: list, said: str) -> None:
    batch = inputs(max_num_seqs=2)
    batch.prepare(step(0, [row("a", 0, 2, [1])], [request("a", [1, 2])]))
    with pytest.raises(InvariantError, match=said):
        batch.prepare(step(1, rows, new))


def test_a_lost_block_is_zeroed_once_before_the_next_step() -> None:
    batch = inputs()
    batch.prepare(step(0, [row("a", 0, 2, [5])], [request("a", [1, 2])]))
    batch.lose_block(5)
    assert batch.prepare(step(1, [row("a", 2, 1)])).batch.new_blocks.tolist() == [5]
    assert batch.prepare(step(2, [row("a", 3, 1)])).batch.new_blocks.tolist() == []
    for block_id in (-1, 20):
        with pytest.raises(InvalidValueError, match="block_id"):
            batch.lose_block(block_id)


def test_after_forgetting_all_a_key_may_come_again() -> None:
    batch = inputs(max_num_seqs=1)
    batch.prepare(step(0, [row("a", 0, 2, [5])], [request("a", [1, 2])]))
    batch.forget_all()
    assert len(batch) == 0
    batch.prepare(step(0, [row("a", 0, 1, [3])], [request("a", [1])]))


def test_dropping_what_is_not_known_is_fine() -> None:
    batch = inputs()
    batch.prepare(step(0, [row("a", 0, 1, [1])], [request("a", [1])], dropped=["never added"]))


@settings(max_examples=PROPERTY_EXAMPLES, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_schedule_is_what_a_naive_layout_says(data: st.DataObject) -> None:
    """Requests come, compute random shares, sample and go; each step is compared with one laid out token by token."""
    block_size = data.draw(st.integers(1, 5))
    batch = InputBatch(500, block_size, 4, VOCAB)
    tokens: dict[str, list[int]] = {}
    tables: dict[str, list[int]] = {}
    computed: dict[str, int] = {}
    free = iter(np.random.default_rng(0).permutation(500).tolist())
    dropped: list[str] = []
    for number in range(6):
        new, rows = [], []
        for name in data.draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1)):
            if name not in tokens:
                tokens[name] = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12))
                tables[name], computed[name] = [], 0
                new.append(request(name, tokens[name]))
            start = computed[name]
            count = data.draw(st.integers(1, len(tokens[name]) - start))
            needed = -(-(start + count) // block_size) - len(tables[name]) + data.draw(st.integers(0, 1))
            blocks = [next(free) for _ in range(needed)]
            tables[name] += blocks
            computed[name] += count
            rows.append(row(name, start, count, blocks, samples=start + count == len(tokens[name])))
        prepared = batch.prepare(step(number, rows, new, dropped))
        arrays = _arrays(prepared)
        dropped = []
        at = [(each.key.request_id, p) for each in rows for p in range(each.start, each.start + each.num_tokens)]
        assert arrays["input_ids"] == [tokens[name][position] for name, position in at]
        assert arrays["positions"] == [position for _, position in at]
        assert arrays["slot_mapping"] == [tables[n][p // block_size] * block_size + p % block_size for n, p in at]
        assert arrays["seq_lens"] == [each.start + each.num_tokens for each in rows]
        assert arrays["logit_rows"] == [i for i, (name, position) in enumerate(at) if position == len(tokens[name]) - 1]
        assert arrays["new_blocks"] == [
            block
            for each in rows
            for index, block in enumerate(tables[each.key.request_id])
            if block in each.new_block_ids and (index + 1) * block_size > each.start + each.num_tokens
        ]
        width = max(len(tables[each.key.request_id]) for each in rows)
        padded = [(tables[each.key.request_id] + [0] * width)[:width] for each in rows]
        assert arrays["block_table"] == padded
        for each, known in zip(rows, prepared.running, strict=True):
            name = each.key.request_id
            if each.samples and data.draw(st.booleans()):
                tokens.pop(name)
                dropped.append(name)
            elif each.samples:
                tokens[name].append(data.draw(st.integers(0, VOCAB - 1)))
                known.arrived(len(tokens[name]) - 1, tokens[name][-1])


def _arrays(prepared: PreparedStep) -> dict[str, list]:
    return {name: getattr(prepared.batch, name).tolist() for name in prepared.batch.__slots__}
