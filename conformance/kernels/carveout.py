"""The number of SMs that persistent kernels leave to others: torch's own global, read and set in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from conformance.kernels.kernel import Plan


def current() -> int:
    """SMs to leave free: torch's SM carveout, 0 when it is unset or this torch has none."""
    getter = getattr(torch._C, "_get_sm_carveout_experimental", None)
    return (getter() if getter is not None else None) or 0


def available_sms(plan: Plan) -> int:
    """SMs that the persistent programs of ``plan`` may use: those of its variant or target less the carveout, but 1 at
    least."""
    return max((plan.variant.sms or plan.target.limits.multiprocessors or 1) - current(), 1)


@contextlib.contextmanager
def reserved(count: int | None) -> Iterator[None]:
    """Sets torch's SM carveout to ``count`` (None: unset) and restores what was there, whatever happens inside.

    Raises ValueError for a negative count and RuntimeError if this torch has no carveout.
    """
    if count is not None and count < 0:
        raise ValueError(f"SM carveout {count} is negative: give the number of SMs to leave free, or None")
    if not hasattr(torch._C, "_set_sm_carveout_experimental"):
        raise RuntimeError("this torch has no SM carveout: torch 2.8 or later is needed")
    before = torch._C._get_sm_carveout_experimental()
    torch._C._set_sm_carveout_experimental(count)
    try:
        yield
    finally:
        torch._C._set_sm_carveout_experimental(before)
