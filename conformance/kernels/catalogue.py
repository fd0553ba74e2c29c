"""The catalogue: every kernel by name, ours and those that installed packages add, and the choice among them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points

import torch
from torch import Tensor

from conformance.kernels.kernel import Kernel, NoApplicableKernel, NotApplicable, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.problems import DTYPES, Operand, Problem
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

ENTRY_POINT_GROUP = "conformance.kernels"

#: The order in which suites take the modules of this package that hold ``KERNELS``; others come after these, by name.
ORDER = (
    "gemm",
    "persistent_tma",
    "bmm",
    "mm_plus_mm",
    "int_mm",
    "scaled_mm_blockwise",
    "decompose_k_mm",
    "contiguous_mm",
    "fused_mm",
    "blackwell_ws",
    "grouped_mm",
    "conv",
    "attention",
)


@functools.cache
def own_kernels() -> dict[str, Kernel]:
    """The kernels of this package by name, in the order of :data:`ORDER`."""
    package = importlib.import_module(__package__)  # not by its name: tests with planted faults import a copy
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    names.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names]
    return {kernel.name: kernel for module in modules for kernel in getattr(module, "KERNELS", ())}


@functools.cache
def catalogue() -> dict[str, Kernel]:
    """All kernels by name: ours first, then those of the entry-point group ``conformance.kernels``.

    An entry point names a Kernel, or a callable that returns kernels. Raises TypeError for anything else and
    ValueError if two kernels have one name.
    """
    kernels = dict(own_kernels())
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        loaded = entry.load()
        added = [loaded] if isinstance(loaded, Kernel) else list(loaded())
        for kernel in added:
            if not isinstance(kernel, Kernel):
                raise TypeError(
                    f"entry point {entry.name!r} of group {ENTRY_POINT_GROUP} ({entry.value}) gave {kernel!r}: "
                    "it must name a conformance.kernels.kernel.Kernel or a callable that returns some"
                )
            if kernel.name in kernels:
                raise ValueError(
                    f"entry point {entry.name!r}: a kernel named {kernel.name!r} is already in the catalogue"
                )
            kernels[kernel.name] = kernel
    return kernels


def outside_kernels() -> dict[str, Kernel]:
    """The kernels of installed packages by name."""
    return {name: kernel for name, kernel in catalogue().items() if name not in own_kernels()}


def get(name: str) -> Kernel:
    """The kernel called ``name``; KeyError naming those that exist."""
    try:
        return catalogue()[name]
    except KeyError:
        raise KeyError(f"no kernel is called {name!r}: the catalogue has {', '.join(catalogue())}") from None


def select(
    problem: Problem, target: Target, variant: Variant | None = None, kernels: Mapping[str, Kernel] | None = None
) -> list[Plan]:
    """One plan for each kernel that takes ``problem``, with the first of its configs that it accepts; of ``kernels`` by
    name, which are the whole catalogue unless given.

    Raises NoApplicableKernel, with each kernel's reason for its first config, if there is none.
    """
    plans: list[Plan] = []
    reasons: dict[str, Reason] = {}
    for name, kernel in (catalogue() if kernels is None else kernels).items():
        for config in kernel.configs:
            try:
                plans.append(kernel.plan(problem, config, target, variant or Variant()))
            except NotApplicable as refusal:
                reasons.setdefault(name, refusal.reason)
                if refusal.reason.code not in (ReasonCode.CONFIG, ReasonCode.SHARED_MEMORY, ReasonCode.BLOCK_BYTES):
                    break  # another config would be refused for the same reason
            else:
                break
    if not plans:
        raise NoApplicableKernel(problem, reasons)
    return plans


def meta_tensor(operand: Operand) -> Tensor:
    """``operand`` without memory: its shape, strides and dtype, and an offset that gives the pointer its alignment."""
    storage = torch.empty(operand.offset + max(operand.span, 1), dtype=DTYPES[operand.dtype], device="meta")
    return storage.as_strided(operand.shape, operand.strides, operand.offset)


def meta_launch(plan: Plan, target: Target) -> Launch:
    """The launch of ``plan`` over tensors without memory, for compilation where there is no device."""
    tensors = {operand.name: meta_tensor(operand) for operand in plan.problem.tensors}
    return get(plan.kernel).launch(plan, tensors)


def meta_step(step: tuple[Plan, int], target: Target) -> Launch:
    """Launch number ``step[1]`` of all that ``step[0]`` makes, in order, over tensors without memory."""
    plan, number = step
    return meta_launch(plan, target).steps[number]
