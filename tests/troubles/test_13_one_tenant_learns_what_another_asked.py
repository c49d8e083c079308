"""Trouble 13: time tells one tenant what another asked, or the client picks the domain it looks into.

Right: what is cached is looked for only within the tenant, which the server sets and no field of a request can; a salt only
ever narrows it further. Neither the time nor `cached_tokens` of another domain's request tells anything.
"""

from __future__ import annotations

import dataclasses

import pytest

from pagoda import LLM, SamplingParams
from pagoda.core.prefix_cache import Miss, Namespace
from pagoda.engine.messages import Submit
from pagoda.errors import InvalidValueError
from pagoda.server.openai.requests import chat_request, completion_request

SECRET = "The patient's name is in this text, which is long enough for some blocks."
ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)


def test_a_salted_text_is_computed_again_for_whoever_lacks_the_salt(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        llm.generate(SECRET, ONE_TOKEN, cache_salt="known to one")
        computed = []
        for salt in ("guessed", None, "known to one"):
            before = llm.step_log.totals.prefill_tokens
            (output,) = llm.generate(SECRET, ONE_TOKEN, cache_salt=salt)
            computed.append((output.usage.cached_tokens, llm.step_log.totals.prefill_tokens - before))
        assert computed[0] == computed[1] == (0, len(SECRET))
        assert computed[2] == (64, len(SECRET) - 64)
        assert llm.stats.prefix.misses[Miss.OTHER_TENANT] == 2


@pytest.mark.parametrize("name", ["tenant", "namespace", "adapter", "api_key", "user_id"])
def test_a_request_cannot_name_its_tenant(name: str) -> None:
    with pytest.raises(InvalidValueError, match="there is no such field") as caught:
        completion_request({"prompt": "Hi", name: "another"}, 100, 8)
    assert caught.value.field == name
    with pytest.raises(InvalidValueError, match="there is no such field"):
        chat_request({"messages": [{"role": "user", "content": "Hi"}], name: "another"}, 100)


def test_nor_can_its_salt_or_its_user(tiny_model: str) -> None:
    """Whatever a client sends, its tenant is the server's to say; until there are keys, there is one."""
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        for salt in (None, "x", "tenant", "\0", '{"tenant": "another"}'):
            submit = llm._engine.admission.admit("id", "Hi", None, cache_salt=salt).submit
            assert submit.namespace == Namespace(tenant="", adapter="", salt=salt or "")
    assert "namespace" in {field.name for field in dataclasses.fields(Submit)}
