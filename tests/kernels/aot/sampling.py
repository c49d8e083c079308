"""The kernels of `pagoda.sampling.cuda`."""

from __future__ import annotations

from pagoda.planning.cuda_sampling import ALTERNATIVES, GATHERED, MAX_CHUNKS, MAX_SPLITS
from pagoda.sampling import cuda_sampler
from pagoda.sampling.cuda import choice, edits, histogram, logprobs, peaks
from tests.kernels.triton_aot import variant

_LOGITS = {"logits_ptr": "*fp32", "row_stride": "i32:16"}
_ROWS = {**_LOGITS, "vocab_size": "i32"}
_PEAKS = {"peaks_ptr": "*i64", "chunk_size": "i32:16", "MAX_CHUNKS": MAX_CHUNKS}
_HISTOGRAM = {"counts_ptr": "*i32", "weights_ptr": "*i64"}
_CUTS = {
    "temperatures_ptr": "*fp64",
    "bins_per_unit_ptr": "*fp32",
    "least_ptr": "*i64",
    "top_k_ptr": "*i32",
}
_CHANCE = {
    **_CUTS,
    **_HISTOGRAM,
    "top_p_ptr": "*fp64",
    "uniforms_ptr": "*fp64",
    "fine_counts_ptr": "*i32",
    "fine_weights_ptr": "*i64",
    "gathered_keys_ptr": "*i64",
    "gathered_sizes_ptr": "*i64",
}
_CHOICE = {
    **_ROWS,
    **_PEAKS,
    "token_ids_ptr": "*i32",
    "broken_ptr": "*i8",
    "GATHERED": GATHERED,
    "GROUP": peaks.GROUP,
    "BLOCK": peaks.GROUP * cuda_sampler.PEAK_BLOCK,
}
_FINDING = {
    **_ROWS,
    **_PEAKS,
    "groups_per_split": "i32",
    "GROUP": peaks.GROUP,
    "BLOCK": cuda_sampler.PEAK_BLOCK,
    "num_warps": 8,
}
_EDITS = {
    **_LOGITS,
    "starts_ptr": "*i32",
    "starts_stride": "i32",
    "ids_ptr": "*i32",
    "saved_ptr": "*fp32",
    "BLOCK": cuda_sampler.EDIT_BLOCK,
}
_PARTS = {
    "rows_ptr": "*i32",
    "token_ids_ptr": "*i32",
    "best_ptr": "*i64",
    "peaks_ptr": "*fp32",
    "sums_ptr": "*fp32",
    "ahead_ptr": "*i32",
    "alternatives": "i32",
    "MAX_SPLITS": MAX_SPLITS,
    "ALTERNATIVES": ALTERNATIVES,
}

# What Triton 3.6 spills, at most; 3.9 spills nothing.
_FINDING_SPILLED, _CHOICE_SPILLED = 4, 80

VARIANTS = [
    variant(edits.edit, "", **_EDITS, values_ptr="*fp32", flags_ptr="*i32"),
    variant(edits.restore, "", **_EDITS),
    variant(peaks.find_peaks, "greedy", most_spilled=_FINDING_SPILLED, **_FINDING, **dict.fromkeys(_HISTOGRAM)),
    variant(peaks.find_peaks, "random", most_spilled=_FINDING_SPILLED, **_FINDING, **_HISTOGRAM),
    variant(
        histogram.fill,
        "",
        **_ROWS,
        **_PEAKS,
        **_CUTS,
        **_HISTOGRAM,
        blocks_per_split="i32",
        BLOCK=cuda_sampler.HISTOGRAM_BLOCK,
        num_warps=8,
    ),
    variant(choice.choose, "greedy", **_CHOICE, **dict.fromkeys(_CHANCE), flags_ptr=None, num_warps=1),
    variant(
        choice.choose,
        "random, edited",
        **_CHOICE,
        **_CHANCE,
        flags_ptr="*i32",
        num_warps=8,
        most_spilled=_CHOICE_SPILLED,
    ),
    variant(
        logprobs.scan, "", **_ROWS, **_PARTS, blocks_per_split="i32", BY_ROW=True, BLOCK=logprobs.BLOCK, num_warps=8
    ),
    variant(
        logprobs.combine, "", **_LOGITS, **_PARTS, splits="i32", num_positions="i32", results_ptr="*i32", BY_ROW=False
    ),
]
