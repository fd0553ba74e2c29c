"""Lookup: the device class of a target. The classes of CPUs and of NVIDIA's devices are here too."""

from __future__ import annotations

from conformance.heuristics import base
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import AnyConfig, FlexConfig, FlexDecodeConfig
from conformance.heuristics.device_class import Capability, DeviceClass, Exclusion, by_head_dim
from conformance.heuristics.rocm import ROCM
from conformance.targets import Target

EXCLUDED: dict[str, Exclusion] = {
    **dict.fromkeys(base.PRODUCTS, lambda m, n, k: m * n > 2**13),
    "bmm": lambda m, n, k: max(m, n, k) > 128 or m * n > 2**12,
    "conv": lambda m, n, k: max(m, n, k) > 256 or m * n * k > 2**17,
}

CPU = DeviceClass("cpu", base.TABLES, base.SPACES, scale=0.5, excluded=EXCLUDED)


# Config of attention forward by (dtype, head dimension).

H100 = by_head_dim(
    fp32=(FlexConfig(128, 32, 3, 4), FlexConfig(32, 64, 3, 4), FlexConfig(32, 32, 3, 4)),
    bf16=(FlexConfig(128, 128, 3, 4), FlexConfig(128, 64, 3, 8), FlexConfig(64, 32, 3, 4)),
    fp16=(FlexConfig(128, 128, 3, 4), FlexConfig(128, 128, 3, 8), FlexConfig(64, 32, 3, 4)),
)
A100 = by_head_dim(
    fp32=(FlexConfig(128, 32, 3, 4), FlexConfig(128, 32, 3, 4), FlexConfig(64, 16, 3, 4)),
    bf16=(FlexConfig(128, 64, 3, 4), FlexConfig(128, 64, 3, 8), FlexConfig(32, 64, 3, 4)),
    fp16=(FlexConfig(128, 64, 3, 4), FlexConfig(128, 64, 3, 8), FlexConfig(32, 64, 3, 4)),
)


class CudaDevices(DeviceClass):
    """NVIDIA's device class. Attention's defaults depend on the compute capability."""

    def flex_fwd_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexConfig:
        usual = super().flex_fwd_default(head_dim, dtype, capability)
        if capability >= (9, 0):
            return H100.get((dtype, head_dim), usual)
        return A100.get((dtype, head_dim), usual) if capability >= (8, 0) else usual

    def flex_bwd_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexConfig:
        """See :class:`DeviceClass`: the small blocks are for fp32 and for devices before 8.0."""
        if dtype == "fp32" or capability < (8, 0):
            return FlexConfig(16, 16, 1, 4)
        if capability >= (9, 0):
            measured = {64: FlexConfig(64, 64, 3, 4), 128: FlexConfig(64, 128, 3, 8)}
        else:
            measured = {64: FlexConfig(32, 128, 3, 4), 128: FlexConfig(64, 64, 3 if capability[1] == 0 else 2, 4)}
        # Heads above 256 too: the small default that was meant for them is never used from 8.0 on.
        return measured.get(head_dim, FlexConfig(64, 64, 2, 4))

    def flex_decode_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexDecodeConfig:
        deep = capability >= (9, 0) and not (head_dim > 128 and dtype == "fp32")
        return FlexDecodeConfig(64, 3 if deep else 1, 2)


CUDA = CudaDevices("cuda", base.TABLES, base.SPACES)


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
