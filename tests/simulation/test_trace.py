"""Traces: what is read, and the one sentence that names file, line, field, value and limit of what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pagoda.errors import InvalidValueError, PagodaError
from pagoda.simulation import trace
from pagoda.simulation.text_lines import MAX_LINE_BYTES
from pagoda.simulation.trace import read_trace
from pagoda.simulation.workload import Arrival

GOOD = '{"time": 5.5, "prompt_tokens": 10, "output_tokens": 3}'


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_json_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"\ufeff{GOOD}\r\n\n"
        '{"time": 5.5, "prompt_tokens": 8, "output_tokens": 1, "prefix": "système", "prefix_tokens": 8}\n'
        '{"time": 7, "prompt_tokens": 9, "output_tokens": 2, "prefix": null}',
    )
    assert list(read_trace(path)) == [
        Arrival(0.0, 10, 3),
        Arrival(0.0, 8, 1, "système", 8),
        Arrival(1.5, 9, 2),
    ]


def test_it_is_read_as_a_stream(tmp_path: Path) -> None:
    arrivals = read_trace(written(tmp_path, f"{GOOD}\n{GOOD}\nwrong\n"))
    assert [next(arrivals), next(arrivals)] == [Arrival(0.0, 10, 3)] * 2
    with pytest.raises(InvalidValueError, match="line 3"):
        next(arrivals)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"time": -1, "prompt_tokens": 1, "output_tokens": 1}', "time: got -1, must be a finite number from 0"),
        ('{"time": NaN, "prompt_tokens": 1, "output_tokens": 1}', "time: got nan, must be a finite number"),
        ('{"time": 1e999, "prompt_tokens": 1, "output_tokens": 1}', "time: got inf, must be a finite number"),
        ('{"time": "6", "prompt_tokens": 1, "output_tokens": 1}', "time: got '6', must be a finite number"),
        ('{"time": true, "prompt_tokens": 1, "output_tokens": 1}', "time: got True, must be a finite number"),
        (
            '{"time": 5.25, "prompt_tokens": 1, "output_tokens": 1}',
            "time: got 5.25, must be at least 5.5, the time of the request before: sort the trace by time",
        ),
        ('{"time": 6, "prompt_tokens": 0, "output_tokens": 1}', "prompt_tokens: got 0, must be an integer from 1 to"),
        ('{"time": 6, "prompt_tokens": 1.0, "output_tokens": 1}', "prompt_tokens: got 1.0, must be an integer"),
        ('{"time": 6, "prompt_tokens": 1, "output_tokens": -2}', "output_tokens: got -2, must be an integer from 1"),
        ('{"time": 6, "prompt_tokens": 99999999999, "output_tokens": 1}', "prompt_tokens: got 99999999999, must be"),
        ('{"time": 6, "prompt_tokens": 1}', "output_tokens: got None, must be given"),
        ('{"time": 6, "prompt_tokens": 1, "output_tokens": 1, "model": "x"}', "model: got 'x', must be left out"),
        ('{"time": 6, "time": 7, "prompt_tokens": 1, "output_tokens": 1}', "line: got .* a JSON object .*key comes twice"),
        ('{"time": 6, "prompt_tokens": 1, "output_tokens": 1, "prefix": 3}', "prefix: got 3, must be a string"),
        (
            '{"time": 6, "prompt_tokens": 4, "output_tokens": 1, "prefix": "a", "prefix_tokens": 5}',
            "prefix_tokens: got 5, must be an integer from 0 to 4",
        ),
        (
            '{"time": 6, "prompt_tokens": 4, "output_tokens": 1, "prefix_tokens": 2}',
            "prefix_tokens: got 2, must be left out where there is no prefix",
        ),
        ('{"time": 6, "prompt_tokens": 1, "output_tokens": 1, "prefix": "\\ud800"}', "prefix: got .*, must be text that UTF-8"),
        ("[1, 2, 3]", r"line: got \[1, 2, 3\], must be a JSON object"),
        ("{", "line: got '{', must be a JSON object"),
        ("[" * 60_000, "line: got .*, must be nested less deeply|line: got .*, must be a JSON object"),
        ('{"time": ' + "9" * 6_000 + "}", "line: got .*, must be a JSON object"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f"{GOOD}\n{line}\n")
    with pytest.raises(InvalidValueError, match=f"^line 2 of {re.escape(str(path))}: ({message})") as refused:
        list(read_trace(path))
    assert len(str(refused.value)) < 500


def test_a_huge_line_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, f"{GOOD}\n" + "x" * (MAX_LINE_BYTES + 1))
    with pytest.raises(InvalidValueError, match=r"line 2 of .*/trace: got .*, must be at most 65,536 bytes long"):
        list(read_trace(path))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"line 2 of .*/trace: got .*, must be UTF-8 \(invalid start byte\)"):
        list(read_trace(written(tmp_path, GOOD.encode() + b"\n\xff\xfe\n")))


def test_too_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_REQUESTS", 3)
    assert len(list(read_trace(written(tmp_path, f"{GOOD}\n" * 3)))) == 3
    with pytest.raises(InvalidValueError, match=r"line 4 of .*.*at most 3 requests are read"):
        list(read_trace(written(tmp_path, f"{GOOD}\n" * 4)))


@pytest.mark.parametrize("text", ["", "\n\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_an_empty_trace(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^--trace: got .*, must be a trace with at least one request"):
        list(read_trace(written(tmp_path, text)))


@pytest.mark.parametrize("name", ["nothing", ".", "with\0nul"])
def test_what_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(PagodaError, match=r"^--trace: "):
        list(read_trace(tmp_path / name))


def test_azure_s_columns(tmp_path: Path) -> None:
    of_2023 = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109",
    )
    first, second = read_trace(of_2023)
    assert first == Arrival(0.0, 374, 44)
    assert second == Arrival(pytest.approx(4.314579, abs=1e-6), 396, 109)  # type: ignore[arg-type]
    of_2024 = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:00+02:00,7,1\n",
    )
    with pytest.raises(InvalidValueError, match=r"line 3 of .*/trace: time: got .*, must be at least"):
        list(read_trace(of_2024))


def test_burstgpt_s_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        '5,ChatGPT,472,18,490,"Conversation, log"\n45,GPT-4,1087,230,1317,API log\n',
    )
    assert list(read_trace(path)) == [Arrival(0.0, 472, 18), Arrival(40.0, 1087, 230)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("when,prompt_tokens,output_tokens\n", "line 1 of .*: got .*one column time or timestamp"),
        ("time,timestamp,prompt_tokens,output_tokens\n", "line 1 of .*: got .*one column time or timestamp"),
        ("time,prompt_tokens,output_tokens\n1,2\n", "line 2 of .*: line: got '1,2', must be 3 columns"),
        ("time,prompt_tokens,output_tokens\n1,2,0\n", "line 2 of .*: output_tokens: got 0, must be"),
        ("time,prompt_tokens,output_tokens\n1,2,x\n", "line 2 of .*: output_tokens: got 'x', must be an integer"),
        ("time,prompt_tokens,output_tokens\nnoon,2,3\n", "line 2 of .*: time: got 'noon', must be seconds"),
        ("time,prompt_tokens,output_tokens\n-5,2,3\n", "line 2 of .*: time: got -5.0, must be a finite number from 0"),
        ("time,prompt_tokens,output_tokens\n2024-13-40 00:00:00,2,3\n", "line 2 of .*: time: got '2024-13-40"),
        ('time,prompt_tokens,output_tokens\n1,2,"3\n', "line 2 of .*: line: got .*comma-separated"),
        ("hello\n", "line 1 of .*: got 'hello', must be a JSON object, or the header of a CSV file"),
    ],
)
def test_a_wrong_csv_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        list(read_trace(written(tmp_path, text)))
