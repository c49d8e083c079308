"""Trouble 29: engines differ on whether penalties count the prompt.

Right: presence and frequency penalty look at the output only; repetition penalty at prompt and output.
"""

from __future__ import annotations

import torch

from tests.sampling.requests import choose, new_state

LOGITS = torch.tensor([[1.0, 3.0, 2.0]])


def test_a_token_of_the_prompt_alone_has_no_presence_or_frequency_penalty() -> None:
    for penalty in ("presence_penalty", "frequency_penalty"):
        params = {"temperature": 0.0, penalty: 2.0}
        assert choose(LOGITS, [new_state(3, prompt=[1, 1, 1], **params)]) == [1]
        assert choose(LOGITS, [new_state(3, prompt=[1], output=[1], **params)]) == [2]


def test_frequency_counts_and_presence_does_not() -> None:
    logits = torch.tensor([[0.0, 3.0]])
    output = [1] * 4
    assert choose(logits, [new_state(2, output=output, temperature=0.0, presence_penalty=1.0)]) == [1]
    assert choose(logits, [new_state(2, output=output, temperature=0.0, frequency_penalty=1.0)]) == [0]


def test_repetition_penalty_looks_at_prompt_and_output() -> None:
    params = {"temperature": 0.0, "repetition_penalty": 2.0}
    assert choose(LOGITS, [new_state(3, prompt=[1], **params)]) == [2]
    assert choose(LOGITS, [new_state(3, prompt=[0], output=[1], **params)]) == [2]
    assert choose(LOGITS, [new_state(3, prompt=[0], **params)]) == [1]


def test_penalties_tell_requests_apart() -> None:
    params = {"temperature": 0.0, "presence_penalty": 2.0}
    states = [new_state(3, output=[1], **params), new_state(3, output=[0], **params)]
    assert choose(LOGITS.repeat(2, 1), states) == [2, 1]
