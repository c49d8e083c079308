"""Standard streams that are full, closed or not read: one sentence, never a traceback, and the documented exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT

FULL = "pagoda: stdout cannot be written: No space left on device\n"
CLOSED = "pagoda: stdout cannot be written: Bad file descriptor\n"
NO_INPUT = "pagoda: stdin cannot be read: Bad file descriptor\n"


def shell(line: str, model: Path) -> subprocess.CompletedProcess[str]:
    """The line in bash, where $PAGODA is the command and $MODEL a model; it exits as the line's first command does."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment["MODEL"] = str(model)
    program = f"""pagoda() {{ "{sys.executable}" -c "from pagoda.cli.main import main; main()" "$@"; }}
    {line}
    exit "${{PIPESTATUS[0]}}" """
    return subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=120
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
@pytest.mark.parametrize(
    "arguments",
    ["--help", "--version", "inspect $MODEL", "inspect $MODEL --json", "generate $MODEL --prompt a --max-tokens 2"],
)
def test_a_full_disk_is_one_sentence(tiny_model: Path, arguments: str) -> None:
    done = shell(f"pagoda {arguments} > /dev/full", tiny_model)
    assert (done.returncode, done.stderr) == (2, FULL)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("pagoda --help >&-", 2, CLOSED),
        ("pagoda inspect $MODEL >&-", 2, CLOSED),
        ("pagoda generate $MODEL --prompt - <&-", 2, NO_INPUT),
        ("pagoda chat $MODEL <&-", 2, NO_INPUT),
        ("pagoda inspect $MODEL 2>&- > /dev/null", 0, ""),
        ("pagoda --bogus 2>&-", 2, ""),
    ],
)
def test_a_closed_stream_is_missed_only_where_it_is_needed(tiny_model: Path, line: str, code: int, said: str) -> None:
    done = shell(line, tiny_model)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
@pytest.mark.parametrize("arguments", ["--bogus", "inspect no/such/model"])
def test_a_refusal_that_cannot_be_written_is_a_refusal(tiny_model: Path, arguments: str) -> None:
    assert shell(f"pagoda {arguments} 2> /dev/full", tiny_model).returncode == 2


@pytest.mark.parametrize("arguments", ["--help", "--version", "inspect $MODEL", "inspect $MODEL --json"])
def test_nobody_reads(tiny_model: Path, arguments: str) -> None:
    done = shell(f"pagoda {arguments} | true", tiny_model)
    assert (done.returncode, done.stderr) == (141, "")


def test_bytes_that_are_no_text_are_refused_as_the_prompt(tiny_model: Path) -> None:
    done = shell("pagoda generate $MODEL --prompt - < <(printf '\\xff')", tiny_model)
    assert done.returncode == 2
    assert done.stderr.startswith("pagoda: prompt: got '\\udcff', must be text that UTF-8 can encode")
