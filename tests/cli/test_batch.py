import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from pagoda.cli.batch import fingerprint, run_batch
from pagoda.cli.batch_input import summarize
from pagoda.cli.batch_output import BatchOutput
from pagoda.config import EngineConfig
from pagoda.errors import EngineClosedError, PagodaError, RequestFailedError
from pagoda.progress import silent
from pagoda.sampling_params import SamplingParams
from tests.cli.fake_llm import FakeLLM
from tests.soak import soak_count

CUTS = soak_count(2000)
PARAMS = SamplingParams(max_tokens=5)


def run(
    llm: FakeLLM, source: Path, target: Path, overwrite: bool = False, params: SamplingParams = PARAMS
) -> BatchOutput:
    summary = summarize(source, silent)
    made_from = fingerprint(summary, llm.config, params)
    with BatchOutput(target, made_from, overwrite, summary.num_lines) as output:
        run_batch(llm, source, params, output, num_lines=0, bars=silent)  # type: ignore[arg-type]
    return output


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def read(path: Path) -> dict[int, Any]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    by_line = {entry["line"]: entry for entry in entries}
    assert len(by_line) == len(entries), "a line was done twice"
    return by_line


def test_every_line_gets_its_result(tmp_path: Path) -> None:
    lines = [{"prompt": f"prompt {i}", "id": i} for i in range(50)]
    output = run(FakeLLM(max_num_seqs=3), write_lines(tmp_path / "in", lines), tmp_path / "out")
    results = read(tmp_path / "out")
    assert sorted(results) == list(range(1, 51))
    assert all(results[i + 1]["text"] == f"prompt {i}"[::-1] and results[i + 1]["id"] == i for i in range(50))
    assert (output.num_done, output.num_failed) == (50, 0)
    entry = results[1]
    counts = {"prompt_tokens": 8, "completion_tokens": 8, "total_tokens": 16}
    assert entry["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}
    assert entry["finish_reason"] == "stop"
    assert entry["sampling_params"]["max_tokens"] == 5


def test_a_line_has_the_priority_it_asks_for(tmp_path: Path) -> None:
    llm = FakeLLM(policy="priority")
    lines = [{"prompt": "a", "priority": -3}, {"prompt": "b"}, {"prompt": "c", "priority": None}]
    run(llm, write_lines(tmp_path / "in", lines), tmp_path / "out")
    assert llm.priorities == [-3, 0, 0]


def test_a_line_has_the_cache_salt_it_asks_for(tmp_path: Path) -> None:
    llm = FakeLLM()
    lines = [{"prompt": "a", "cache_salt": "mine"}, {"prompt": "b"}, {"prompt": "c", "cache_salt": None}]
    run(llm, write_lines(tmp_path / "in", lines), tmp_path / "out")
    assert llm.cache_salts == ["mine", None, None]


def test_few_are_in_flight_however_long_the_input(tmp_path: Path) -> None:
    llm = FakeLLM(max_num_seqs=3)
    run(llm, write_lines(tmp_path / "in", [{"prompt": "x"}] * 200), tmp_path / "out")
    assert 3 <= llm.most_in_flight <= 6


def test_bad_lines_are_reported_by_number_and_the_rest_finishes(tmp_path: Path) -> None:
    lines = [
        {"prompt": "one"},
        "{broken",
        {"prompt": "x" * 500},
        {"prompt": "two", "top_p": 7},
        "",
        {"prompt": "fails"},
    ]
    llm = FakeLLM(broken={"fails": RequestFailedError("the step failed")})
    output = run(llm, write_lines(tmp_path / "in", [*lines, {"prompt": "last"}]), tmp_path / "out")
    results = read(tmp_path / "out")
    assert {line: entry["error"].get("field") for line, entry in results.items() if "error" in entry} == {
        2: "line",
        3: "prompt",
        4: "top_p",
        6: None,
    }
    assert results[6]["error"]["message"] == "the step failed"
    assert (results[1]["text"], results[7]["text"]) == ("eno", "tsal")
    assert (output.num_done, output.num_failed) == (6, 4)


def test_a_finished_batch_is_not_run_again(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", [{"prompt": "a"}, "bad"])
    run(FakeLLM(), source, tmp_path / "out")
    before = (tmp_path / "out").read_bytes()
    llm = FakeLLM()
    output = run(llm, source, tmp_path / "out")
    assert llm.prompts == []
    assert (tmp_path / "out").read_bytes() == before
    assert (output.num_done, output.num_failed) == (2, 1)


def test_cut_off_anywhere_it_resumes_and_loses_and_doubles_nothing(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", [{"prompt": f"prompt {i} é"} for i in range(20)] + ["bad"])
    target = tmp_path / "out"
    run(FakeLLM(max_num_seqs=2), source, target)
    whole, wanted = target.read_bytes(), read(target)
    for cut in {len(whole) * i // CUTS for i in range(CUTS)} | {0, 1, len(whole) - 1}:
        target.write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        llm = FakeLLM(max_num_seqs=2)
        run(llm, source, target)
        assert read(target) == wanted
        assert target.read_bytes().startswith(whole[: whole[:cut].rfind(b"\n") + 1])
        assert len(llm.prompts) <= 21 - kept


def test_output_made_from_something_else_is_refused(tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "in", [{"prompt": "a"}]), tmp_path / "out"
    run(FakeLLM(), source, target)
    with pytest.raises(PagodaError, match="another model"):
        run(FakeLLM(model="other"), source, target)
    with pytest.raises(PagodaError, match="another sampling_params"):
        run(FakeLLM(), source, target, params=SamplingParams(max_tokens=6))
    run(FakeLLM(threads=7, max_num_seqs=9), source, target)
    write_lines(source, [{"prompt": "b"}])
    with pytest.raises(PagodaError, match=r"another input.*--overwrite"):
        run(FakeLLM(), source, target)
    assert read(target)[1]["text"] == "a"
    run(FakeLLM(), source, target, overwrite=True)
    assert read(target)[1]["text"] == "b"


def test_a_file_that_is_no_output_is_left_alone(tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "in", [{"prompt": "a"}]), tmp_path / "out"
    target.write_text("my notes\n")
    with pytest.raises(PagodaError, match="does not say what made it"):
        run(FakeLLM(), source, target)
    assert target.read_text() == "my notes\n"


def test_damage_within_the_output_is_named(tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "in", [{"prompt": "a"}, {"prompt": "b"}]), tmp_path / "out"
    run(FakeLLM(), source, target)
    first, second = target.read_text().splitlines()
    foreign = (
        '{"line": 0}\n',
        '{"line": "1"}\n',
        '{"line": true}\n',
        '{"line": 3}\n',
        f'{{"line": {10**13}}}\n',
        "[]\n",
    )
    for damaged in (f"{first[:-3]}\n{second}\n", f"{first}\n{first}\n", *foreign):
        target.write_text(damaged)
        with pytest.raises(PagodaError, match=r"out: line \d is not a result of this input"):
            run(FakeLLM(), source, target)


def test_a_dead_engine_leaves_its_lines_for_later(tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "in", [{"prompt": "a"}, {"prompt": "b"}]), tmp_path / "out"
    with pytest.raises(EngineClosedError):
        run(FakeLLM(broken={"b": EngineClosedError("the engine failed")}), source, target)
    run(FakeLLM(), source, target)
    assert {line: entry["text"] for line, entry in read(target).items()} == {1: "a", 2: "b"}


def test_two_runs_on_one_output_are_refused(tmp_path: Path) -> None:
    with BatchOutput(tmp_path / "out", {}, False, 1), pytest.raises(PagodaError, match="another run"):
        BatchOutput(tmp_path / "out", {}, False, 1)


def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PagodaError, match="--output"):
        BatchOutput(tmp_path / "no" / "out", {}, False, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_description_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    meta = tmp_path / "out.meta.json"
    meta.mkdir()
    with pytest.raises(PagodaError, match=r"--output: .*out\.meta\.json.* cannot be written: Is a directory"):
        BatchOutput(tmp_path / "out", {}, False, 1)
    assert list(tmp_path.iterdir()) == [meta]


def test_an_error_before_the_first_result_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(PagodaError, match="no such model"), BatchOutput(tmp_path / "out", {}, False, 1):
        raise PagodaError("no such model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").touch()
    with pytest.raises(PagodaError, match="no such model"), BatchOutput(tmp_path / "out", {}, False, 1):
        raise PagodaError("no such model")
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["pipe", "/dev/null", "/dev/full", "."])
def test_an_output_that_is_no_ordinary_file_is_refused_at_once(tmp_path: Path, target: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PagodaError, match=r"--output: .* is not an ordinary file"):
        BatchOutput(tmp_path / target, {}, False, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_full_disk_is_named_and_the_same_command_goes_on(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in", [{"prompt": f"prompt {i}"} for i in range(50)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(PagodaError, match=r"--output: .*out cannot be written: File too large"):
            run(FakeLLM(), lines, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "out").stat().st_size == 4096
    run(FakeLLM(), lines, tmp_path / "out")
    assert sorted(read(tmp_path / "out")) == list(range(1, 51))


def test_a_fingerprint_survives_json(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", [{"prompt": "a"}])
    params = SamplingParams(stop=("a", "b"), logit_bias={5: 1.0}, stop_token_ids=(1,))
    made_from = fingerprint(summarize(source, silent), EngineConfig(), params)
    assert json.loads(json.dumps(made_from)) == made_from
