"""What is measured, and how large: on a GPU, and for trying the same on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder as LLaMA is, with norms of q and k where `family` is qwen3. Sizes are named as in its config.json."""

    family: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    tie_word_embeddings: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """models: by the names of their folders. batches: sequences at once, of decode; some_batches: those of variants.
    prompt_tokens, output_tokens: of a decode load, whose contexts are in the middle prompt + output / 2 long.
    prefills: (prompts, tokens of each). read_bytes, copy_bytes, product: of the ceilings' measurements.
    tests: patterns of test files. sanitized_tests: how many tests of a file the sanitizer looks at.
    agreeing_…: of the comparison with the reference; prompts have up to agreeing_prompt tokens, answers agreeing_tokens.
    """

    models: Mapping[str, ModelShape]
    batches: tuple[int, ...]
    some_batches: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    prefills: tuple[tuple[int, int], ...]
    max_batched_tokens: int
    read_bytes: int
    copy_bytes: int
    product: int
    repeats: int
    tests: tuple[str, ...]
    sanitized_tests: int
    agreeing_dtypes: tuple[str, ...]
    agreeing_batches: tuple[int, ...]
    agreeing_prompt: int
    agreeing_tokens: int


def _models(llama: ModelShape, qwen3: ModelShape) -> dict[str, ModelShape]:
    few = {f"{shape.family}-2-layers": replace(shape, num_hidden_layers=2) for shape in (llama, qwen3)}
    return {"llama": llama, "qwen3": qwen3, **few}


FULL = Sizes(
    models=_models(
        ModelShape("llama", 4096, 11008, 32, 32, 32, 128, 32000, 4096, 10000.0, False),
        ModelShape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, True),
    ),
    batches=(1, 16, 64, 256),
    some_batches=(1, 64),
    prompt_tokens=512,
    output_tokens=128,
    prefills=((1, 2048), (64, 512)),
    max_batched_tokens=8192,
    read_bytes=4 << 30,
    copy_bytes=2 << 30,
    product=8192,
    repeats=20,
    tests=("tests/kernels/test_triton_*.py", "tests/sampling/test_*cuda*.py", "tests/parity/test_cuda*.py"),
    sanitized_tests=4,
    agreeing_dtypes=("float32", "bfloat16"),
    agreeing_batches=(1, 3, 17, 64),
    agreeing_prompt=200,
    agreeing_tokens=16,
)
TINY = Sizes(
    models=_models(
        ModelShape("llama", 64, 96, 2, 4, 4, 16, 320, 256, 10000.0, False),
        ModelShape("qwen3", 32, 48, 2, 4, 2, 16, 512, 256, 1e6, True),
    ),
    batches=(1, 3),
    some_batches=(2,),
    prompt_tokens=12,
    output_tokens=6,
    prefills=((1, 24), (2, 12)),
    max_batched_tokens=64,
    read_bytes=1 << 19,
    copy_bytes=1 << 16,
    product=64,
    repeats=2,
    tests=("tests/kernels/test_triton_products_epilogue.py",),
    sanitized_tests=1,
    agreeing_dtypes=("float32",),
    agreeing_batches=(1, 3),
    agreeing_prompt=20,
    agreeing_tokens=4,
)
