"""Trouble 40, from outside: a chat template that loops for ever. Right: an error that says so, and a server that lives.

That the template is the operator's own does not help him: it came with the model.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.server.app import served
from tests.server.gate import AsgiClient

HOSTILE = {
    "loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "memory": "{% set ns = namespace(v='ab') %}{% for i in range(60) %}{% set ns.v = ns.v ~ ns.v %}{% endfor %}",
    "looks outside": "{{ ''.__class__.__mro__ }}",
    "refuses": "{{ raise_exception('no') }}",
    "fails": "{{ messages[99].content.x }}",
}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


@pytest.mark.parametrize("name", HOSTILE)
def test_each_chat_is_refused_and_completions_go_on(tiny_model: str, tmp_path: Path, name: str) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(HOSTILE[name])

    async def run() -> None:
        async with served(tiny_model, chat_template=str(template)) as (app, llm):
            completion = {"model": "tiny", "prompt": "Hi", "max_tokens": 40, "stream": True, "ignore_eos": True}
            streams = [AsgiClient(app, "/v1/completions", completion) for _ in range(2)]
            chats = [AsgiClient(app, "/v1/chat/completions", {**CHAT, "stream": stream}) for stream in (False, True)]
            for client in (*streams, *chats):
                await client.finished()
            for chat in chats:
                assert chat.status == 400
                error = json.loads(chat.text)["error"]
                assert re.search("chat.template", error["message"])
                assert error["param"] == "messages"
            assert [client.status for client in streams] == [200, 200]
            assert all(client.text.endswith("data: [DONE]\n\n") for client in streams)
            assert llm.num_open == 0

    asyncio.run(run())
