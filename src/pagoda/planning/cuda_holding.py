"""How the GPU's path holds a model: matrices dense in the activations' format or packed, vectors in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from pagoda.planning.cuda_arena import CudaArena
from pagoda.planning.cuda_formats import packed_format
from pagoda.planning.cuda_sampling import sampler_bytes
from pagoda.planning.cuda_step import WORD, step_bytes
from pagoda.planning.cuda_workspace import NUM_COUNTERS, SCRATCH_FLOATS, SPARE_BLOCKS, logit_slice_rows
from pagoda.planning.formats import DENSE_FORMATS, FP8_BLOCK, element_bytes, weight_format
from pagoda.planning.holding import FormatOf, HeldFormat, Holding, Workspace, format_name, weight_bytes
from pagoda.planning.kv_format import KV_FORMATS, KVHeld
from pagoda.planning.memory import kv_block_bytes, num_blocks_for
from pagoda.planning.model_spec import ModelSpec, WeightSpec

# What is not allocated by name: the code of kernels, CUDA graphs, the workspaces of NVIDIA's libraries.
RESERVE_BYTES = 512 << 20
# torch takes memory from the driver in pieces of so much; what a matrix leaves of its last one serves nobody.
PIECE_BYTES = 2 << 20
MATRICES_OF_A_LAYER = 4
MATRICES_OUTSIDE = 2
# Of a matrix that is packed, a slice at a time.
LOADING_BYTES = 512 << 20

# Of K and V, by the names of `kv_cache_dtype` and `dtype`.
CUDA_KV_FORMATS = {
    "float32": KV_FORMATS["fp32"],
    "bfloat16": KV_FORMATS["bf16"],
    "float16": KV_FORMATS["fp16"],
    "fp8": KV_FORMATS["fp8"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSettings:
    """quantization: None or one of `CUDA_QUANTIZATIONS`, for what is stored dense. dtype: of activations ("bfloat16", …).
    kv_dtype: one of `CUDA_KV_FORMATS`. block_size: tokens of a KV block.
    """

    quantization: str | None
    dtype: str
    kv_dtype: str
    block_size: int


def cuda_holding(spec: ModelSpec, stored: FormatOf, settings: CudaSettings) -> Holding:
    """stored: the formats of the files (one for all, or by each weight's canonical name)."""
    return replace(_holding(spec, stored, settings), alternatives=_alternatives(spec, stored, settings))


def _holding(spec: ModelSpec, stored: FormatOf, settings: CudaSettings) -> Holding:
    held = cuda_format(stored, settings.quantization, settings.dtype)
    weights = {weight.name: weight for weight in spec.weights}

    def is_one(names: Sequence[str]) -> bool:
        formats = {format_name(held, weights[name]) for name in names}
        # Blocks of fp8 begin with a matrix's first row, so only whole ones can be followed by another matrix.
        is_cut = "fp8_block" in formats and any(weights[name].shape[0] % FP8_BLOCK for name in names[:-1])
        return len(formats) == 1 and not is_cut

    arena = cache(partial(CudaArena(spec, is_one).num_bytes, element_bytes(settings.dtype)))
    kv_held = CUDA_KV_FORMATS[settings.kv_dtype]
    return Holding(
        spec,
        held,
        weight_bytes(spec, held),
        kv_held,
        cuda_workspace(spec, arena, kv_held, settings.block_size),
        loading_bytes=LOADING_BYTES,
        loading_note="what packing the largest of them takes",
    )


def cuda_workspace(spec: ModelSpec, arena: Callable[[int, int], int], kv_held: KVHeld, block_size: int) -> Workspace:
    """arena: its bytes for so many tokens and requests of a step. block_size: tokens of a KV block."""
    fixed = WORD * (SCRATCH_FLOATS + NUM_COUNTERS) + SPARE_BLOCKS * kv_block_bytes(spec, block_size, kv_held)
    lost = PIECE_BYTES * (MATRICES_OF_A_LAYER * spec.num_layers + MATRICES_OUTSIDE)

    def workspace(*, max_batched_tokens: int, max_num_seqs: int, max_model_len: int) -> int:
        blocks = max_num_seqs * num_blocks_for(max_model_len, block_size)
        arrays = step_bytes(blocks, block_size, max_model_len, max_batched_tokens, max_num_seqs)
        choosing = sampler_bytes(logit_slice_rows(max_batched_tokens, max_num_seqs), spec.vocab_size)
        return arena(max_batched_tokens, max_num_seqs) + fixed + arrays + choosing + lost + RESERVE_BYTES

    return workspace


def cuda_format(stored: FormatOf, quantization: str | None, dtype: str) -> Callable[[WeightSpec], str | HeldFormat]:
    """The format each weight is held in, given those of the files."""

    def held(weight: WeightSpec) -> str | HeldFormat:
        if len(weight.shape) == 1:  # a gain, or a bias
            return "F32"
        is_quantized = weight.part not in ("embedding", "head")
        packed = packed_format(format_name(stored, weight), weight.shape[-1], quantization if is_quantized else None)
        return DENSE_FORMATS[dtype] if packed is None else packed

    return held


def _alternatives(spec: ModelSpec, stored: FormatOf, settings: CudaSettings) -> tuple[tuple[str, str, Holding], ...]:
    """Those that cost the text least come first. fp8 weights take what int8 takes, and are less exact."""
    dense = any(
        len(weight.shape) >= 2 and weight_format(format_name(stored, weight)).block_elements == 1
        for weight in spec.weights
    )
    tried = []
    if settings.dtype == "float32":
        kv_dtype = "bfloat16" if settings.kv_dtype == "float32" else settings.kv_dtype
        tried.append(("dtype", "bfloat16", replace(settings, dtype="bfloat16", kv_dtype=kv_dtype)))
    if settings.quantization is None and dense:
        tried.append(("quantization", "int8", replace(settings, quantization="int8")))
    if settings.kv_dtype != "fp8":
        tried.append(("kv_cache_dtype", "fp8", replace(settings, kv_dtype="fp8")))
    if settings.quantization is None and dense:
        tried.append(("quantization", "int4", replace(settings, quantization="int4")))
    return tuple((field, value, _holding(spec, stored, changed)) for field, value, changed in tried)
