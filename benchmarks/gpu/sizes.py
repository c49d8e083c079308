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
    tuned: rows of products, and matrices as (outputs, inputs, whether they are a gate's two halves).
    patience: what the stages' times are multiplied by.
    """

    models: Mapping[str, ModelShape]
    batches: tuple[int, ...]
    some_batches: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    warm_up_tokens: int
    prefills: tuple[tuple[int, int], ...]
    prefill_repeats: int
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
    tuned: tuple[tuple[int, tuple[tuple[int, int, bool], ...]], ...]
    patience: float = 1


def _models(llama: ModelShape, qwen3: ModelShape) -> dict[str, ModelShape]:
    few = {f"{shape.family}-2-layers": replace(shape, num_hidden_layers=2) for shape in (llama, qwen3)}
    return {"llama": llama, "qwen3": qwen3, **few}


# Of LLaMA-7B: gate and up, Q and K and V, down, out of attention, head.
_PRODUCTS = (
    (22_016, 4096, True),
    (12_288, 4096, False),
    (4096, 11_008, False),
    (4096, 4096, False),
    (32_000, 4096, False),
)

FULL = Sizes(
    models=_models(
        ModelShape("llama", 4096, 11008, 32, 32, 32, 128, 32000, 4096, 10000.0, False),
        ModelShape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, True),
    ),
    batches=(1, 16, 64, 256),
    some_batches=(1, 64),
    prompt_tokens=512,
    output_tokens=128,
    warm_up_tokens=8,
    prefills=((1, 2048), (64, 512)),
    prefill_repeats=3,
    max_batched_tokens=8192,
    read_bytes=4 << 30,
    copy_bytes=2 << 30,
    product=8192,
    repeats=20,
    tests=(
        "tests/kernels/test_triton_*.py",
        *(f"tests/{part}/test_cuda_*.py" for part in ("kernels", "parity", "runner", "sampling", "engine")),
    ),
    sanitized_tests=4,
    agreeing_dtypes=("float32", "bfloat16"),
    agreeing_batches=(1, 3, 17, 64),
    agreeing_prompt=200,
    agreeing_tokens=16,
    tuned=tuple((rows, _PRODUCTS) for rows in (1, 16, 64, 4)),
)
TINY = Sizes(
    models=_models(
        ModelShape("llama", 32, 48, 1, 2, 2, 16, 260, 512, 10000.0, False),
        ModelShape("qwen3", 32, 48, 1, 4, 2, 16, 260, 512, 1e6, True),
    ),
    batches=(2, 3),
    some_batches=(2,),
    prompt_tokens=6,
    output_tokens=4,
    warm_up_tokens=1,
    prefills=((1, 20),),
    prefill_repeats=1,
    max_batched_tokens=64,
    read_bytes=1 << 18,
    copy_bytes=1 << 16,
    product=64,
    repeats=1,
    tests=("tests/kernels/test_cuda_step.py",),
    sanitized_tests=1,
    agreeing_dtypes=("float32",),
    agreeing_batches=(1, 2),
    agreeing_prompt=10,
    agreeing_tokens=2,
    tuned=((1, ((16, 32, False),)),),
    patience=10,
)
