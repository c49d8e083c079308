"""Trouble 21: one bad parameter ends the engine. Right: it is refused at the door, a fault in one request fails that one."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagoda import LLM, SamplingParams
from pagoda.cli.batch import run_batch
from pagoda.cli.batch_output import BatchOutput
from pagoda.errors import InvalidValueError
from pagoda.progress import silent
from tests.tiny_model import write_tiny_model

GOOD: dict[str, Any] = {"prompt": [65, 66, 67]}
BAD: list[dict[str, Any]] = [
    {"prompt": "a", "max_tokens": 1 << 40},
    {"prompt": "a", "logit_bias": {"99999": 5}},
    {"prompt": [1 << 40]},
    {"prompt": [0] * 10_000},
    {"prompt": []},
    {"prompt": "a", "n": 1000},
    {"prompt": "a", "temperature": float("nan")},
    {"prompt": "a", "stop_token_ids": [-1]},
    {"prompt": "a", "min_tokens": 9, "max_tokens": 8},
    {"messages": [{"role": "user"}]},
]
GREEDY = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = write_tiny_model(tmp_path_factory.mktemp("tiny"))
    with LLM(str(directory), max_num_seqs=4, threads=1, num_kv_blocks=64) as model:
        yield model


def test_bad_prompts_in_a_batch_fail_alone(llm: LLM) -> None:
    alone = llm.generate([65, 66, 67], GREEDY)[0].outputs[0].token_ids
    prompts = [[65, 66, 67], [1 << 40], [], [65, 66, 67], [0] * 10_000, [65, 66, 67]]
    outputs = llm.generate(prompts, GREEDY, errors="return")
    assert [output.error is None for output in outputs] == [True, False, False, True, False, True]
    assert all(output.outputs[0].token_ids == alone for output in outputs if output.error is None)


def test_a_refused_request_raises_at_once_and_the_engine_goes_on(llm: LLM) -> None:
    before = llm.generate("abc", GREEDY)[0].outputs[0].text
    with pytest.raises(InvalidValueError, match="logit_bias"):
        llm.submit("abc", SamplingParams(logit_bias={99_999: 5.0}))
    assert llm.generate("abc", GREEDY)[0].outputs[0].text == before


def test_bad_lines_of_a_batch_file_fail_alone(llm: LLM, tmp_path: Path) -> None:
    lines = [line for bad in BAD for line in (GOOD, bad)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with BatchOutput(tmp_path / "out.jsonl", {}, overwrite=False, num_lines=len(lines)) as output:
        run_batch(llm, source, GREEDY, output, num_lines=len(lines), bars=silent)
    results = {entry["line"]: entry for entry in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    assert [number for number, entry in sorted(results.items()) if "error" in entry] == list(
        range(2, 2 * len(BAD) + 1, 2)
    )
    assert len({tuple(results[number]["token_ids"]) for number in range(1, 2 * len(BAD), 2)}) == 1
