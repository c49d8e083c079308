"""The arena of the GPU's programs, worked out from a description, is the one that recording and lowering find."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pagoda.loading.hf_config import normalised_config
from pagoda.models.describe import describe_model
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.registry import family_for
from pagoda.ops.cuda.cache import allocate_cuda_kv
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.program import CudaModel, build_model
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix
from pagoda.planning.cuda_arena import CudaArena, shortened
from pagoda.planning.model_spec import ModelSpec
from tests.models.fakes import LLAMA
from tests.parity.configs import CONFIGS
from tests.planning.test_native_holding import REAL
from tests.soak import soak_count

COUNT = soak_count(300)
# Tensors without memory: only their shapes count here.
META = torch.device("meta")
LIMITS = ((512, 64), (64, 64), (8192, 256), (7, 3), (1, 1), (2, 16))
Formats = Callable[[str], str]


class FakeWeights:
    """`Weights` of a spec, without numbers. Neighbours of one format are one matrix."""

    def __init__(self, spec: ModelSpec, format_of: Formats, dtype: torch.dtype) -> None:
        self.weights = {weight.name: weight for weight in spec.weights}
        self.format_of, self.dtype = format_of, dtype

    def vector(self, name: str) -> CudaWeight:
        return CudaWeight(torch.empty(self.weights[name].shape, device=META))

    def table(self, name: str) -> CudaWeight:
        return self.linear([name])

    def head(self, name: str) -> CudaWeight:
        return self.linear([name])

    def linear(self, names: Sequence[str], biases: Sequence[str] = ()) -> CudaWeight:
        shapes = [self.weights[name].shape for name in names]
        joined: list[tuple[str, int]] = []
        for name, (rows, _) in zip(names, shapes, strict=True):
            same = joined and joined[-1][0] == self.format_of(name)
            joined = (
                [*joined[:-1], (joined[-1][0], joined[-1][1] + rows)]
                if same
                else [*joined, (self.format_of(name), rows)]
            )
        matrices = [DenseMatrix(torch.empty(rows, shapes[0][1], dtype=self.dtype, device=META)) for _, rows in joined]
        bias = torch.empty(sum(rows for rows, _ in shapes), device=META) if biases else None
        return CudaWeight(None, tuple(matrices), bias, tuple(rows for rows, _ in shapes))


def recorded(config: Mapping[str, Any], format_of: Formats, dtype: torch.dtype, limits: tuple[int, int]) -> CudaModel:
    family = family_for(config)
    spec = family.spec(config)
    model = family.build(spec, FakeWeights(spec, format_of, dtype))
    cache = allocate_cuda_kv(spec, 1, 16, META, dtype)
    max_tokens, max_seqs = limits
    return build_model(model.forward, cache, Machine.of(META, dtype), max_tokens=max_tokens, max_seqs=max_seqs)


def check_arena(
    config: Mapping[str, Any], limits: tuple[int, int], format_of: Formats, dtype: torch.dtype = torch.bfloat16
) -> None:
    def is_one(names: Sequence[str]) -> bool:
        return len({format_of(name) for name in names}) == 1

    max_batched_tokens, max_num_seqs = limits
    arena = CudaArena(family_for(config).spec(config), is_one)
    planned = arena.num_bytes(dtype.itemsize, max_batched_tokens, max_num_seqs)
    assert planned == recorded(config, format_of, dtype, limits).arena.nbytes


def one_format(name: str) -> str:
    return "dense"


def mixed(seed: int) -> Formats:
    """Matrices in two formats, as files mix them."""
    return lambda name: str(zlib.crc32(f"{seed} {name}".encode()) % 2)


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("limits", LIMITS)
def test_the_arena_of_every_tiny_family_is_the_recorded_one(name: str, limits: tuple[int, int]) -> None:
    check_arena(normalised_config(CONFIGS[name]().to_dict(), name), limits, one_format, torch.float32)


@pytest.mark.parametrize("name", REAL)
def test_the_arena_of_real_models_is_the_recorded_one(name: str) -> None:
    for limits in ((8192, 256), (16, 64)):
        check_arena(NAMED_SHAPES[name].config, limits, one_format)


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_arena_of_any_model_is_the_recorded_one(seed: int) -> None:
    rng = random.Random(seed)
    kv_heads = rng.choice((1, 2, 3))
    config = {
        "model_type": rng.choice(("llama", "qwen2", "qwen3", "gemma3_text", "gpt2")),
        "hidden_size": 8 * rng.randint(1, 20),
        "intermediate_size": 8 * rng.randint(1, 60),
        "num_hidden_layers": rng.randint(1, 5),
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * rng.randint(1, 4),
        "head_dim": rng.choice((8, 16, 24, 80)),
        "vocab_size": rng.choice((8, 64, 1000)),
        "max_position_embeddings": 128,
        "sliding_window": 16,
        "sliding_window_pattern": 2,
        "attention_bias": rng.random() < 0.5,
        "mlp_bias": rng.random() < 0.5,
        "tie_word_embeddings": rng.random() < 0.5,
    }
    if config["model_type"] == "gemma3_text":
        config["tie_word_embeddings"] = True
    if config["model_type"] == "gpt2":
        del config["head_dim"], config["num_key_value_heads"]
        config |= {"num_attention_heads": rng.choice((1, 2, 4)), "n_inner": config["intermediate_size"]}
    check_arena(config, rng.choice(LIMITS), mixed(seed), rng.choice((torch.float32, torch.bfloat16)))


@pytest.mark.parametrize("inner", [330, 400, 470])
def test_a_gate_in_another_format_than_up_goes_through_memory(inner: int) -> None:
    """Of these sizes its tensor is what makes the arena of few rows the largest."""
    config = {**LLAMA, "hidden_size": 320, "intermediate_size": inner}
    for format_of in (one_format, lambda name: name):
        check_arena(config, (1, 1), format_of)


@pytest.mark.parametrize("name", sorted(NAMED_SHAPES))
def test_layers_that_repeat_can_be_left_out(name: str) -> None:
    spec = describe_model(name).spec
    short = shortened(spec)
    # Those that begin with other layers have no period.
    assert short.num_layers < spec.num_layers or name == "deepseek-v3"
    for element_bytes, (tokens, seqs) in itertools.product((2, 4), LIMITS[:4]):
        whole = CudaArena(spec, lambda names: True).num_bytes(element_bytes, tokens, seqs)
        assert CudaArena(short, lambda names: True).num_bytes(element_bytes, tokens, seqs) == whole
