"""What importing the text package costs: the libraries behind it are loaded when first used."""

from __future__ import annotations

import subprocess
import sys


def test_importing_loads_neither_tokenizers_nor_jinja_nor_torch() -> None:
    modules = "chat_template, detokenizer, directory_vocabulary, gguf_vocabulary, stop_strings, tokenizer"
    code = f"import sys; from pagoda.text import {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"tokenizers", "jinja2", "torch", "transformers", "pagoda.loading"} & set(loaded)
