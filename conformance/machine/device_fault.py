"""The error with which a kernel has left the GPU of this process. Imports no torch."""

from __future__ import annotations

import sys


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
        return f"{type(error).__name__}: {error}"
    return None
