import json
import os
import random
from pathlib import Path

import pytest

from pagoda.cli import batch_input
from pagoda.cli.batch_input import parse_line, read_lines, summarize
from pagoda.errors import PagodaError
from pagoda.progress import silent
from pagoda.sampling_params import SamplingParams
from tests.soak import soak_count

DEFAULTS = SamplingParams(max_tokens=7, temperature=0.5)
RANDOM_LINES = soak_count(20_000)


def parse(value: object) -> batch_input.BatchLine:
    return parse_line(3, json.dumps(value).encode(), DEFAULTS)


def test_a_line_takes_the_defaults_and_overrides_them() -> None:
    line = parse({"id": "a", "prompt": "Hi", "max_tokens": 9, "stop": ["x"], "logit_bias": {"5": 1}, "seed": None})
    assert line.error is None
    assert (line.number, line.id, line.prompt) == (3, "a", "Hi")
    assert line.sampling == SamplingParams(max_tokens=9, temperature=0.5, stop=("x",), logit_bias={5: 1.0})


def test_token_ids_and_messages_are_prompts() -> None:
    assert parse({"prompt": [1, 2, 3]}).prompt == [1, 2, 3]
    messages = [{"role": "user", "content": "Hi"}]
    assert parse({"messages": messages}).prompt == messages


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "line"),
        ("text", "line"),
        (None, "line"),
        ({}, "prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": True}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [1, "x"]}, "prompt[1]"),
        ({"prompt": [1.0]}, "prompt[0]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"prompt": "a", "id": 1.5}, "id"),
        ({"prompt": "a", "id": ["x"]}, "id"),
        ({"prompt": "a", "id": "\ud800"}, "id"),
        ({"prompt": "a", "top_q": 1}, "top_q"),
        ({"prompt": "a", "temperature": "hot"}, "temperature"),
        ({"prompt": "a", "temperature": float("nan")}, "temperature"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
        ({"prompt": "a", "n": 1000}, "n"),
        ({"prompt": "a", "stop": ["x"] * 10_000}, "stop"),
        ({"prompt": "a", "min_tokens": 8}, "min_tokens"),
    ],
)
def test_what_is_wrong_is_named(value: object, field: str) -> None:
    line = parse(value)
    assert line.error is not None
    assert line.error.field == field
    assert len(str(line.error)) < 1000


@pytest.mark.parametrize(
    "raw",
    [b"{", b"\xff\xfe", b"[" * 100_000, b'{"prompt": "a"} x', b'{"prompt": "\xe4"}', b'{"prompt": ' + b"9" * 9999],
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    line = parse_line(1, raw, DEFAULTS)
    assert line.error is not None
    assert line.error.field == "line"


def test_an_id_is_kept_though_the_line_is_refused() -> None:
    assert parse({"id": "mine", "prompt": "a", "n": 0}).id == "mine"


def test_no_bytes_make_it_raise() -> None:
    random_bytes = random.Random(5)
    good = json.dumps({"id": "x", "prompt": "ab", "top_k": 5, "stop": ["a"], "logit_bias": {"1": 2}}).encode()
    for _ in range(RANDOM_LINES):
        damaged = bytearray(good)
        for _ in range(random_bytes.randint(1, 4)):
            damaged[random_bytes.randrange(len(damaged))] = random_bytes.randrange(256)
        line = parse_line(1, bytes(damaged), DEFAULTS)
        assert (line.error is None) == (line.sampling is not None)


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\n  \n{"prompt": "b"}\nbad\n{"prompt": "c"}')
    lines = list(read_lines(path, DEFAULTS))
    assert [(line.number, line.prompt, line.error is None) for line in lines] == [
        (1, "a", True),
        (4, "b", True),
        (5, "", False),
        (6, "c", True),
    ]
    assert summarize(path, silent).num_lines == 6


def test_a_line_too_long_is_refused_and_the_next_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_input, "MAX_LINE_BYTES", 50)
    path = tmp_path / "in.jsonl"
    exactly = b'{"prompt": "' + b"x" * 35 + b'"}\n'
    path.write_bytes(b'{"prompt": "' + b"x" * 500 + b'"}\n' + exactly + b'{"prompt": "' + b"y" * 60)
    errors = [None if line.error is None else line.error.field for line in read_lines(path, DEFAULTS)]
    assert len(exactly) == 50
    assert errors == ["line", None, "line"]


def test_a_missing_input_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(PagodaError, match="--input"):
            summarize(path, silent)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PagodaError, match=r"--input: .*pipe is not an ordinary file"):
        summarize(tmp_path / "pipe", silent)
