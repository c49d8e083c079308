"""/v1/completions: what its bodies have in them."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda import LLM
from pagoda.server.openai.schemas import Completion
from tests.server.bodies import completions, events, post, refusal, stream
from tests.server.conftest import RunningServer
from tests.tiny_model import END_OF_TEXT, SPECIALS

PATH = "/v1/completions"
EVERYTHING: dict[str, Any] = {
    "prompt": ["Hello", "Good day"],
    "n": 2,
    "seed": 3,
    "max_tokens": 9,
    "echo": True,
    "logprobs": 2,
    "prompt_logprobs": 1,
    "return_parameters": True,
    "ignore_eos": True,
}


@pytest.mark.parametrize("asked", [EVERYTHING, {"prompt": "Hello"}, {"prompt": [40, 41], "echo": True}])
def test_bodies_are_what_the_schema_says(server: RunningServer, asked: dict[str, Any]) -> None:
    Completion.model_validate(post(server, PATH, asked), strict=True)
    for chunk in stream(server, PATH, {**asked, "stream_options": {"include_usage": True}}):
        Completion.model_validate(chunk, strict=True)


def test_a_stream_of_everything_joins_to_the_whole(server: RunningServer) -> None:
    whole = post(server, PATH, EVERYTHING)
    chunks = stream(server, PATH, {**EVERYTHING, "stream_options": {"include_usage": True}})
    assert same(completions(chunks), whole["choices"])
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    for choice, prompt in zip(whole["choices"], ("Hello", "Hello", "Good day", "Good day"), strict=True):
        assert choice["text"].startswith(prompt)
        assert len(choice["logprobs"]["tokens"]) == len(prompt) + 9
        assert len(choice["prompt_logprobs"]) == len(prompt)
    assert chunks[0]["parameters"] == whole["parameters"]
    assert chunks[-1]["usage"] == whole["usage"]
    counts = {"prompt_tokens": 13, "completion_tokens": 36, "total_tokens": 49}
    assert whole["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}


def test_continuous_usage_counts_up_to_the_whole(server: RunningServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(server, PATH, {"prompt": "Hello", "max_tokens": 9, "ignore_eos": True, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert (counts[0] > 0, counts[-1]) == (True, 9)


def test_the_end_token_has_an_entry_and_no_text(server: RunningServer) -> None:
    """lm-eval drops the last entry, as that of the one token it asks for; without this it would drop one of the text's."""
    asked = {"prompt": "Hello", "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    ends = {**asked, "logit_bias": {str(END_OF_TEXT): 100}}
    (goes_on,), (ended,) = (post(server, PATH, body)["choices"] for body in (asked, ends))
    assert (goes_on["finish_reason"], ended["finish_reason"]) == ("length", "stop")
    assert ended["text"] == "Hello"
    assert ended["logprobs"]["tokens"] == [*"Hello", SPECIALS[0]]
    assert ended["logprobs"]["text_offset"] == [0, 1, 2, 3, 4, 5]
    assert ended["logprobs"]["token_logprobs"][:-1] == pytest.approx(goes_on["logprobs"]["token_logprobs"][:-1])
    assert ended["logprobs"]["token_logprobs"][-1] < 0
    assert same(completions(stream(server, PATH, ends)), [ended])
    assert post(server, PATH, {**ends, "logprobs": None})["choices"][0]["logprobs"] is None


def test_offsets_count_characters_of_the_text(server: RunningServer) -> None:
    asked = {"prompt": "aé€b", "max_tokens": 0, "echo": True, "logprobs": 0}
    (choice,) = post(server, PATH, asked)["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2, 2, 2, 3]
    assert choice["logprobs"]["tokens"] == [
        *["a", "bytes:\\xc3", "bytes:\\xa9", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "b"]
    ]
    assert [len(best or ()) for best in choice["logprobs"]["top_logprobs"]] == [0, 1, 1, 1, 1, 1, 1]


def test_token_ids_are_echoed_as_their_text(server: RunningServer, tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        ids = llm.tokenizer.encode(f"é{SPECIALS[1]}x")
    (choice,) = post(server, PATH, {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0})["choices"]
    assert choice["text"] == f"é{SPECIALS[1]}x"
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 1 + len(SPECIALS[1])]


@pytest.mark.parametrize("extra", [{"echo": True}, {"prompt_logprobs": 0}])
def test_no_tokens_may_be_asked_for(server: RunningServer, extra: dict[str, Any]) -> None:
    asked = {"prompt": ["Hello", "x"], "max_tokens": 0, **extra}
    answer = post(server, PATH, asked)
    assert [choice["text"] for choice in answer["choices"]] == (["Hello", "x"] if "echo" in extra else ["", ""])
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert answer["usage"]["completion_tokens"] == 0
    assert [choice["logprobs"] for choice in answer["choices"]] == [None, None]
    assert same(completions(stream(server, PATH, asked)), answer["choices"])


def test_max_tokens_is_16_or_what_there_is_room_for(server: RunningServer) -> None:
    for prompt, expected in (("x", 16), ("x" * 250, 6)):
        answer = post(server, PATH, {"prompt": prompt, "ignore_eos": True, "return_parameters": True})
        assert answer["usage"]["completion_tokens"] == answer["parameters"]["max_tokens"] == expected


def test_effective_parameters_repeat_the_answer(server: RunningServer) -> None:
    first = post(server, PATH, {"prompt": "Hello", "logit_bias": {"7": 1}, "return_parameters": True})
    again = post(server, PATH, {"prompt": "Hello", **first["parameters"], "stop": None})
    assert again["choices"][0]["text"] == first["choices"][0]["text"]
    assert "parameters" not in again
    each = post(server, PATH, {"prompt": ["a", "b"], "return_parameters": True})["parameters"]
    assert [one["temperature"] for one in each] == [1.0, 1.0]
    assert each[0]["seed"] != each[1]["seed"]


def test_one_refused_prompt_refuses_all_and_says_which(server: RunningServer) -> None:
    for prompt, param in (
        (["a", ""], "prompt[1]"),
        (["a", "x" * 300], "prompt[1]"),
        (["a"] * 40 + ["x" * 9000], "prompt[40]"),  # long enough to be looked at in another thread
        ([[1], [2, 999]], "prompt[1][1]"),
        ([1, 999], "prompt[1]"),
        ("x" * 300, "prompt"),
    ):
        error = refusal(server, PATH, {"prompt": prompt})
        assert error["param"] == param
        assert error["message"].startswith(f"{param}: got ")


def test_many_choices_are_started_in_another_thread_and_come_out_the_same(server: RunningServer) -> None:
    asked: dict[str, Any] = {"prompt": ["Hello"] * 20, "n": 2, "seed": 4, "max_tokens": 3, "ignore_eos": True}
    texts = [choice["text"] for choice in post(server, PATH, asked)["choices"]]
    few = [choice["text"] for choice in post(server, PATH, {**asked, "prompt": "Hello"})["choices"]]
    assert texts == few * 20


def test_events_have_a_form() -> None:
    assert events('data: {"a":1}\n\ndata: [DONE]\n\n') == [{"a": 1}]
    with pytest.raises(AssertionError):
        events('data: {"a":1}\n\n')


def same(value: Any, other: Any) -> bool:
    """Equal but for the last digits of numbers, which depend on what else is in the batch."""
    if isinstance(value, float) and isinstance(other, float):
        return value == pytest.approx(other, abs=1e-4)
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(same(*pair) for pair in zip(value, other, strict=True))
    return bool(value == other)
