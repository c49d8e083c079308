"""Counts what torch allocates."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class NewStorages(TorchDispatchMode):
    """`with`: made has each operation that took new memory of more than `limit` bytes for its result, and how much."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.made: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {each.untyped_storage().data_ptr() for each in _tensors((args, kwargs))}
        for each in _tensors(result):
            storage = each.untyped_storage()
            if storage.data_ptr() not in given and storage.nbytes() > self.limit:
                self.made.append((str(func), storage.nbytes()))
        return result


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
