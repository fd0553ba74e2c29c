"""The memory that stands in for a device's: storages on the CPU that are marked as the device's.

A mark is on the storage, so views, detached tensors and what autograd saves have it, too. It lasts as long as the
storage does. Pinned memory is the CPU's, and the device reaches it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, UntypedStorage

#: Storages that are marked between two looks for those that are gone.
_LOOK_AFTER = 4096


class DeviceMemory:
    """The marked storages."""

    def __init__(self) -> None:
        self._marks: dict[int, Any] = {}  # a storage's identity -> a weak reference, which keeps the identity taken
        self._pinned: set[int] = set()  # those of marked storages that are the CPU's
        self._until_look = _LOOK_AFTER

    def mark(self, tensor: Tensor) -> None:
        """The storage of ``tensor`` is the device's from now on. A tensor without one stays as it is."""
        storage = _storage(tensor)
        if storage is None:
            return
        self._pinned.discard(storage._cdata)
        if storage._cdata not in self._marks:
            self._marks[storage._cdata] = storage._weak_ref()
            self._until_look -= 1
            if self._until_look <= 0:
                self._forget_ended()

    def pin(self, tensor: Tensor) -> None:
        """The storage of ``tensor`` is memory of the CPU that the device reaches from now on."""
        self.mark(tensor)
        if (storage := _storage(tensor)) is not None:
            self._pinned.add(storage._cdata)

    def unmark(self, tensor: Tensor) -> None:
        """The storage of ``tensor`` is the CPU's from now on."""
        storage = _storage(tensor)
        if storage is not None and (reference := self._marks.pop(storage._cdata, None)) is not None:
            self._pinned.discard(storage._cdata)
            UntypedStorage._free_weak_ref(reference)

    def has(self, tensor: Tensor) -> bool:
        """True if the storage of ``tensor`` is the device's."""
        storage = _storage(tensor)
        return storage is not None and storage._cdata in self._marks and storage._cdata not in self._pinned

    def is_pinned(self, tensor: Tensor) -> bool:
        """True if the storage of ``tensor`` is memory of the CPU that the device reaches."""
        storage = _storage(tensor)
        return storage is not None and storage._cdata in self._pinned

    def reaches(self, tensor: Tensor) -> bool:
        """True if a kernel may access the storage of ``tensor``. What has no storage is not looked at."""
        storage = _storage(tensor)
        return storage is None or not storage.nbytes() or storage._cdata in self._marks

    def span(self, address: int) -> tuple[int, int] | None:
        """Returns the first address and the bytes of the marked storage that holds ``address``; None if none does."""
        storage = self._storage_of(address)
        return None if storage is None else (storage.data_ptr(), storage.nbytes())

    def tensor_at(self, address: int, dtype: torch.dtype) -> Tensor | None:
        """Returns a tensor of ``dtype`` from ``address`` to the end of the marked storage that holds it; None if none
        does."""
        storage = self._storage_of(address)
        if storage is None:
            return None
        bytes_of_all = torch.empty(0, dtype=torch.uint8).set_(storage)
        rest = bytes_of_all[address - storage.data_ptr() :]
        whole: Tensor = rest[: len(rest) // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole

    def _storage_of(self, address: int) -> UntypedStorage | None:
        for reference in list(self._marks.values()):
            storage = UntypedStorage._new_with_weak_ptr(reference)
            if storage is not None and storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
                return storage
        return None

    def _forget_ended(self) -> None:
        ended = [key for key, reference in self._marks.items() if UntypedStorage._expired(reference)]
        for key in ended:
            self._pinned.discard(key)
            UntypedStorage._free_weak_ref(self._marks.pop(key))
        self._until_look = max(_LOOK_AFTER, len(self._marks))


def _storage(tensor: Tensor) -> UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse, or a tensor that wraps others
        return None
