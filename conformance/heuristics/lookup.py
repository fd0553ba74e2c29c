"""Lookup: the device class of a target, and what it says of attention there."""

from __future__ import annotations

from conformance.heuristics import base
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import AnyConfig
from conformance.heuristics.cpu import CPU
from conformance.heuristics.cuda import CUDA
from conformance.heuristics.device_class import DeviceClass
from conformance.heuristics.rocm import ROCM
from conformance.targets import Target

#: Intel's GPUs have the base's tables.
XPU = DeviceClass("xpu", base.TABLES, base.SPACES)

CLASSES = {"nvidia": CUDA, "amd": ROCM, "xpu": XPU, "cpu": CPU}


def for_target(target: Target) -> DeviceClass:
    """Returns the target's own device class if it names one, else that of its vendor, else the base's.

    Raises TypeError if what the target names is no :class:`DeviceClass`.
    """
    own = target.device_class
    if own is None:
        return CLASSES.get(target.vendor, BASE)
    if not isinstance(own, DeviceClass):
        raise TypeError(
            f"target {target.id}: device_class is {own!r} and must be None or a "
            "conformance.heuristics.device_class.DeviceClass"
        )
    return own


def flex_default(target: Target, table: str, head_dim: int, dtype: str) -> AnyConfig:
    """Returns the config of attention with ``table`` on ``target`` without a search; see
    :meth:`DeviceClass.flex_default`."""
    capability = divmod(target.arch, 10) if isinstance(target.arch, int) else (0, 0)
    return for_target(target).flex_default(table, head_dim, dtype, capability)
