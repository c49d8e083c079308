"""The random-weight model: numbers of a sane size in every format, and tensors that are all there."""

from __future__ import annotations

import make_model
import numpy as np
import pytest

from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.planning.formats import tensor_bytes
from pagoda.quantization import dequantize


@pytest.mark.parametrize("name", sorted(make_model.FORMATS))
def test_weights_are_symmetric_and_of_a_sane_size(name: str) -> None:
    shape = (64, 512)
    stored = make_model.FORMATS[name][0](np.random.default_rng(1), shape)
    assert stored.nbytes == tensor_bytes(shape, name.upper())
    values = dequantize(StoredTensor(TensorInfo("w", shape, name.upper(), stored.nbytes), stored))
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.001
    assert 0.018 < values.std() < 0.022
    assert np.abs(values).max() < 0.1


def test_tensors() -> None:
    plan = list(make_model.tensors(24))
    assert sum(int(np.prod(shape)) for _, _, shape in plan) == 1_711_376_384
    assert len({name for name, _, _ in plan}) == len({name for _, name, _ in plan}) == len(plan)
