"""The two READMEs say the same: the same code, commands and links, and every link to a file leads somewhere. Commands that are
shown with what they print do print that."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Pagoda, pagoda

__all__ = ["pagoda"]

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh.md")
# The picture of one step is in the English one only; the Chinese one links to it.
PICTURE = "scheduler.schedule()"


def code_blocks(name: str) -> list[str]:
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    # What a comment says is prose, and so is translated.
    return [re.sub(r" *#.*", "", block) for block in blocks if PICTURE not in block]


def links(name: str) -> set[str]:
    return set(re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text(encoding="utf-8"))) - set(READMES)


def test_both_have_the_same_commands_and_code() -> None:
    english, chinese = (code_blocks(name) for name in READMES)
    assert english == chinese
    assert any("make run" in block and "make test" in block for block in english)


def test_both_link_to_the_same_files_and_to_each_other() -> None:
    assert links("README.md") == links("README.zh.md")
    for name, other in (READMES, READMES[::-1]):
        assert f"({other})" in (ROOT / name).read_text(encoding="utf-8").split("\n## ")[0]


@pytest.mark.parametrize("name", READMES)
def test_every_link_leads_to_a_file(name: str) -> None:
    missing = [link for link in links(name) if "://" not in link and not (ROOT / link).exists()]
    assert missing == []


def test_commands_print_what_is_shown_under_them(pagoda: Pagoda) -> None:
    (block,) = re.findall(
        r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    commands = [part.splitlines() for part in block.split("$ pagoda ")[1:]]
    assert len(commands) == 2
    for command, *lines in commands:
        done = pagoda(*shlex.split(command))
        assert done.returncode == 0, done.stderr
        printed = " ".join(done.stdout.split())
        assert lines
        assert [line for line in lines if line not in printed] == []
