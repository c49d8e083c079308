"""How a stored tensor differs from the weight the model wants, and how to undo that, on the stored bytes where possible.

numpy is imported where a weight is read: planning asks for names and shapes only, and has no time for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pagoda.errors import UnsupportedModelError
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.planning.formats import weight_format

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transform:
    """stored_shape: from the shape the model wants to the one in the file. apply: from the stored tensor to the wanted one."""

    stored_shape: Callable[[Shape], Shape]
    apply: Callable[[StoredTensor], StoredTensor]


def _same(shape: Shape) -> Shape:
    return shape


def _transposed(stored: StoredTensor) -> StoredTensor:
    import numpy as np

    size = _element_bytes(stored)
    num_rows, num_columns = stored.info.shape
    elements = np.ascontiguousarray(stored.data).view(f"u{size}").reshape(num_rows, num_columns)
    info = replace(stored.info, shape=(num_columns, num_rows))
    return StoredTensor(info, np.ascontiguousarray(elements.T).view(np.uint8))


def _plus_one(stored: StoredTensor) -> StoredTensor:
    import numpy as np

    from pagoda.quantization import dequantize

    values = np.asarray(dequantize(stored), dtype=np.float32).reshape(1, -1) + np.float32(1)
    info = TensorInfo(stored.info.name, stored.info.shape, "F32", values.nbytes)
    return StoredTensor(info, values.view(np.uint8))


def halves_from_pairs(num_heads: int) -> Transform:
    """Undo llama.cpp's reordering of Q and K for interleaved RoPE: in each head, rows 0, 2, 4, … then 1, 3, 5, …

    Rows move whole, so a quantized tensor stays exactly what it was.
    """

    def apply(stored: StoredTensor) -> StoredTensor:
        import numpy as np

        # A bias is one row; its elements move instead.
        row_bytes = stored.data.shape[1] if len(stored.info.shape) > 1 else _element_bytes(stored)
        rows = np.ascontiguousarray(stored.data).reshape(num_heads, -1, 2, row_bytes)
        return replace(stored, data=np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(stored.data.shape))

    return Transform(_same, apply)


def _element_bytes(stored: StoredTensor) -> int:
    kind = weight_format(stored.info.format)
    if kind.block_elements != 1 or stored.scale is not None:
        raise UnsupportedModelError(f"weight format of {stored.info.name}", kind.name, ("F32", "F16", "BF16"))
    return kind.block_bytes


AS_STORED = Transform(_same, lambda stored: stored)
# Conv1D of Hugging Face's GPT-2 stores [in, out].
TRANSPOSED = Transform(lambda shape: shape[::-1], _transposed)
# Gemma's files store a norm's gain minus one.
PLUS_ONE = Transform(_same, _plus_one)
