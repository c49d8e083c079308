"""What holds for every command: help, versions, errors, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.version import __version__
from tests.cli.command import ROOT
from tests.cli.command import pagoda as pagoda_process
from tests.cli.conftest import Pagoda


def test_version_and_help(pagoda: Pagoda) -> None:
    assert pagoda("--version").stdout == f"pagoda {__version__}\n"
    shown = pagoda("--help").stdout
    for command in ("serve", "chat", "generate", "inspect", "plan", "simulate", "bench"):
        assert f"  {command} " in shown
    # Each command's line says all that it has to say.
    lines = [*shown.splitlines(), *pagoda("bench", "--help").stdout.splitlines()]
    assert [line for line in lines if line.startswith("  ") and line.endswith("...")] == []


def test_help_imports_nothing_heavy() -> None:
    program = """
import sys
from pagoda.cli.main import app
try:
    app(["generate", "--help"])
except SystemExit:
    pass
print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "rich", "jinja2", "tokenizers", "huggingface_hub"}))
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["generate"], "--prompt"),
        (["generate", "--prompt", "a", "--input", "b"], "either --prompt"),
        (["generate", "--input", "in.jsonl"], "--output"),
        (["generate", "--prompt", "a", "--output", "b"], "--output"),
        (["generate", "--prompt", "a", "--logprobs", "2"], "--json"),
        (["generate", "--input", "none.jsonl", "--output", "b"], "none.jsonl"),
        (["generate", "--input", "README.md", "--output", "."], "--output: . is not an ordinary file"),
        (["generate", "--prompt", "a", "--temperature", "-1"], "--temperature"),
        (["generate", "--prompt", "a", "--top-k", "many"], "--top-k"),
        (["generate", "--prompt", "a", "--device", "abacus"], "--device"),
        (["generate", "--prompt", "a", "--temprature", "1"], "--temprature"),
        (["generate", "no/such/folder", "--prompt", "a"], "no/such/folder"),
        (["generate", "./none.gguf", "--prompt", "a"], "none.gguf"),
        (["chat", "--n", "2"], "--n"),
        (["chat", "--json"], "--prompt"),
        (["bench", "offline", "--batch", "0"], "--batch"),
        (["bench", "offline", "--batch", "9", "--max-num-seqs", "8"], "--batch"),
        (["bench", "offline", "--output-tokens", "1"], "--output-tokens"),
        (["bench", "limits", "--threads", "0"], "--threads"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_refusal_is_exit_code_2_and_one_sentence(pagoda: Pagoda, arguments: list[str], named: str) -> None:
    refused = pagoda(*arguments)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert named in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "arguments", [["serve", "--port", "80x"], ["generate", "--temperature", "abc", "--prompt", "x"]]
)
def test_a_value_that_cannot_be_read_is_one_sentence(pagoda: Pagoda, arguments: list[str]) -> None:
    done = pagoda(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert arguments[1] in done.stderr


def test_a_corrupt_model_is_one_sentence(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    for path in tiny_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused = pagoda("generate", tmp_path, "--prompt", "a")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "model.safetensors" in refused.stderr


def test_a_reader_that_leaves_ends_it_quietly(tiny_model: Path) -> None:
    program = f'"{sys.executable}" -c "from pagoda.cli.main import main; main()"'
    command = f'{program} "$@" | head -c 1 >/dev/null; exit "${{PIPESTATUS[0]}}"'
    arguments = ("generate", str(tiny_model), "--prompt", "a", "--max-tokens", "100", "--ignore-eos")
    left = subprocess.run(
        ["bash", "-c", command, "bash", *arguments], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert left.returncode in (0, 141)
    assert left.stderr == ""


def test_json_is_one_object(tiny_model: Path) -> None:
    done = pagoda_process(
        "generate", tiny_model, "--prompt", "Hé", "--max-tokens", "5", "--json", "--temperature", "0", "--ignore-eos"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    shown = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert len(shown["token_ids"]) == 5
    assert shown["finish_reason"] == "length"
    counts = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    assert shown["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}
    assert shown["sampling_params"]["temperature"] == 0.0
    assert isinstance(shown["text"], str)
