"""Trouble 36: GGUF models give garbage, or are refused although they are common.

Right: a GGUF file is a first-class source. Whatever mix of formats it has, each weight has exactly the values that ggml's
reference gives it, and a format that is not implemented is refused by name instead of being misread.
"""

from pathlib import Path

import gguf
import numpy as np
import pytest

from pagoda.errors import UnsupportedModelError
from pagoda.loading.resolve import open_checkpoint
from pagoda.planning.formats import FORMATS
from pagoda.quantization import dequantize
from tests.quantization.test_dequantize import random_tensor, reference

HIDDEN, LAYERS, VOCABULARY = 256, len(FORMATS), 96


def write_model(path: Path, formats: list[str]) -> None:
    """A LLaMA-shaped file with one layer per format, written by the `gguf` package as converters do."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(len(formats))
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {index}" for index in range(VOCABULARY)])
    writer.add_eos_token_id(2)
    writer.add_tensor("token_embd.weight", np.zeros((VOCABULARY, HIDDEN), np.float16))
    for layer, name in enumerate(formats):
        stored = random_tensor(name, HIDDEN, HIDDEN, seed=layer)
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(f"blk.{layer}.attn_q.weight", stored.data, raw_dtype=kind)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.full(HIDDEN, layer, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_every_format_in_one_file(tmp_path: Path) -> None:
    write_model(tmp_path / "mixed.gguf", list(FORMATS))
    checkpoint = open_checkpoint(str(tmp_path / "mixed.gguf"))
    assert checkpoint.config["num_hidden_layers"] == LAYERS
    assert checkpoint.config["hidden_size"] == HIDDEN
    assert checkpoint.config["vocab_size"] == VOCABULARY
    assert checkpoint.metadata["tokenizer.ggml.tokens"][95] == "token 95"
    for layer, name in enumerate(FORMATS):
        stored = checkpoint.read(f"blk.{layer}.attn_q.weight")
        assert (stored.info.format, stored.info.shape) == (name, (HIDDEN, HIDDEN))
        values, wanted = dequantize(stored), reference(random_tensor(name, HIDDEN, HIDDEN, seed=layer))
        assert np.array_equal(values.view(np.uint32), wanted.view(np.uint32))
        assert (dequantize(checkpoint.read(f"blk.{layer}.attn_norm.weight")) == layer).all()


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "IQ4_XS", "MXFP4"])
def test_other_formats_are_refused_by_name_before_anything_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "other.gguf"
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    writer = gguf.GGUFWriter(path, "llama")
    data = np.zeros((2, 256 // elements * size), np.uint8)
    writer.add_tensor("blk.0.ffn_up.weight", data, raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=f"blk.0.ffn_up.weight.*{name}.*known: F32, F16, BF16, Q4_0"):
        open_checkpoint(str(path))
