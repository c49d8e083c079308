"""JSON bodies: what is read, what is refused, and that refusing costs little."""

from __future__ import annotations

import asyncio
import json
from itertools import accumulate
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.server.errors import HttpError
from pagoda.server.json_body import nesting, parse_object
from tests.server.small_app import service_of, small_app

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)  # fmt: skip


def post(content: bytes, *headers: tuple[str, str], **engine: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=small_app(service_of(**engine)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/echo", content=content, headers=list(headers))

    return asyncio.run(send())


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(st.dictionaries(st.text(), JSON))
def test_whatever_json_writes_is_read(value: dict[str, Any]) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        body = text.encode()
        assert parse_object(body, 200) == value
        assert nesting(body) == depth(value)


@given(st.lists(st.sampled_from("[]{},:1") | st.text(max_size=5).map(json.dumps)))
def test_brackets_are_counted_outside_of_strings_whether_or_not_they_match(tokens: list[str]) -> None:
    levels = accumulate((token in "[{") - (token in "]}") for token in tokens)
    assert nesting("".join(tokens).encode()) == max(0, *levels, 0)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON object"),
        (b"[1]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"{", "line 1 column"),
        (b'{"a": 1,}', "line 1 column"),
        (b"{'a': 1}", "line 1 column"),
        (b'{"a": 1} {"b": 2}', "Extra data"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "64-bit float"),
        (b'{"a": ' + b"9" * 41 + b"}", "at most 40"),
        (b'{"a": -' + b"9" * 3_000_000 + b"}", "3,000,001 digits"),
        (b'{"top_p": 1, "b": 2, "top_p": 1}', "'top_p'"),
        (b'{"b": [{"x": 1, "x": 1}]}', "'x'"),
        (b'{"\\ud800": 1, "\\ud800": 1}', "\\ud800"),
        (b'{"a": "\xff"}', "offset 7"),
        (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b'{"a": "\n"}', "control character"),
    ],
)
def test_what_is_refused_and_how(body: bytes, named: str) -> None:
    with pytest.raises(HttpError) as refused:
        parse_object(body, 32)
    assert refused.value.status == 400
    assert named in str(refused.value)
    assert len(str(refused.value)) < 500


def test_nesting_up_to_the_limit_is_read() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert parse_object(nested(32), 32)
    with pytest.raises(HttpError, match="nested 33 deep, must be at most 32 deep"):
        parse_object(nested(33), 32)
    assert parse_object(b'{"a": "[[[[[[[[[["}', 2)
    assert parse_object(b'{"a": "\\"[[[[[[\\\\"}', 2)


@pytest.mark.parametrize("body", [b"[" * 10_000_000, b'{"a":' * 2_000_000, b"[[]," * 1_000_000 + b"[" * 50])
def test_ten_million_brackets_are_refused_without_going_into_them(body: bytes) -> None:
    with pytest.raises(HttpError, match="nested"):
        parse_object(body, 32)


def test_a_route_reads_strictly_and_knows_the_operator_s_limit() -> None:
    plain = ("content-type", "application/json")
    assert post(b'{"a": [1]}', plain).json() == {"a": [1]}
    assert post(b'{"a": [1]}', plain, max_json_depth=2).status_code == 200
    refused = post(b'{"a": [[1]]}', plain, max_json_depth=2)
    assert refused.status_code == 400
    assert "max_json_depth" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_by_any_spelling_of_its_name(content_type: str) -> None:
    assert post(b"{}", ("content-type", content_type)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("content-type", "text/plain")],
        [("content-type", "application/x-www-form-urlencoded")],
        [("content-type", "application/json-seq")],
        [("content-type", "application/json; charset=latin-1")],
        [("content-type", "text/plain, application/json")],
        [("content-type", "application/json"), ("content-type", "text/plain")],
        [("content-type", "application/json"), ("content-encoding", "gzip")],
    ],
)
def test_other_content_is_refused_unread(headers: list[tuple[str, str]]) -> None:
    refused = post(b"not even JSON", *headers)
    assert refused.status_code == 415
    assert "must be" in refused.json()["error"]["message"]
