"""The native module: kernels for the CPU and the program that runs them. Built from `csrc/` by the ordinary install.

Nothing here checks a user's input: callers hand over what the layers above have checked. Shapes, dtypes and contiguity of
arrays are checked all the same, and a wrong one raises TypeError or ValueError; indices are bounds-checked where a wrong one
could touch memory outside of a buffer (token ids, slots, block ids, rows), and raise IndexError before anything is run.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Uint8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
Form = Literal["f32", "bf16", "q8"]

def instruction_sets() -> list[str]:
    """Those built in that this machine can execute, best first: of "avx512" (with VNNI and BF16), "avx2", "portable"."""

def input_form(format: str) -> Form:
    """What a product with weights of that format (F32, …, Q6_K) multiplies them with."""

def form_bytes(form: Form, width: int, rows: int) -> int:
    """Bytes that so many rows of a tensor take in the arena, a multiple of 64."""

def packed_bytes(format: str, out_features: int, in_features: int) -> int:
    """Bytes of a packed matrix, without a bias."""

class Threads:
    """A pool of worker threads, of which the caller of any work is one, and the kernels they use.

    Workers spin for at most 50 µs after their last work and then sleep. One work at a time; a second caller waits.
    """

    def __init__(self, count: int, instruction_set: str) -> None:
        """Raises ValueError for an instruction set that is not among `instruction_sets()`, or a count below 1."""
    @property
    def count(self) -> int: ...
    @property
    def instruction_set(self) -> str: ...
    def close(self) -> None:
        """End the workers. Nothing may be called after it."""

class Matrix:
    """A matrix [out_features, in_features] packed into tiles (csrc/format.h), of segments stacked along their outputs."""

    def __init__(
        self,
        threads: Threads,
        in_features: int,
        segments: Sequence[tuple[str, Uint8]],
        bias: Float32 | None = None,
    ) -> None:
        """segments: (format, stored rows uint8 [out_i, bytes of a row]), C-contiguous. Packs in parallel, without the GIL."""
    @property
    def in_features(self) -> int: ...
    @property
    def out_features(self) -> int: ...
    @property
    def num_bytes(self) -> int:
        """Held in memory, the bias included."""
    @property
    def input_forms(self) -> list[Form]:
        """The forms its input must have: one or two, of mixed segments."""
    def unpack(self, row: int) -> Float32:
        """One output's weights, [in_features]: what the embedding of that token would be."""

