"""LLM: what a caller gets back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pagoda import LLM, RequestOutput, SamplingParams
from tests.tiny_model import IM_END

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_model: str) -> Iterator[LLM]:
    with LLM(tiny_model, threads=1, num_kv_blocks=64, max_num_seqs=8) as llm:
        yield llm


def text(llm: LLM, prompt: str | list[int], sampling: SamplingParams) -> str:
    return llm.generate(prompt, sampling)[0].outputs[0].text


def test_results_are_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"prompt {number} " * (number % 5 + 1) for number in range(20)]
    lengths = [SamplingParams(temperature=0, max_tokens=20 - number, ignore_eos=True) for number in range(20)]
    outputs = llm.generate(prompts, lengths)
    assert [output.prompt for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == list(range(20, 0, -1))


def test_usage_says_what_was_cached_and_a_salt_keeps_texts_apart(llm: LLM) -> None:
    def cached(**salt: str) -> list[int]:
        (whole,) = llm.generate("A text of more than a block", GREEDY, **salt)
        (chat,) = llm.chat([{"role": "user", "content": "A conversation"}], GREEDY, **salt)
        submitted = llm.submit("Another text of more than a block", GREEDY, **salt)
        deltas = list(llm.stream("A third text of more than a block", GREEDY, **salt))
        return [
            whole.usage.cached_tokens,
            chat.usage.cached_tokens,
            submitted.result().usage.cached_tokens,
            deltas[0].num_cached_tokens,
        ]

    none, all_whole_blocks = [0, 0, 0, 0], [16, 32, 32, 32]
    assert cached() == none
    assert cached() == all_whole_blocks
    assert cached(cache_salt="salt") == none
    assert cached(cache_salt="salt") == all_whole_blocks


def test_token_ids_as_a_prompt_mean_the_same_as_their_text(llm: LLM) -> None:
    token_ids = llm.tokenizer.encode("Hello")
    assert text(llm, token_ids, GREEDY) == text(llm, "Hello", GREEDY)


def test_the_stream_joined_is_the_text(llm: LLM) -> None:
    deltas = list(llm.stream("Hello", GREEDY))
    whole = llm.generate("Hello", GREEDY)[0].outputs[0]
    assert "".join(delta.text for delta in deltas) == whole.text
    assert [token_id for delta in deltas for token_id in delta.token_ids] == whole.token_ids
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["length"]


def test_chat_applies_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    chatted = llm.chat(messages, GREEDY)[0]
    assert chatted.prompt_token_ids == llm.tokenizer.encode(rendered)
    assert chatted.outputs[0].text == text(llm, rendered, GREEDY)
    assert "".join(delta.text for delta in llm.stream_chat(messages, GREEDY)) == chatted.outputs[0].text
    assert len(llm.chat([messages, messages], GREEDY)) == 2


def test_n_choices_differ_and_each_is_repeatable(llm: LLM) -> None:
    sampling = SamplingParams(temperature=1.0, seed=7, n=4, max_tokens=16, ignore_eos=True)
    first, second = (llm.generate("Once", sampling)[0].outputs for _ in range(2))
    assert [choice.index for choice in first] == [0, 1, 2, 3]
    assert len({tuple(choice.token_ids) for choice in first}) == 4
    assert [choice.token_ids for choice in first] == [choice.token_ids for choice in second]


def test_a_stop_string_ends_the_text_and_is_not_shown(llm: LLM) -> None:
    whole = text(llm, "Hello", GREEDY)
    stop = whole[5:8]
    output = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop=(stop,)))[
        0
    ].outputs[0]
    assert output.text == whole[: whole.index(stop)]
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)
    assert output.text + stop == llm.tokenizer.decode(output.token_ids)[: len(output.text + stop)]
    assert len(output.token_ids) < 24


def test_a_stop_token_ends_the_text_and_is_not_counted(llm: LLM) -> None:
    token_ids = llm.generate("Hello", GREEDY)[0].outputs[0].token_ids
    stop = token_ids[6]
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop_token_ids=(stop,))
    output = llm.generate("Hello", sampling)[0].outputs[0]
    assert output.token_ids == token_ids[: token_ids.index(stop)]
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)


def test_end_tokens_end_the_text_unless_they_are_ignored(llm: LLM) -> None:
    bias = {IM_END: 100.0}
    ended = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=8, logit_bias=bias))[0]
    assert (ended.outputs[0].text, ended.outputs[0].finish_reason, ended.usage.completion_tokens) == ("", "stop", 0)
    assert ended.outputs[0].stop_reason is None
    ignored = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=8, logit_bias=bias, ignore_eos=True))[0]
    assert ignored.outputs[0].token_ids == [IM_END] * 8


def test_min_tokens_holds_off_end_tokens_and_stop_strings(llm: LLM) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=12, min_tokens=5, logit_bias={IM_END: 100.0})
    assert len(llm.generate("Hello", sampling)[0].outputs[0].token_ids) == 5
    whole = llm.generate("Hello", GREEDY)[0].outputs[0]
    stop = llm.tokenizer.decode(whole.token_ids[:1])
    held = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, min_tokens=24, stop=(stop,))
    assert llm.generate("Hello", held)[0].outputs[0].token_ids == whole.token_ids


def test_logprobs_are_of_the_chosen_token_and_the_best(llm: LLM) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=3)
    output = llm.generate("Hello", sampling)[0].outputs[0]
    assert output.logprobs is not None
    assert [entry.chosen.token_id for entry in output.logprobs] == output.token_ids
    for entry in output.logprobs:
        assert entry.chosen.rank == 1
        assert [token.rank for token in entry.top] == [1, 2, 3]
        assert entry.top[0] == entry.chosen
        assert entry.chosen.bytes == llm.tokenizer.token_bytes(entry.chosen.token_id)


def test_a_score_is_what_generation_says_of_the_same_tokens(llm: LLM) -> None:
    generated = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, logprobs=0))[0]
    token_ids = generated.prompt_token_ids + generated.outputs[0].token_ids
    (scored,) = llm.score([token_ids])
    assert scored.prompt_logprobs is not None
    assert scored.prompt_logprobs[0] is None
    assert scored.outputs[0].token_ids == []
    assert len(scored.prompt_logprobs) == len(token_ids)
    expected = [entry.chosen.logprob for entry in generated.outputs[0].logprobs or []]
    tail = [entry.chosen.logprob for entry in scored.prompt_logprobs[-10:] if entry is not None]
    assert tail == pytest.approx(expected, abs=1e-4)


def test_prompt_logprobs_survive_chunks(tiny_model: str, llm: LLM) -> None:
    prompt = "a prompt of some forty characters, in all"
    (whole,) = llm.score([prompt])
    with LLM(tiny_model, threads=1, num_kv_blocks=64, max_batched_tokens=7) as chunked:
        (pieces,) = chunked.score([prompt])
    values = [[entry.chosen.logprob for entry in output.prompt_logprobs or [] if entry] for output in (whole, pieces)]
    assert len(values[0]) == len(whole.prompt_token_ids) - 1
    assert values[1] == pytest.approx(values[0], abs=1e-4)


def test_unset_parameters_take_the_defaults_and_can_be_read_back(llm: LLM) -> None:
    effective = llm.generate("Hello", SamplingParams(max_tokens=1))[0].sampling_params
    assert (effective.temperature, effective.top_k, effective.top_p, effective.min_p) == (1.0, 0, 1.0, 0.0)
    assert effective.repetition_penalty == 1.0


def test_a_drawn_seed_can_be_read_back_and_repeats_the_result(llm: LLM) -> None:
    (output,) = llm.generate("Hello", SamplingParams(temperature=1.0, max_tokens=16, ignore_eos=True))
    (again,) = llm.generate("Hello", output.sampling_params)
    assert output.sampling_params.seed is not None
    assert again.outputs[0].token_ids == output.outputs[0].token_ids


def test_unset_max_tokens_goes_to_the_end_of_the_context(llm: LLM) -> None:
    prompt = list(range(100))
    output = llm.generate(prompt, SamplingParams(temperature=0, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == llm.plan.max_model_len - 100
    assert output.outputs[0].finish_reason == "length"


def test_a_finished_handle_can_be_iterated_again(llm: LLM) -> None:
    handle = llm.submit("Hello", GREEDY)
    assert "".join(delta.text for delta in handle) == text(llm, "Hello", GREEDY)
    assert list(handle) == []


def test_closing_twice_is_fine_and_using_it_then_is_an_error(tiny_model: str) -> None:
    llm = LLM(tiny_model, threads=1, num_kv_blocks=16)
    llm.close()
    llm.close()
    with pytest.raises(Exception, match="closed"):
        llm.generate("Hello", GREEDY)


def test_the_memory_plan_and_the_steps_can_be_read(llm: LLM) -> None:
    before = llm.step_log.totals
    output: RequestOutput = llm.generate("Hello", GREEDY)[0]
    after = llm.step_log.totals
    assert after.prefill_tokens - before.prefill_tokens == len(output.prompt_token_ids)
    assert after.decode_tokens - before.decode_tokens == 23
    assert after.flops > before.flops
    assert llm.plan.num_blocks == 64
    json.dumps(llm.plan.as_dict())


def test_tokens_past_a_stop_string_are_not_counted_even_if_a_longer_one_had_begun(llm: LLM) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=1)
    whole = llm.generate("Hello", sampling)[0].outputs[0]
    # The long one begins first and is never completed; the short one inside it ends the text.
    long, short = whole.text[4:12] + "\0", whole.text[6:8]
    stopped = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=1, stop=(long, short))
    output = llm.generate("Hello", stopped)[0].outputs[0]
    alone = llm.generate("Hello", replace(stopped, stop=(short,)))[0].outputs[0]
    assert (output.text, output.token_ids, output.logprobs) == (alone.text, alone.token_ids, alone.logprobs)
    assert output.stop_reason == short
    deltas = list(llm.stream("Hello", stopped))
    assert [token_id for delta in deltas for token_id in delta.token_ids] == alone.token_ids
    assert "".join(delta.text for delta in deltas) == alone.text
