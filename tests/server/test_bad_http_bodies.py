"""Bodies that are no request: too large, not UTF-8, not JSON, nested too deeply. Each a 4xx while good streams go on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.server.good_streams import GoodStreams
from tests.server.process import RunningServer
from tests.server.wire import exchange, post

PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
LIMIT = "4,194,304"  # EngineConfig.max_body_bytes
TEN_MB = 10_000_000
GOOD = b'{"prompt": "Hi", "max_tokens": 2}'


def nested(opening: str, closing: str, depth: int) -> bytes:
    return ('{"prompt": ' + opening * depth + "1" + closing * depth + "}").encode()


NOT_A_REQUEST = {
    "nothing": b"",
    "white space": b" \n ",
    "broken": b'{"prompt": ',
    "cut in a string": b'{"prompt": "Hi',
    "two objects": GOOD + GOOD,
    "trailing comma": b'{"prompt": "Hi",}',
    "single quotes": b"{'prompt': 'Hi'}",
    "a comment": b'{"prompt": "Hi" /* a */}',
    "control character": b'{"prompt": "a\x01b"}',
    "zero bytes": b"\x00" * 100,
    "a list": b"[]",
    "a string": b'"prompt"',
    "a number": b"1",
    "null": b"null",
    "a huge number": b"9" * 100_000,
    "invalid UTF-8": b'{"prompt": "\xff\xfe"}',
    "half a character": b'{"prompt": "\xe2\x82"}',
    "an overlong slash": b'{"prompt": "\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"prompt": "\xed\xa0\x80"}',
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "a duplicate key": b'{"prompt": "Hi", "max_tokens": 2, "max_tokens": 3}',
    "a duplicate key deeper": b'{"prompt": "Hi", "logit_bias": {"1": 2, "1": 3}}',
    "lists in lists": nested("[", "]", 100),
    "objects in objects": nested('{"a":', "}", 100),
    "a million lists": nested("[", "]", 1_000_000),
    "a million open lists": b"[" * 1_000_000,
    "a million open objects": b'{"a":' * 700_000,
}


@pytest.fixture(scope="module")
def good(server: RunningServer) -> Iterator[GoodStreams]:
    with GoodStreams(server) as good:
        yield good


@pytest.mark.parametrize("name", NOT_A_REQUEST)
def test_what_is_no_request_is_refused(server: RunningServer, good: GoodStreams, name: str) -> None:
    for path in PATHS:
        answer = exchange(server.url, post(server.url, path, NOT_A_REQUEST[name]))
        assert answer.status == 400, (path, answer)
        assert answer.error["type"] == "invalid_request_error"
    good.check()


@pytest.mark.parametrize("name", ["lists in lists", "objects in objects", "a million lists", "a million open lists"])
def test_nesting_is_refused_with_its_limit(server: RunningServer, good: GoodStreams, name: str) -> None:
    answer = exchange(server.url, post(server.url, PATHS[0], NOT_A_REQUEST[name]))
    assert "32" in answer.error["message"]
    good.check()


def test_brackets_in_a_string_are_no_nesting(server: RunningServer, good: GoodStreams) -> None:
    body = json.dumps({"model": server.model, "prompt": "[{" * 40 + '"', "max_tokens": 2}).encode()
    assert exchange(server.url, post(server.url, PATHS[0], body)).status == 200
    good.check()


def test_a_duplicate_key_is_named(server: RunningServer, good: GoodStreams) -> None:
    answer = exchange(server.url, post(server.url, PATHS[0], NOT_A_REQUEST["a duplicate key"]))
    assert "max_tokens" in answer.error["message"]
    good.check()


@pytest.mark.parametrize("path", PATHS)
def test_ten_megabytes_are_refused_with_the_limit(server: RunningServer, good: GoodStreams, path: str) -> None:
    body = json.dumps({"prompt": "x" * TEN_MB}).encode()
    answer = exchange(server.url, post(server.url, path, body))
    assert answer.status == 413
    assert LIMIT in answer.error["message"]
    good.check()


@pytest.mark.parametrize("path", PATHS)
def test_ten_megabytes_in_chunks_are_refused_with_the_limit(
    server: RunningServer, good: GoodStreams, path: str
) -> None:
    piece = b"x" * 100_000
    chunks = [f"{len(piece):x}\r\n".encode() + piece + b"\r\n"] * (TEN_MB // len(piece))
    head = post(server.url, path, b"", ("Transfer-Encoding", "chunked"))
    answer = exchange(server.url, head, *chunks, b"0\r\n\r\n")
    assert answer.status == 413
    assert LIMIT in answer.error["message"]
    good.check()


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes(server: RunningServer, good: GoodStreams) -> None:
    answer = exchange(server.url, post(server.url, PATHS[0], b"", ("Content-Length", str(1 << 50))))
    assert answer.status == 413
    assert LIMIT in answer.error["message"]
    good.check()


def test_a_body_in_small_chunks_is_taken(server: RunningServer, good: GoodStreams) -> None:
    body = json.dumps({"model": server.model, "prompt": "Hi", "max_tokens": 2}).encode()
    head = post(server.url, PATHS[0], b"", ("Transfer-Encoding", "chunked"))
    answer = exchange(server.url, head, *(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body), b"0\r\n\r\n")
    assert answer.status == 200
    good.check()


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application",
        "text/plain, application/json",
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_another_content_type_is_refused(
    server: RunningServer, good: GoodStreams, path: str, content_type: str | None
) -> None:
    answer = exchange(server.url, post(server.url, path, GOOD, content_type=content_type))
    assert answer.status == 415
    assert "application/json" in answer.error["message"]
    good.check()


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_may_name_its_charset(server: RunningServer, good: GoodStreams, content_type: str) -> None:
    assert exchange(server.url, post(server.url, PATHS[0], GOOD, content_type=content_type)).status == 200
    good.check()


def test_a_packed_body_is_not_unpacked(server: RunningServer, good: GoodStreams) -> None:
    body = gzip.compress(json.dumps({"prompt": "x" * TEN_MB}).encode())
    answer = exchange(server.url, post(server.url, PATHS[0], body, ("Content-Encoding", "gzip")))
    assert 400 <= answer.status < 500
    assert answer.error["message"]
    good.check()
