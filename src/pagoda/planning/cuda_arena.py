"""The arena of the GPU's programs, worked out from the description alone: the tensors of `ops.cuda.program`, with the same
lives, placed by the same function.

Each program is what recording gives (`_Recording`), with what lowering joins (`ops.cuda.lowering`) left out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pagoda.planning.arena import Buffer, place
from pagoda.planning.cuda_workspace import few_rows, logit_slice_rows, most_sums
from pagoda.planning.model_spec import LayerSpec, ModelSpec, RopeSpec

FLOAT32 = 4

# Whether the kernels see the stacked matrices of these canonical names as one: all are held in one format.
IsOne = Callable[[Sequence[str]], bool]


@dataclass(frozen=True, slots=True, eq=False)
class _Tensor:
    """See `ops.cuda.symbols.Symbol`."""

    width: int
    of_logits: bool = False
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class _Command:
    reads: tuple[_Tensor, ...]
    writes: tuple[_Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Normed:
    """A norm's output; its sums of squares where a product prepared it and the norm is still to be finished."""

    tensor: _Tensor
    sums: _Tensor | None = None

    @property
    def read(self) -> tuple[_Tensor, ...]:
        return (self.tensor,) if self.sums is None else (self.tensor, self.sums)


class CudaArena:
    """The arena that a model's three programs share."""

    def __init__(self, spec: ModelSpec, is_one: IsOne) -> None:
        self._mixed = _Recording(spec, is_one)
        self._decode = _Recording(spec, is_one, for_decode=True)
        self._few = _Recording(spec, is_one, for_decode=True, joins_residuals=True)

    def num_bytes(self, element_bytes: int, max_batched_tokens: int, max_num_seqs: int) -> int:
        """element_bytes: of activations."""
        rows = logit_slice_rows(max_batched_tokens, max_num_seqs)
        programs = (
            (self._mixed, max_batched_tokens),
            (self._decode, min(max_batched_tokens, max_num_seqs)),
            (self._few, few_rows(max_batched_tokens, max_num_seqs)),
        )
        return max(recording.arena_bytes(most, min(rows, most), element_bytes) for recording, most in programs)


@lru_cache(maxsize=1 << 12)
def uniform_arena_bytes(spec: ModelSpec, element_bytes: int, max_batched_tokens: int, max_num_seqs: int) -> int:
    """Of a model whose stacked matrices are each of one format. Planning asks for the same one many times over."""
    return _uniform_arena(spec).num_bytes(element_bytes, max_batched_tokens, max_num_seqs)


@lru_cache(maxsize=16)
def _uniform_arena(spec: ModelSpec) -> CudaArena:
    return CudaArena(shortened(spec), lambda names: True)


def shortened(spec: ModelSpec) -> ModelSpec:
    """The same with fewer layers where they repeat, but the same arena: layers far from each other share all their memory.

    Of layers with a period three periods are kept, and what is left over at the end.
    """
    layers = spec.layers
    period = next(length for length in range(1, len(layers) + 1) if layers[length:] == layers[:-length])
    return replace(spec, layers=layers[: 3 * period + len(layers) % period])


