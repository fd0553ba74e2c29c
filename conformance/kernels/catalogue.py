"""The catalogue: every kernel by name, ours and those that installed packages add, and the choice among them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conformance.families.limits import KernelLimits
from conformance.kernels.kernel import Kernel, NoApplicableKernel, NotApplicable, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.machine.entry_point_loading import OutsideError, package_of, taken, things
from conformance.machine.near_names import did_you_mean
from conformance.problems import DTYPES, Operand, Problem
from conformance.records import KernelDeclarations, Reason, ReasonCode
from conformance.targets import Target
from conformance.user_files.expected_failures import of_kernel, table_to_record
from conformance.user_files.thresholds import checked
from conformance.user_files.toml_entries import EntryError

ENTRY_POINT_GROUP = "conformance.kernels"

#: A kernel's name begins the ids of its cases, and ends there at a "-".
NAME = re.compile(r"\w[\w.]{0,99}", re.ASCII)

#: What a kernel declares, each with a test of its value and the words for what is required.
_DECLARED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda name: isinstance(name, str), "a text"),
    "operations": (
        lambda names: isinstance(names, Set) and bool(names) and all(isinstance(name, str) for name in names),
        "a set of names of operations",
    ),
    "dtypes": (
        lambda names: isinstance(names, tuple) and bool(names) and all(name in DTYPES for name in names),
        f"a tuple of these: {', '.join(DTYPES)}",
    ),
    "configs": (lambda configs: isinstance(configs, Sequence) and bool(configs), "a tuple of configs"),
    "weight": (lambda weight: weight in (1, 2, 3), "1, 2 or 3"),
    "limits": (lambda limits: limits is None or isinstance(limits, KernelLimits), "a KernelLimits or None"),
    "expected_failures": (lambda file: file is None or isinstance(file, (str, Path)), "a path or None"),
}

#: The order in which suites take the modules of this package that hold ``KERNELS``; others come after these, by name.
ORDER = (
    "gemm",
    "persistent_tma",
    "mm_persistent",
    "bmm",
    "bmm_descriptors",
    "int_mm",
    "mm_fp64",
    "scaled_mm_blockwise",
    "decompose_k_mm",
    "mm_atomic_split_k",
    "contiguous_mm",
    "fused_mm",
    "blackwell_ws",
    "grouped_mm",
    "conv",
    "depthwise_conv",
    "transposed_conv",
    "attention",
    "attention_descriptors",
    "attention_packed",
    "attention_fp8",
    "legacy_tma",
    "microscaled_mm",
    "microscaled_persistent_tma",
    "microscaled_mm_grouped",
    "product_loops",
    "int4_mm",
    "mm_specialised",
    "mm_descriptors",
    "mm_stream_k",
    "mm_gather",
    "linear_attention",
    "weight_gradient",
    "microscaled_mm_batch",
    "microscaled_mm_batch_tiles",
    "rows",
    "elementwise",
    "row_functions",
    "quantisation",
    "indexed_rows",
)


@functools.cache
def own_kernels() -> dict[str, Kernel]:
    """The kernels of this package by name, in the order of :data:`ORDER`."""
    package = importlib.import_module(__package__)  # not by its name: tests with planted faults import a copy
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    names.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names]
    return {kernel.name: kernel for module in modules for kernel in getattr(module, "KERNELS", ())}


def is_own(kernel: Kernel) -> bool:
    """True if ``kernel`` is of this package."""
    return kernel.name in own_kernels()


@functools.cache
def catalogue() -> dict[str, Kernel]:
    """All kernels by name: ours first, then those of the entry-point group ``conformance.kernels``.

    An entry point names a Kernel, or a callable that returns one or several. One that cannot be loaded, or that gives
    anything else, is left out: see :data:`~conformance.machine.entry_point_loading.LEFT_OUT`. The same goes for a name
    that two kernels have, and for one that ids cannot hold.
    """
    return _loaded()[0]


def outside_kernels() -> dict[str, Kernel]:
    """The kernels of installed packages by name."""
    return {name: kernel for name, kernel in catalogue().items() if name in _loaded()[1]}


def declarations() -> dict[str, KernelDeclarations]:
    """Returns the declarations of the kernels of installed packages, by which their results are judged. Kernels that
    say nothing are left out. Raises EntryError for a file of expected failures that cannot be used."""
    declared = {}
    for name, kernel in outside_kernels().items():
        entries = of_kernel(name, kernel.expected_failures) if kernel.expected_failures is not None else []
        if kernel.thresholds or entries or kernel.declared_spills:
            tables, spills = map(table_to_record, entries), sorted(kernel.declared_spills or ())
            declared[name] = KernelDeclarations(origin(name), kernel.thresholds, tuple(tables), tuple(spills))
    return declared


def origin(name: str) -> str:
    """Returns the origin of a kernel: "conformance", or the entry point and the package that brought it."""
    return _loaded()[1].get(name, "conformance")


@functools.cache
def _loaded() -> tuple[dict[str, Kernel], dict[str, str]]:
    """All kernels by name, and the origin of third-party kernels."""
    kernels, origins = dict(own_kernels()), dict[str, str]()
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        package = package_of(entry)
        where = f"entry point {entry.name!r} ({entry.value}){f' of {package}' if package else ''}"
        added = taken(where, functools.partial(_kernels_of, entry, where, kernels)) or {}
        kernels |= added
        origins |= dict.fromkeys(added, where)
    return kernels, origins


def _kernels_of(entry: EntryPoint, where: str, earlier: Collection[str]) -> dict[str, Kernel]:
    """Returns the kernels of an entry point by name. Raises OutsideError if one cannot be taken."""
    kernels: dict[str, Kernel] = {}
    for kernel in things(entry.load(), Kernel):
        if not isinstance(kernel, Kernel):
            raise OutsideError(
                f"{where} gave {kernel!r}: it must name a conformance.kernels.kernel.Kernel or a callable that "
                "returns some"
            )
        for declared, (right, required) in _DECLARED.items():
            if not right(value := getattr(kernel, declared)):
                raise OutsideError(
                    f"{where}: {declared} of {type(kernel).__name__} is {value!r:.100}; {required} is required"
                )
        if not NAME.fullmatch(kernel.name):
            allowed = "use letters, digits, '_' and '.', at most 100"
            raise OutsideError(f"{where}: a kernel is called {kernel.name!r:.200}; {allowed}")
        if kernel.name in {*earlier, *kernels}:
            raise OutsideError(f"{where}: a kernel named {kernel.name!r} is already in the catalogue")
        strange = next((line for line in kernel.declared_spills or () if not _is_spill_of(line, kernel)), None)
        if strange is not None:
            raise OutsideError(
                f"{where}: {kernel.name} declares the spill {strange!r}; write '{kernel.name} DTYPE CONFIG "
                "TARGET', as 'conformance sweep RUN --spills' does"
            )
        try:
            checked(kernel.thresholds, f"{where}: the thresholds of {kernel.name}")
        except EntryError as error:
            raise OutsideError(str(error)) from None
        kernels[kernel.name] = kernel
    return kernels


def _is_spill_of(line: str, kernel: Kernel) -> bool:
    words = line.split(" ")
    return len(words) == 4 and words[0] == kernel.name and all(words)


def get(name: str) -> Kernel:
    """Returns the kernel called ``name``. Raises KeyError naming the one that was probably meant, or those that
    exist."""
    try:
        return catalogue()[name]
    except KeyError:
        raise KeyError(f"no kernel is called {name!r}; {did_you_mean(name, catalogue())}") from None


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
