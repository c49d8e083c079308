"""Trouble 28: generation_config silently sets the temperature. Right: it sets defaults that can be read and turned off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda import LLM, SamplingParams
from pagoda.errors import ModelFileError
from tests.tiny_model import END_OF_TEXT, write_tiny_model


def model_with(tmp_path: Path, **generation_config: object) -> str:
    directory = write_tiny_model(tmp_path / "model")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": END_OF_TEXT, **generation_config}))
    return str(directory)


def effective(model: str, sampling: SamplingParams, **config: object) -> SamplingParams:
    with LLM(model, num_kv_blocks=16, threads=1, **config) as llm:
        return llm.generate("Hello", sampling)[0].sampling_params


def test_it_sets_what_the_request_leaves_open_and_nothing_else(tmp_path: Path) -> None:
    model = model_with(tmp_path, temperature=0.6, top_p=0.9, top_k=20, repetition_penalty=1.1)
    params = effective(model, SamplingParams(max_tokens=2, top_p=0.5))
    assert (params.temperature, params.top_p, params.top_k, params.repetition_penalty) == (0.6, 0.5, 20, 1.1)


def test_do_sample_false_means_greedy(tmp_path: Path) -> None:
    assert effective(model_with(tmp_path, do_sample=False), SamplingParams(max_tokens=2)).temperature == 0.0


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    model = model_with(tmp_path, temperature=0.6)
    assert effective(model, SamplingParams(max_tokens=2), generation_config="none").temperature == 1.0


@pytest.mark.parametrize(("name", "value"), [("temperature", "hot"), ("temperature", -1), ("max_new_tokens", 0)])
def test_a_bad_value_in_the_file_is_named_when_it_is_opened(tmp_path: Path, name: str, value: object) -> None:
    model = model_with(tmp_path, **{name: value})
    with pytest.raises(ModelFileError, match=rf"generation_config\.json: {name}: got .*\"none\""):
        LLM(model, num_kv_blocks=16, threads=1)
    assert effective(model, SamplingParams(max_tokens=2), generation_config="none").temperature == 1.0
