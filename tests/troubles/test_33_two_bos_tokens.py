"""Trouble 33: two BOS tokens, one from the template or the prompt and one from the tokenizer. Right: one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.text.chat_template import chat_template_of, chat_token_ids
from pagoda.text.directory_vocabulary import tokenizer_from_directory
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.tokenizer import Tokenizer
from tests.text.tiny import sentencepiece_metadata, write_llama_directory

BOS = 1


@pytest.fixture(params=["gguf", "directory"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    if request.param == "gguf":
        return tokenizer_from_gguf(sentencepiece_metadata())
    return tokenizer_from_directory(write_llama_directory(tmp_path))


def test_a_prompt_gets_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("hi").count(BOS) == 1
    assert tokenizer.encode("<s>hi").count(BOS) == 1
    assert tokenizer.encode("") == [BOS]
    assert tokenizer.encode("hi", add_special_tokens=False).count(BOS) == 0
    assert tokenizer.encode("<s>hi", add_special_tokens=False).count(BOS) == 1


def test_a_template_that_writes_it_gets_one(tokenizer: Tokenizer) -> None:
    template = chat_template_of(tokenizer, "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
    for content in ("hi", "<s>hi"):
        ids = chat_token_ids(tokenizer, template, [{"role": "user", "content": content}])
        assert ids[0] == BOS
        assert ids.count(BOS) == 1


def test_rendered_text_sent_as_a_prompt_gets_one(tokenizer: Tokenizer) -> None:
    template = chat_template_of(tokenizer, "{{ bos_token }}{{ messages[0].content }}")
    rendered = template.render([{"role": "user", "content": "hi"}])
    assert tokenizer.encode(rendered) == tokenizer.encode(rendered, add_special_tokens=False)