class KVCache:
    """The paged K and V of every layer, zeroed. Layout: csrc/kv_format.h."""

    def __init__(
        self, layers: Sequence[tuple[int, int]], num_blocks: int, block_size: int, format: str = "bf16"
    ) -> None:
        """layers: (kv_heads, head_dim) of each; block_size a multiple of 16. format: "bf16", with any even head_dim, or
        "int8" (codes within ±127 with an fp16 scale for each token and K/V head, of K and of V), with multiples of 4 up to
        512. Raises ValueError, and MemoryError for more bytes than there are, or than 64 bits can count."""
    @property
    def format(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    def keys(self, layer: int, block: int) -> Float32:
        """[block_size, kv_heads, head_dim], for tests: what the format stands for."""
    def values(self, layer: int, block: int) -> Float32: ...

class Program:
    """Commands over tensors in one arena, recorded once and run every step.

    Tensors are numbered as they are declared. A command reads its inputs in the form it needs (f32 unless said otherwise)
    and writes every form that its output was declared with. `rows` of the step: T tokens, or R rows of logits.

    A program is for one caller at a time: to run it, or to record more, while another thread runs it raises RuntimeError
    and leaves that step alone.
    """

    def __init__(
        self, threads: Threads, cache: KVCache, max_tokens: int, max_seqs: int, max_logit_rows: int, arena_bytes: int
    ) -> None:
        """max_logit_rows: how many rows of logits one slice has."""
    def tensor(self, width: int, f32: int = -1, bf16: int = -1, q8: int = -1) -> int:
        """Declare a tensor of up to max_tokens rows whose forms lie at these byte offsets of the arena (multiples of 64),
        -1: not there. Raises ValueError where one does not fit the arena."""
    def rope(self, inverse_frequencies: Float32) -> int:
        """Declare a RoPE; its cosines and sines of the step's positions are worked out first, once a step."""
    def embed(self, out: int, table: Matrix, scale: float) -> None: ...
    def embed_positions(self, out: int, table: Matrix) -> None: ...
    def add(self, out: int, x: int, y: int) -> None: ...
    def convert(self, out: int, x: int) -> None:
        """The same numbers in the forms of `out`, from x in f32."""
    def rms_norm(self, out: int, x: int, gain: Float32, eps: float, y: int = -1, total: int = -1) -> None:
        """With y: the norm of x + y, which is written to `total` (f32)."""
    def layer_norm(
        self, out: int, x: int, gain: Float32, bias: Float32, eps: float, y: int = -1, total: int = -1
    ) -> None: ...
    def linear(self, out: int, x: int, weight: Matrix) -> None:
        """x in every form of weight.input_forms; out in f32 only."""
    def gated_linear(self, out: int, x: int, weight: Matrix, activation: str) -> None:
        """activation(first half of the outputs) × second half; each half is one segment of `weight` and, where `out` has
        q8, a multiple of 32 wide."""
    def gated_activation(self, out: int, x: int, activation: str) -> None: ...
    def activation(self, out: int, x: int, activation: str) -> None: ...
    def rope_and_store_kv(
        self,
        q: int,
        qkv: int,
        layer: int,
        num_heads: int,
        rope: int = -1,
        q_norm: Float32 | None = None,
        k_norm: Float32 | None = None,
        eps: float = 0.0,
    ) -> None: ...
    def paged_attention(self, out: int, q: int, layer: int, num_heads: int, scale: float, window: int = 0) -> None:
        """window 0: none. `out` may have q8 only where head_dim is a multiple of 32."""
    def select_rows(self, out: int, x: int) -> None:
        """The rows that get logits, in the forms of both; `out` then has R rows."""
    def logits_linear(self, x: int, head: Matrix) -> None:
        """The last command: x [R, in] times head, in slices of max_logit_rows rows."""
    def run(
        self,
        input_ids: Int64,
        positions: Int64,
        slot_mapping: Int64,
        query_start_loc: Int32,
        seq_lens: Int32,
        block_table: Int32,
        logit_rows: Int64,
        new_blocks: Int64,
    ) -> Float32:
        """One step, without the GIL (the arrays of `runner.batch.Batch`): zeroes the new blocks, runs the commands, and
        returns the logits of the first min(R, max_logit_rows) rows: float32 [rows, vocab], a view that the next call
        overwrites. R may be 0."""
    def logits(self, first: int) -> Float32:
        """The slice of logits that begins at row `first` of the step that was run last, the same view."""
    def read(self, tensor: int, rows: int, form: Form = "f32") -> Float32:
        """A tensor's first rows as float32 [rows, width], for tests: what its form stands for."""

def choose(
    threads: Threads,
    logits: Float32,
    vocab_size: int,
    random_rows: Int64,
    temperature: Float64,
    top_k: Int64,
    top_p: Float64,
    min_p: Float64,
    uniforms: Float64,
) -> tuple[Int64, Bool]:
    """A token for each row of logits [R, ≥ vocab_size] as `sampling.torch_sampler` says (from its point 3 on): token ids
    [R], and which rows are broken [R] (a NaN or +inf, or nothing but −inf). random_rows [K] and what follows: of those.
    Raises ValueError for a vocab_size of 2**22 or more, whose weights might not have a sum in 64 bits."""

def logprobs(
    threads: Threads, logits: Float32, vocab_size: int, rows: Int64, token_ids: Int64, alternatives: int
) -> tuple[Int64, Float32, Int64]:
    """Of the tokens `token_ids` [N] under rows `rows` [N], then of the most likely: (ids, log-probabilities, ranks), each
    [N, 1 + min(alternatives, vocab_size)]. Raises ValueError for a vocab_size of 2**22 or more."""

def read_bandwidth(threads: Threads, num_bytes: int) -> float:
    """Bytes a second that all threads read together from a buffer of that size, best of several patterns."""

def peak_operations(threads: Threads, kind: Literal["int8", "bf16", "fp32"]) -> float:
    """Operations a second of all threads on registers: products and additions count as two."""

def format_ceiling(threads: Threads, format: str) -> float:
    """Operations a second of that format's own product, its weights and inputs in the nearest cache."""
