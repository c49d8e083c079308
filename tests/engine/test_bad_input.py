"""Bad input: each an error naming field, value and limit, while the other requests of the batch go on unharmed."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from pagoda import LLM, SamplingParams
from pagoda.errors import InvalidValueError, QueueFullError, UnsupportedModelError, shown

GOOD = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)

BAD_PARAMETERS = [
    ({"max_tokens": 0}, "max_tokens", "0", "at least 1"),
    ({"max_tokens": -1}, "max_tokens", "-1", "at least 0"),
    ({"max_tokens": 1.5}, "max_tokens", "1.5", "an integer"),
    ({"max_tokens": True}, "max_tokens", "True", "an integer"),
    ({"temperature": math.nan}, "temperature", "nan", "a finite number from 0.0 to 100.0"),
    ({"temperature": -0.1}, "temperature", "-0.1", "from 0.0"),
    ({"temperature": "hot"}, "temperature", "'hot'", "a finite number"),
    ({"temperature": 10**400}, "temperature", "1,329 bits", "a finite number"),
    ({"max_tokens": -(10**5000)}, "max_tokens", "16,610 bits", "at least 0"),
    ({"top_p": 0.0}, "top_p", "0.0", "above 0"),
    ({"top_p": math.inf}, "top_p", "inf", "from 0.0 to 1.0"),
    ({"top_k": -1}, "top_k", "-1", "from 0"),
    ({"min_p": 2}, "min_p", "2", "from 0.0 to 1.0"),
    ({"presence_penalty": 3}, "presence_penalty", "3", "from -2.0 to 2.0"),
    ({"frequency_penalty": None}, "frequency_penalty", "None", "a finite number"),
    ({"repetition_penalty": 0}, "repetition_penalty", "0", "from 0.01"),
    ({"n": 1000}, "n", "1000", "from 1 to 128"),
    ({"n": 0}, "n", "0", "from 1 to 128"),
    ({"stop": tuple(str(i) for i in range(10_000))}, "stop", "10,000 entries", "at most 16"),
    ({"stop": ("",)}, "stop[0]", "''", "not empty"),
    ({"stop": ("x" * 5000,)}, "stop[0]", "5,000", "at most 1,024"),
    ({"stop": 5}, "stop", "5", "a string or a list"),
    ({"stop_token_ids": ("a",)}, "stop_token_ids[0]", "'a'", "an integer"),
    ({"logprobs": 21}, "logprobs", "21", "from 0 to 20"),
    ({"seed": -1}, "seed", "-1", "from 0"),
    ({"seed": 1 << 63}, "seed", str(1 << 63), "from 0"),
    ({"ignore_eos": 1}, "ignore_eos", "1", "true or false"),
    ({"logit_bias": {-1: 1.0}}, "logit_bias", "-1", "at least 0"),
    ({"logit_bias": {1: 1000}}, "logit_bias[1]", "1000", "from -100.0 to 100.0"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "'x'", "an integer"),
    ({"logit_bias": [1]}, "logit_bias", "[1]", "a mapping"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens", "9", "at most max_tokens (8)"),
]

BAD_REQUESTS = [
    ("", GOOD, "prompt", "at least one token"),
    ([], GOOD, "prompt", "at least one token"),
    ([1, 999_999], GOOD, "prompt[1]", "from 0 to 258"),
    ([1, -1], GOOD, "prompt[1]", "from 0 to 258"),
    ([1, 1.5], GOOD, "prompt[1]", "an integer"),
    ("lone surrogate \ud800", GOOD, "prompt", "UTF-8"),
    (np.array([1, 999]), GOOD, "prompt", "text, a list of token ids"),
    (b"bytes", GOOD, "prompt", "text, a list of token ids"),
    (5, GOOD, "prompt", "text, a list of token ids"),
    ([1] * 300, GOOD, "prompt", "at most 255 tokens long"),
    ("x" * 256, GOOD, "prompt", "it has 256"),
    ("Hello", SamplingParams(max_tokens=10_000_000), "max_tokens", "at most 251"),
    ("Hello", SamplingParams(min_tokens=252), "min_tokens", "at most 251"),
    ("Hello", SamplingParams(logit_bias={259: 1.0}), "logit_bias", "258"),
    ("Hello", SamplingParams(stop_token_ids=(10**9,)), "stop_token_ids", "258"),
    ([{"role": "user"}], GOOD, "messages[0].content", "string"),
    ([{"content": "Hi"}], GOOD, "messages[0].role", "string"),
    ("Hello", {"temperature": 1}, "sampling_params", "a SamplingParams"),
]


@pytest.fixture(scope="module")
def llm(tiny_model: str) -> Iterator[LLM]:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        yield llm


@pytest.mark.parametrize(("parameters", "field", "value", "limit"), BAD_PARAMETERS, ids=lambda value: shown(value, 40))
def test_a_bad_parameter_names_field_value_and_limit(
    parameters: dict[str, object], field: str, value: str, limit: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        SamplingParams(**parameters)  # type: ignore[arg-type]
    assert caught.value.field.startswith(field)
    assert value in str(caught.value)
    assert limit in caught.value.limit


@pytest.mark.parametrize(("prompt", "sampling", "field", "limit"), BAD_REQUESTS, ids=lambda value: shown(value, 40))
def test_a_bad_request_is_refused_and_its_neighbours_go_on(
    llm: LLM, prompt: object, sampling: object, field: str, limit: str
) -> None:
    expected = llm.generate("good", GOOD)[0].outputs[0].text
    outputs = llm.generate(["good", prompt, "good"], [GOOD, sampling, GOOD], errors="return")  # type: ignore[arg-type, list-item]
    assert [output.outputs[0].text for output in (outputs[0], outputs[2])] == [expected, expected]
    error = outputs[1].error
    assert isinstance(error, InvalidValueError)
    assert error.field.startswith(field)
    assert limit in error.limit
    assert outputs[1].outputs == []


def test_by_default_a_refused_prompt_raises_before_anything_runs(llm: LLM) -> None:
    steps = llm.step_log.totals.steps
    with pytest.raises(InvalidValueError, match="prompt"):
        llm.generate(["good", ""], GOOD)
    assert llm.step_log.totals.steps == steps


def test_one_set_of_parameters_for_each_prompt_or_one_for_all(llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match=r"one each \(3\)"):
        llm.generate(["a", "b", "c"], [GOOD, GOOD])


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"max_model_len": 100_000}, "max_model_len"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"memory_fraction": 1.5}, "memory_fraction"),
        ({"memory_fraction": math.nan}, "memory_fraction"),
        ({"dtype": "int3"}, "dtype"),
        ({"device": "tpu"}, "device"),
        ({"policy": "lottery"}, "policy"),
        ({"block_size": "16"}, "block_size"),
        ({"chat_template": "/does/not/exist"}, "chat_template"),
        ({"max_model_len": 200, "num_kv_blocks": 2}, "max_model_len"),
        ({"swap_space": 4}, "swap_space"),
    ],
)
def test_a_bad_setting_is_refused_by_name(tiny_model: str, config: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        LLM(tiny_model, **config)
    assert caught.value.field == field


def test_an_error_survives_the_way_through_another_process() -> None:
    for error in (
        InvalidValueError("n", 0, "an integer from 1"),
        UnsupportedModelError("architecture", "x", ["llama"]),
        QueueFullError(3, 2),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))


@pytest.mark.parametrize("messages", ["hi", [], ["hi"], [[{"role": "user", "content": "x"}], "hi"], [["user", "x"]], 5])
def test_what_is_no_conversation_is_not_taken_for_a_prompt(llm: LLM, messages: object) -> None:
    with pytest.raises(InvalidValueError) as caught:
        llm.chat(messages)  # type: ignore[arg-type]
    assert caught.value.field == "messages"
    with pytest.raises(InvalidValueError):
        next(llm.stream_chat(messages))  # type: ignore[arg-type]


def test_other_kinds_of_arguments_are_named(llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match="sampling_params"):
        llm.generate("a", 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="errors"):
        llm.generate("a", GOOD, errors="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"priority: got 5, must be 0 under policy fcfs"):
        llm.submit("a", GOOD, priority=5)
