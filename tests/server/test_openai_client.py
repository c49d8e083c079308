"""Every route through the official `openai` client, against a real server, held to what `LLM` gives for the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from pagoda import LLM, SamplingParams
from tests.server.conftest import Serve
from tests.server.process import RunningServer
from tests.tiny_model import IM_END

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
LIKEWISE = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
MESSAGES: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def llm(tiny_model: str) -> Iterator[LLM]:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        yield llm


@pytest.fixture(scope="module")
def model(server: RunningServer) -> str:
    return server.model


def test_the_model_is_listed_and_found_by_name(client: OpenAI, model: str) -> None:
    listed = client.models.list().data
    assert [(entry.id, entry.object) for entry in listed] == [(model, "model")]
    assert client.models.retrieve(model) == listed[0]


@pytest.mark.parametrize("kind", ["text", "texts", "ids", "lists of ids"])
def test_every_kind_of_prompt(client: OpenAI, model: str, llm: LLM, kind: str) -> None:
    texts = ["Hello", "Good morning, world"]
    ids = [llm.tokenizer.encode(text) for text in texts]
    prompt, asked = {
        "text": (texts[0], texts[:1]),
        "texts": (texts, texts),
        "ids": (ids[0], texts[:1]),
        "lists of ids": (ids, texts),
    }[kind]
    answer = client.completions.create(model=model, prompt=prompt, **GREEDY)
    expected = llm.generate(asked, LIKEWISE)
    assert answer.object == "text_completion"
    assert answer.model == model
    assert [choice.index for choice in answer.choices] == list(range(len(asked)))
    assert [choice.text for choice in answer.choices] == [output.outputs[0].text for output in expected]
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert answer.usage is not None
    prompt_tokens = sum(len(output.prompt_token_ids) for output in expected)
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (prompt_tokens, 12 * len(asked))
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_several_choices_of_several_prompts_stand_in_order(client: OpenAI, model: str, llm: LLM) -> None:
    prompts = ["one", "two", "three"]
    answer = client.completions.create(
        model=model, prompt=prompts, n=2, seed=5, max_tokens=6, extra_body={"ignore_eos": True}
    )
    expected = llm.generate(prompts, SamplingParams(n=2, seed=5, max_tokens=6, ignore_eos=True))
    assert [choice.text for choice in answer.choices] == [
        choice.text for output in expected for choice in output.outputs
    ]
    assert [choice.index for choice in answer.choices] == list(range(6))


def test_a_seed_repeats_the_text_and_another_does_not(client: OpenAI, model: str) -> None:
    def text(seed: int) -> str:
        return client.completions.create(model=model, prompt="Hello", seed=seed, max_tokens=24).choices[0].text

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_echo_puts_the_prompt_first(client: OpenAI, model: str, llm: LLM) -> None:
    answer = client.completions.create(model=model, prompt="Hello", echo=True, **GREEDY)
    assert answer.choices[0].text == "Hello" + llm.generate("Hello", LIKEWISE)[0].outputs[0].text


def test_echo_with_no_tokens_scores_the_prompt(client: OpenAI, model: str, llm: LLM) -> None:
    answer = client.completions.create(model=model, prompt="Hello", echo=True, max_tokens=0, logprobs=2)
    (scored,) = llm.score(["Hello"])
    assert scored.prompt_logprobs is not None
    (choice,) = answer.choices
    assert choice.text == "Hello"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == list("Hello")
    assert choice.logprobs.text_offset == [0, 1, 2, 3, 4]
    expected = [None if entry is None else entry.chosen.logprob for entry in scored.prompt_logprobs]
    assert choice.logprobs.token_logprobs == pytest.approx(expected, abs=1e-5)
    assert choice.logprobs.top_logprobs is not None
    assert [len(top or {}) in {2, 3} for top in choice.logprobs.top_logprobs] == [False, True, True, True, True]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 0)


def test_logprobs_of_a_completion(client: OpenAI, model: str, llm: LLM) -> None:
    answer = client.completions.create(model=model, prompt="Hello", logprobs=3, **GREEDY)
    expected = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=3))
    positions = expected[0].outputs[0].logprobs
    shown = answer.choices[0].logprobs
    assert positions is not None
    assert shown is not None
    assert shown.top_logprobs is not None
    assert shown.token_logprobs == pytest.approx([position.chosen.logprob for position in positions], abs=1e-5)
    for best, position in zip(shown.top_logprobs, positions, strict=True):
        assert best is not None
        assert sorted(best.values())[-1] == pytest.approx(position.top[0].logprob, abs=1e-5)


def test_a_stop_string_ends_the_text_and_is_not_shown(client: OpenAI, model: str, llm: LLM) -> None:
    whole = llm.generate("Hello", LIKEWISE)[0].outputs[0].text
    stop = whole[5:7]
    answer = client.completions.create(model=model, prompt="Hello", stop=[stop, "never there"], **GREEDY)
    (choice,) = answer.choices
    assert choice.text == whole[: whole.index(stop)]
    assert choice.finish_reason == "stop"


def test_a_chat(client: OpenAI, model: str, llm: LLM) -> None:
    answer = client.chat.completions.create(
        model=model, messages=MESSAGES, temperature=0, max_completion_tokens=12, extra_body={"ignore_eos": True}
    )
    (expected,) = llm.chat(MESSAGES, LIKEWISE)
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert (choice.message.role, choice.message.content) == ("assistant", expected.outputs[0].text)
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(expected.prompt_token_ids)
    assert answer.usage.completion_tokens == 12


def test_max_tokens_means_the_same_as_max_completion_tokens(client: OpenAI, model: str) -> None:
    for field in ("max_tokens", "max_completion_tokens"):
        answer = client.chat.completions.create(
            model=model, messages=MESSAGES, extra_body={"ignore_eos": True}, **{field: 3}
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 3


def test_a_chat_with_several_choices_and_logprobs(client: OpenAI, model: str, llm: LLM) -> None:
    answer = client.chat.completions.create(
        model=model, messages=MESSAGES, n=3, seed=7, max_tokens=8, logprobs=True, top_logprobs=4
    )
    (expected,) = llm.chat(MESSAGES, SamplingParams(n=3, seed=7, max_tokens=8, logprobs=4))
    assert [choice.message.content for choice in answer.choices] == [choice.text for choice in expected.outputs]
    for choice, output in zip(answer.choices, expected.outputs, strict=True):
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert output.logprobs is not None
        for shown, position in zip(choice.logprobs.content, output.logprobs, strict=True):
            assert shown.token == position.chosen.token
            assert bytes(shown.bytes or []) == position.chosen.bytes
            assert shown.logprob == pytest.approx(position.chosen.logprob, abs=1e-5)
            assert [top.token for top in shown.top_logprobs] == [top.token for top in position.top]
            assert [top.logprob for top in shown.top_logprobs] == pytest.approx(
                [top.logprob for top in position.top], abs=1e-5
            )


def test_a_chat_stops_at_a_stop_string(client: OpenAI, model: str, llm: LLM) -> None:
    whole = llm.chat(MESSAGES, LIKEWISE)[0].outputs[0].text
    answer = client.chat.completions.create(model=model, messages=MESSAGES, stop=whole[4:6], **GREEDY)
    assert answer.choices[0].message.content == whole[: whole.index(whole[4:6])]
    assert answer.choices[0].finish_reason == "stop"


def test_extensions_go_through_extra_body(client: OpenAI, model: str, llm: LLM) -> None:
    greedy = llm.generate("Hello", LIKEWISE)[0].outputs[0]

    def text(**extra: Any) -> str:
        answer = client.completions.create(
            model=model, prompt="Hello", max_tokens=12, seed=3, extra_body={"ignore_eos": True, **extra}
        )
        return answer.choices[0].text

    assert text() != greedy.text
    assert text(top_k=1) == greedy.text
    assert text(min_p=1.0) == greedy.text
    assert text(repetition_penalty=100.0) != text()
    assert text(top_k=1, priority=0) == greedy.text
    assert text(top_k=1, stop_token_ids=[greedy.token_ids[4]]) == llm.tokenizer.decode(
        greedy.token_ids[: greedy.token_ids.index(greedy.token_ids[4])]
    )


def test_a_priority_is_honoured_under_its_policy_and_refused_otherwise(client: OpenAI, serve: Serve) -> None:
    body: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 2, "extra_body": {"priority": -3}}
    with pytest.raises(BadRequestError, match="priority: got -3, must be 0 under policy fcfs"):
        client.completions.create(**body)
    with (
        serve("--policy", "priority") as running,
        OpenAI(base_url=running.base_url, api_key="none", max_retries=0) as ordered,
    ):
        assert ordered.completions.create(**body).choices[0].finish_reason is not None


def test_min_tokens_holds_off_the_end(client: OpenAI, model: str) -> None:
    def answer(**extra: Any) -> Any:
        return client.completions.create(
            model=model, prompt="Hello", max_tokens=9, logit_bias={str(IM_END): 100}, temperature=0, extra_body=extra
        )

    ended, held = answer(), answer(min_tokens=5)
    assert (ended.choices[0].finish_reason, ended.usage.completion_tokens) == ("stop", 0)
    assert (held.choices[0].finish_reason, held.usage.completion_tokens) == ("stop", 5)


def test_prompt_logprobs(client: OpenAI, model: str, llm: LLM) -> None:
    answer = client.completions.create(model=model, prompt="Hello", max_tokens=1, extra_body={"prompt_logprobs": 1})
    shown = (answer.choices[0].model_extra or {}).get("prompt_logprobs") or (answer.model_extra or {})[
        "prompt_logprobs"
    ]
    assert len(shown) == 5
    assert shown[0] is None


def test_fields_without_effect_are_accepted(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        max_tokens=2,
        user="somebody",
        metadata={"any": "thing"},
        store=False,
        service_tier="auto",
        safety_identifier="somebody",
        prompt_cache_key="key",
    )
    assert len(answer.choices) == 1
