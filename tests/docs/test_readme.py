"""The two READMEs say the same: the same code, commands and links, and every link to a file leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
