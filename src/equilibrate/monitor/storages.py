"""The most memory that tensors on a CPU took: their storages counted as they come and go.

The process's own size says little there, for its allocator keeps what was freed. What an operation
takes for itself while it runs is not seen; a GPU's peak (`torch.cuda.max_memory_allocated`) has it.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operations under it return, while they live.

    Example:
        >>> import torch
        >>> with Storages() as counted:
        ...     _ = torch.zeros(2) + torch.ones(2)  # three tensors of eight bytes
        >>> counted.most
        24
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._counted: set[int] = set()

    def __torch_dispatch__(
        self, operation: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, and count what it returns."""
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._counted:
            return
        self._counted.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self.now -= size
