"""`pagoda generate` and piped `pagoda chat` on a real, tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Pagoda

GREEDY = ("--temperature", "0", "--max-tokens", "6", "--ignore-eos")


def test_text_and_json_agree_and_stdin_is_a_prompt(pagoda: Pagoda, tiny_model: Path) -> None:
    text = pagoda("generate", tiny_model, "--prompt", "abc", *GREEDY)
    assert text.returncode == 0, text.stderr
    from_stdin = pagoda("generate", tiny_model, "--prompt", "-", "--json", *GREEDY, stdin="abc\n")
    assert json.loads(from_stdin.stdout)["text"] + "\n" == text.stdout


def test_several_choices_and_logprobs(pagoda: Pagoda, tiny_model: Path) -> None:
    done = pagoda(
        *("generate", tiny_model, "--prompt", "abc", "--n", "2", "--seed", "1", "--max-tokens", "3", "--ignore-eos"),
        *("--logprobs", "2", "--prompt-logprobs", "0", "--json"),
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [choice["index"] for choice in shown["choices"]] == [0, 1]
    assert shown["choices"][0]["text"] == shown["text"]
    assert [len(position["top"]) for position in shown["logprobs"]] == [2, 2, 2]
    assert shown["prompt_logprobs"][0] is None
    assert len(shown["prompt_logprobs"]) == 3
    assert shown["usage"]["completion_tokens"] == 6


def test_a_batch_file_with_every_kind_of_line(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        {"prompt": "abc", "id": "text"},
        {"prompt": [65, 66, 67]},
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3},
        {"prompt": [65, 100_000]},
        {"prompt": "abc", "max_tokens": 10_000},
        {"prompt": "abc", "logit_bias": {"99999": 1}},
        {"prompt": ""},
        {"messages": [{"role": "nobody"}]},
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = pagoda("generate", tiny_model, "--input", source, "--output", target, "--json", *GREEDY)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == {"output": str(target), "lines": 8, "failed": 5}
    results = {entry["line"]: entry for entry in map(json.loads, target.read_text().splitlines())}
    assert sorted(results) == list(range(1, 9))
    assert results[1]["id"] == "text"
    assert [len(results[line]["token_ids"]) for line in (1, 2, 3)] == [6, 6, 3]
    assert results[3]["usage"]["prompt_tokens"] > 2
    for line, named in ((4, "prompt[1]"), (5, "max_tokens"), (6, "logit_bias"), (7, "prompt"), (8, "messages")):
        assert named in results[line]["error"]["message"]
    again = pagoda("generate", tiny_model, "--input", source, "--output", target, "--temperature", "1")
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


def test_piped_lines_are_a_conversation(pagoda: Pagoda, tiny_model: Path) -> None:
    script = "Hi\n\n/help\nAnd you?\n/reset\nHi\n/nonsense\n/quit\nnever\n"
    done = pagoda("chat", tiny_model, *GREEDY, stdin=script)
    assert done.returncode == 0, done.stderr
    first, _, again = done.stdout.split("\n")[:3] if done.stdout.count("\n") == 3 else (None, None, None)
    assert first is not None, done.stdout
    assert first == again
    assert "/reset" in done.stderr
    assert "/nonsense is no command" in done.stderr
    assert "--max-tokens 6" in done.stderr


def test_a_full_context_is_said(pagoda: Pagoda, tiny_model: Path) -> None:
    questions = "x" * 90 + "\n" + "y" * 90 + "\n" + "z" * 300 + "\n"
    done = pagoda("chat", tiny_model, "--temperature", "0", "--max-tokens", "20", "--ignore-eos", stdin=questions)
    assert "oldest 1 exchange" in done.stderr
    assert "prompt" in done.stderr.splitlines()[-1]
    assert done.returncode == 1


def test_chat_answers_one_prompt(pagoda: Pagoda, tiny_model: Path) -> None:
    asked = pagoda("chat", tiny_model, "--prompt", "Hi", "--system", "Be brief.", "--json", *GREEDY)
    raw = pagoda("generate", tiny_model, "--prompt", "Hi", "--chat", "--json", *GREEDY)
    with_system, without = json.loads(asked.stdout)["usage"], json.loads(raw.stdout)["usage"]
    assert with_system["prompt_tokens"] > without["prompt_tokens"] > 2


def bench_offline(pagoda: Pagoda, model: Path, device: str) -> dict[str, Any]:
    done = pagoda(
        *("bench", "offline", model, "--batch", "2", "--prompt-tokens", "20", "--output-tokens", "5"),
        *("--repeat", "2", "--device", device, "--json"),
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for name in ("load_seconds", "prefill_tokens_per_second", "decode_tokens_per_second", "decode_step_ms"):
        assert report[name] > 0
    assert report["device"] == device
    assert report["bytes_per_decode_step"] > 10_000
    assert (report["batch"], report["prompt_tokens"], report["output_tokens"], report["repeat"]) == (2, 20, 5, 2)
    return report


def test_bench_offline_reports_what_it_promises(pagoda: Pagoda, tiny_model: Path) -> None:
    report = bench_offline(pagoda, tiny_model, "reference")
    assert report["dtype"] == "float32"
    for name in ("read_bandwidth", "fraction_of_bandwidth", "main_format", "fraction_of_peak_compute"):
        assert report[name] is None


def test_bench_offline_measures_the_machine_beside_native_kernels(
    pagoda: Pagoda, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagoda.cli.bench_limits.READ_BYTES", 1 << 20)
    report = bench_offline(pagoda, tiny_model, "cpu")
    assert report["main_format"] == "F32"
    for name in ("read_bandwidth", "fraction_of_bandwidth", "peak_operations", "fraction_of_peak_compute"):
        assert report[name] > 0
    step_seconds = report["bytes_per_decode_step"] / report["read_bandwidth"] / report["fraction_of_bandwidth"]
    assert 0 < step_seconds < 10


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--max-tokens", "300"), "--max-tokens: got 300"), (("--logit-bias", '{"999": 1}'), "--logit-bias: got 999")],
)
def test_what_the_engine_refuses_is_named_as_the_option(
    pagoda: Pagoda, tiny_model: Path, arguments: tuple[str, ...], named: str
) -> None:
    refused = pagoda("generate", tiny_model, "--prompt", "a", *arguments)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"pagoda: {named}")


def test_priorities_are_for_the_policy_that_has_them(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"prompt": "abc", "priority": value}) + "\n" for value in (2, 0, "")))
    for policy, wanted in (("fcfs", ["priority", None, "priority"]), ("priority", [None, None, "priority"])):
        target = tmp_path / policy
        pagoda("generate", tiny_model, "--input", source, "--output", target, "--policy", policy, *GREEDY)
        results = sorted(map(json.loads, target.read_text().splitlines()), key=lambda entry: entry["line"])
        assert [entry.get("error", {}).get("field") for entry in results] == wanted


def test_instructions_that_leave_no_room_are_named(pagoda: Pagoda, tiny_model: Path) -> None:
    refused = pagoda("chat", tiny_model, "--system", "x" * 300, *GREEDY, stdin="Hi\n")
    assert refused.returncode == 2
    assert refused.stderr.startswith("pagoda: --system: got 'xxx")
    assert "the context 256" in refused.stderr


@pytest.mark.parametrize("name", ["out", "out.meta.json"])
def test_the_input_is_never_written_to(pagoda: Pagoda, tiny_model: Path, tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_text('{"prompt": "abc"}\n')
    refused = pagoda("generate", tiny_model, "--input", source, "--output", tmp_path / "out", "--overwrite", *GREEDY)
    assert refused.returncode == 2
    assert f"{name}, which it writes, is the input itself" in refused.stderr
    assert source.read_text() == '{"prompt": "abc"}\n'
