"""Trouble 24: a client's mistake is answered with 500. Right: 4xx, in a sentence that says what is wrong.

The mistakes are of the kinds that other engines let through to their inside: a wrong type deep in a message, a null where
none may be, text that is no Unicode, numbers that no machine number holds, keys of the wrong kind.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.app import served
from tests.server.gate import AsgiClient

HI = [{"role": "user", "content": "Hi"}]
CHATS: list[dict[str, Any]] = [
    {"messages": [None]},
    {"messages": [[]]},
    {"messages": [{}]},
    {"messages": {"role": "user", "content": "Hi"}},
    {"messages": [{"role": None, "content": "Hi"}]},
    {"messages": [{"role": "user", "content": None}]},
    {"messages": [{"role": "user", "content": {"text": "Hi"}}]},
    {"messages": [{"role": "user", "content": [None]}]},
    {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "no such type"}]}]},
    {"messages": [{"role": "user", "content": "\ud800"}]},
    {"messages": [{"role": "\udfff", "content": "Hi"}]},
    {"messages": HI, "tools": "none"},
    {"messages": HI, "tools": [None]},
    {"messages": HI, "tool_choice": "required"},
    {"messages": HI, "response_format": 5},
    {"messages": HI, "response_format": {"type": "json_schema"}},
    {"messages": HI, "chat_template_kwargs": 5},
    {"messages": HI, "top_logprobs": 2},
    {"messages": HI, "logprobs": 2},
    {"messages": HI, "stream_options": {"include_usage": True}},
    {"messages": HI, "metadata": [1]},
]
COMPLETIONS: list[dict[str, Any]] = [
    {},
    {"prompt": None},
    {"prompt": {}},
    {"prompt": [None]},
    {"prompt": [[None]]},
    {"prompt": [[[1]]]},
    {"prompt": [1, "a"]},
    {"prompt": [1e300]},
    {"prompt": [-1]},
    {"prompt": [1 << 70]},
    {"prompt": "\ud800"},
    {"prompt": "Hi", "logit_bias": {"": 1}},
    {"prompt": "Hi", "logit_bias": {"1.5": 1}},
    {"prompt": "Hi", "logit_bias": {"١": 1}},
    {"prompt": "Hi", "logit_bias": {"1": None}},
    {"prompt": "Hi", "logit_bias": {"5": 1, "05": 2}},
    {"prompt": "Hi", "stop": [None]},
    {"prompt": "Hi", "stop": "\ud800"},
    {"prompt": "Hi", "stop_token_ids": [None]},
    {"prompt": "Hi", "stop_token_ids": 5},
    {"prompt": "Hi", "temperature": 1e308},
    {"prompt": "Hi", "temperature": {}},
    {"prompt": "Hi", "seed": 1 << 64},
    {"prompt": "Hi", "seed": "x"},
    {"prompt": "Hi", "max_tokens": []},
    {"prompt": "Hi", "n": None, "best_of": 3},
    {"prompt": "Hi", "logprobs": "5"},
    {"prompt": "Hi", "prompt_logprobs": -1},
    {"prompt": "Hi", "model": None},
    {"prompt": "Hi", "model": ["tiny"]},
    {"prompt": "Hi", "\ud800": 1},
    {"prompt": "Hi", "": 1},
]
VALID = [{"prompt": "Hi", "model": None}, {"prompt": "Hi", "logit_bias": {"5": 1, "05": 2}}]  # or may be taken as such


def test_every_mistake_is_a_4xx_that_says_what_is_wrong(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            for path, bodies in (("/v1/chat/completions", CHATS), ("/v1/completions", COMPLETIONS)):
                for body in bodies:
                    client = AsgiClient(app, path, {"model": "tiny", "max_tokens": 2, **body})
                    await client.finished()
                    assert client.status is not None
                    assert 400 <= client.status < 500 or body in VALID, (body, client.status, client.text)
                    if client.status != 200:
                        error = json.loads(client.text)["error"]
                        assert error["message"], body
                        assert error["type"] in {"invalid_request_error", "not_found_error"}, body
            good = AsgiClient(app, "/v1/completions", {"model": "tiny", "prompt": "Hi", "max_tokens": 2})
            await good.finished()
            assert good.status == 200
            assert llm.stats.num_free_blocks == llm.stats.num_blocks

    asyncio.run(run())
