"""The GPU of this process: the error that a kernel left it with, and its memory, which several processes share.

PyTorch keeps the memory that it once took. After a case with strides past 2**31 elements a worker would keep tens of
gigabytes, and the others would find none. Imports no torch.
"""

from __future__ import annotations

import gc
import sys

from conformance.exception_text import text_of, words_of
from conformance.records import Reason, ReasonCode


def device_fault() -> str | None:
    """The error that the GPU of this process is left with, or None. Such an error is sticky: every later call returns
    it, so that the next, innocent case would be blamed. Asks only a process that has started CUDA (or HIP)."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    try:
        cuda.synchronize()
    except Exception as error:  # whatever a broken context raises
        return text_of(error)
    return None


#: Bytes from which a case waits for others that need as much: sixteen workers with less fit on a small device.
MUCH = 1 << 30
#: The part of a device's memory that one case may need: the rest is for what the other workers keep there.
SHARE = 0.75
#: Bytes that a process keeps from one case to the next. Taking memory again for each case would cost more.
KEPT = 256 << 20


def shortage(size: int) -> Reason | None:
    """The reason why a case that needs ``size`` bytes is not run on this process's device; None if there may be room.

    Counts the whole memory of the device, not what is free: other processes must not decide which cases run. A case
    that needs less than MUCH has room on every device, and to ask one that is busy takes long.
    """
    if size < MUCH:
        return None
    import torch

    _, total = torch.cuda.mem_get_info()
    if size <= SHARE * total:
        return None
    gib = f"{size / 2**30:.1f} GiB of device memory are needed, {SHARE:.0%} of {total / 2**30:.1f} GiB are offered"
    return Reason(ReasonCode.NO_DEVICE, "memory", gib)


#: How Triton, the libraries and PyTorch's allocator of host memory say that memory is short.
_OUT_OF_MEMORY = ("[CUDA]: out of memory", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")


def ran_out(error: BaseException) -> bool:
    """True if ``error`` says that memory is short. PyTorch's goes by its class's name, so that torch need not be
    imported; Triton and the libraries say so in the message alone."""
    if any(cls.__name__ in ("OutOfMemoryError", "MemoryError") for cls in type(error).__mro__):
        return True
    text = words_of(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)


def give_back(limit: int = 0) -> None:
    """Frees the device memory that this process holds without using it, if it holds more than ``limit`` bytes."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    if cuda.memory_reserved() > limit:
        cuda.empty_cache()
    if cuda.memory_reserved() > limit:
        gc.collect()  # what a cycle of references keeps is in use until then
        cuda.empty_cache()
