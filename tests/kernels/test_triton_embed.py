"""Rows of a table, scaled."""

from __future__ import annotations

import pytest
import torch

from pagoda.ops.cuda.embed import embed
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix
from tests.kernels.gpu import DEVICE, DTYPES, Guarded, assert_near, random


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [8, 80, 2500])
@pytest.mark.parametrize("scale", [1.0, 25.298221281347036])
def test_rows_of_a_table(width: int, dtype: torch.dtype, scale: float) -> None:
    table = random(50, width, dtype=dtype)
    ids = torch.tensor([49, 0, 7, 7, 23], dtype=torch.int32, device=DEVICE)
    out = Guarded(5, width, dtype=dtype)

    embed(ids, CudaWeight(matrices=(DenseMatrix(table),)), scale, out.values)

    assert_near(out.check(), table[ids.long()].double() * scale)
    if scale == 1:
        assert torch.equal(out.values, table[ids.long()])
