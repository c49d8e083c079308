"""The inventory is held against the spec before anything is read, and weights arrive as the model wants them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.models.registry import family_for
from pagoda.models.transforms import PLUS_ONE, TRANSPOSED, halves_from_pairs
from pagoda.models.weights import load_model
from pagoda.ops.reference_weights import TorchWeightOps
from tests.models.fakes import CONFIGS, LLAMA, FakeCheckpoint


def load(checkpoint: FakeCheckpoint) -> list[tuple[int, int]]:
    """Loads it and returns what progress was told."""
    told: list[tuple[int, int]] = []
    family = family_for(checkpoint.config)
    weight_ops = TorchWeightOps(torch.device("cpu"), torch.float32)
    load_model(
        checkpoint, family, family.spec(checkpoint.config), weight_ops, lambda done, all: told.append((done, all))
    )
    return told


@pytest.mark.parametrize("kind", ["huggingface", "gguf"])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_every_tensor_is_read_once_and_progress_ends_at_the_total(name: str, kind: str) -> None:
    checkpoint = FakeCheckpoint(CONFIGS[name], kind)  # type: ignore[arg-type]
    told = load(checkpoint)

    assert sorted(checkpoint.reads) == sorted(checkpoint.tensors)
    assert told[-1] == (sum(info.num_bytes for info in checkpoint.tensors.values()),) * 2
    assert told == sorted(told)


def test_missing_misshapen_and_unknown_tensors_are_named_together_and_nothing_is_read() -> None:
    checkpoint = FakeCheckpoint(LLAMA)
    del checkpoint.tensors["model.norm.weight"]
    for layer in range(2):
        for name in "qkv":
            del checkpoint.tensors[f"model.layers.{layer}.self_attn.{name}_proj.weight"]
    checkpoint.add("model.embed_tokens.weight", (64, 31))
    checkpoint.add("model.layers.2.self_attn.q_proj.weight", (32, 32))

    with pytest.raises(ModelFileError) as caught:
        load(checkpoint)

    assert str(caught.value) == (
        "fake: 7 tensors missing (model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight, "
        "model.layers.0.self_attn.v_proj.weight and 4 more); "
        "1 tensor with another shape than the config's (model.embed_tokens.weight is 64×31 where the config means 64×32); "
        "1 tensor unknown to the family llama ('model.layers.2.self_attn.q_proj.weight')"
    )
    assert not checkpoint.reads


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("llama", "rope_freqs.weight"),
        ("llama-tied", "lm_head.weight"),
        ("gpt2", "h.0.attn.bias"),
        ("gpt2", "transformer.h.1.attn.masked_bias"),
        ("gpt2", "lm_head.weight"),
        ("gemma3", "vision_tower.vision_model.embeddings.position_embedding.weight"),
    ],
)
def test_some_tensors_are_knowingly_ignored(name: str, ignored: str) -> None:
    checkpoint = FakeCheckpoint(CONFIGS[name])
    checkpoint.add(ignored, (64, 32))
    load(checkpoint)

    assert ignored not in checkpoint.reads


def test_a_tied_model_may_not_bring_other_extra_tensors() -> None:
    checkpoint = FakeCheckpoint(CONFIGS["llama-tied"])
    checkpoint.add("lm_head.bias", (64,))

    with pytest.raises(ModelFileError, match=r"unknown to the family llama \('lm_head\.bias'\)"):
        load(checkpoint)


def test_an_unknown_format_is_refused_by_name() -> None:
    checkpoint = FakeCheckpoint(LLAMA)
    checkpoint.add("model.norm.weight", (32,), "IQ2_XS")

    with pytest.raises(UnsupportedModelError, match="weight format 'IQ2_XS' is not supported; known: F32"):
        load(checkpoint)


def stored(values: np.ndarray, format_name: str = "F32") -> StoredTensor:
    rows = values.reshape(1, -1) if values.ndim == 1 else values
    data = np.ascontiguousarray(rows).view(np.uint8)
    return StoredTensor(TensorInfo("x", values.shape, format_name, data.nbytes), data)


def test_transposed() -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    result = TRANSPOSED.apply(stored(values, "F16"))

    assert TRANSPOSED.stored_shape((3, 2)) == (2, 3)
    assert result.info.shape == (3, 2)
    assert np.array_equal(result.data.view(np.float16), values.T)


def test_transposing_quantized_blocks_is_refused() -> None:
    blocks = StoredTensor(TensorInfo("x", (2, 32), "Q8_0", 68), np.zeros((2, 34), dtype=np.uint8))

    with pytest.raises(UnsupportedModelError, match="weight format of x 'Q8_0'"):
        TRANSPOSED.apply(blocks)


def test_plus_one() -> None:
    result = PLUS_ONE.apply(stored(np.array([0.5, -1.0], dtype=np.float16), "F16"))

    assert result.info.format == "F32"
    assert result.data.view(np.float32).tolist() == [[1.5, 0.0]]


def test_halves_from_pairs_moves_whole_rows_of_a_matrix_and_elements_of_a_bias() -> None:
    # Two heads of four rows: pairs (0, 1), (2, 3) become halves (0, 2), (1, 3).
    order = [0, 2, 1, 3, 4, 6, 5, 7]
    matrix = np.repeat(np.arange(8, dtype=np.float32)[:, None], 3, axis=1)
    bias = np.arange(8, dtype=np.float32)
    transform = halves_from_pairs(2)

    assert transform.apply(stored(matrix)).data.view(np.float32)[:, 0].tolist() == order
    assert transform.apply(stored(bias)).data.view(np.float32)[0].tolist() == order
