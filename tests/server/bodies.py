"""Requests and their decoded bodies, for tests that look at what is in them."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import httpx

from tests.server.process import RunningServer


def post(server: RunningServer, path: str, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        response = client.post(path, json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    answer: dict[str, Any] = response.json()
    return answer


def refusal(server: RunningServer, path: str, body: dict[str, Any], status: int = 400) -> dict[str, Any]:
    error: dict[str, Any] = post(server, path, body, status)["error"]
    return error


def stream(server: RunningServer, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream, which ends as it should."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        response = client.post(path, json={**body, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response.text)


def events(text: str) -> list[dict[str, Any]]:
    *lines, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(line.startswith("data: {") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def completions(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices of a stream of completions, joined, in the order of their indices."""
    joined: dict[int, dict[str, Any]] = defaultdict(dict)
    for chunk in chunks:
        for choice in chunk["choices"]:
            whole = joined[choice["index"]]
            assert whole.get("finish_reason") is None, "a chunk after the end"
            if not whole:
                whole |= choice
                continue
            whole["text"] += choice["text"]
            whole["finish_reason"] = choice["finish_reason"]
            for name, values in (choice["logprobs"] or {}).items():
                whole["logprobs"][name] += values
    return [joined[index] for index in sorted(joined)]