class _Recording:
    """The commands of one program.

    for_decode: attention is one command with RoPE and the writing of K and V, and a gate one with its product.
    joins_residuals: a product, the addition to the residual stream and an RMS norm are one command.
    """

    def __init__(
        self, spec: ModelSpec, is_one: IsOne, *, for_decode: bool = False, joins_residuals: bool = False
    ) -> None:
        self._is_one, self._for_decode, self._joins = is_one, for_decode, joins_residuals
        self._hidden = spec.hidden_size
        self._names = {weight.name for weight in spec.weights}
        self._commands: list[_Command] = []
        self._angles: dict[RopeSpec, tuple[_Tensor, _Tensor]] = {}
        stream = self._command((), self._of_hidden())
        if spec.learned_positions:
            positions = self._command((), self._of_hidden())
            stream = self._command((stream, positions), self._of_hidden())
        normed = _Normed(self._command((stream,), self._of_hidden()))
        for index, layer in enumerate(spec.layers):
            stream, normed = self._layer(f"layers.{index}", layer, stream, normed)
        self._lives = self._found_lives(self._head(spec.vocab_size, normed))

    def arena_bytes(self, max_tokens: int, max_logit_rows: int, element_bytes: int) -> int:
        def size(tensor: _Tensor) -> int:
            rows = max_logit_rows if tensor.of_logits else max_tokens
            return rows * tensor.width * (FLOAT32 if tensor.is_wide else element_bytes)

        return place([Buffer(size(tensor), first, last) for tensor, first, last in self._lives])[1]

    def _found_lives(self, logits: _Tensor) -> list[tuple[_Tensor, int, int]]:
        """Each tensor with the first and the last command that needs it."""
        first: dict[_Tensor, int] = {}
        last: dict[_Tensor, int] = {}
        for index, command in enumerate(self._commands):
            for tensor in (*command.writes, *command.reads):
                first.setdefault(tensor, index)
                last[tensor] = index
        end = len(self._commands)
        last[logits] = end
        begin_of_end = next(
            index for index, command in enumerate(self._commands) if any(each.of_logits for each in command.writes)
        )
        for command in self._commands[begin_of_end:]:  # what a later slice of the logits reads once more
            last.update({tensor: end for tensor in command.reads if not tensor.of_logits})
        return [(tensor, born, last[tensor]) for tensor, born in first.items()]

    def _layer(self, name: str, layer: LayerSpec, stream: _Tensor, normed: _Normed) -> tuple[_Tensor, _Normed]:
        attention, inner = layer.attention, layer.feed_forward.active_size
        q_size = attention.num_heads * attention.head_dim
        qkv = self._command(normed.read, _Tensor(attention.projected_size))
        turned = (qkv, *self._turned_by(attention.rope))
        if self._for_decode:
            attended = self._command(turned, _Tensor(q_size))
        else:
            q = self._command(turned, _Tensor(q_size))
            attended = self._command((q,), _Tensor(q_size))
        stream, normed = self._added(attended, f"{name}.post_attention_norm", stream)
        if self._for_decode and layer.feed_forward.gated and self._is_one((f"{name}.gate", f"{name}.up")):
            fed = self._command(normed.read, _Tensor(inner))
        else:
            wide = self._command(normed.read, _Tensor(2 * inner if layer.feed_forward.gated else inner))
            fed = self._command((wide,), _Tensor(inner))
        return self._added(fed, f"{name}.post_feed_forward_norm", stream)

    def _added(self, x: _Tensor, post_norm: str, stream: _Tensor) -> tuple[_Tensor, _Normed]:
        """The product of x added to the stream, and the norm of the sum."""
        total, out = self._of_hidden(), self._of_hidden()
        has_post_norm, is_rms = post_norm in self._names, "norm_bias" not in self._names
        if self._joins and is_rms and not has_post_norm:
            sums = _Tensor(most_sums(self._hidden), is_wide=True)
            self._commands.append(_Command((x, stream), (total, out, sums)))
            return total, _Normed(out, sums)
        added = self._command((x,), self._of_hidden())
        if has_post_norm:
            added = self._command((added,), self._of_hidden())
        self._commands.append(_Command((stream, added), (total, out)))
        return total, _Normed(out)

    def _head(self, vocab_size: int, normed: _Normed) -> _Tensor:
        chosen = [
            self._command((each,), _Tensor(each.width, of_logits=True, is_wide=each.is_wide)) for each in normed.read
        ]
        return self._command(tuple(chosen), _Tensor(vocab_size, of_logits=True, is_wide=True))

    def _turned_by(self, rope: RopeSpec | None) -> tuple[_Tensor, ...]:
        """Cosines and sines, made by the first layer that needs them."""
        if rope is None:
            return ()
        if rope not in self._angles:
            pair = _Tensor(rope.dim // 2, is_wide=True), _Tensor(rope.dim // 2, is_wide=True)
            self._commands.append(_Command((), pair))
            self._angles[rope] = pair
        return self._angles[rope]

    def _of_hidden(self) -> _Tensor:
        return _Tensor(self._hidden)

    def _command(self, reads: tuple[_Tensor, ...], written: _Tensor) -> _Tensor:
        self._commands.append(_Command(reads, (written,)))
        return written
