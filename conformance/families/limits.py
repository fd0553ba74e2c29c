"""The limits that a kernel declares, and the rules of refusals that hold for kernels of every family.

A family registers a table of rules: refusal code -> :data:`Rule`. A rule reads the plan and the limits, and nothing
else of the kernel. It returns the subjects for which a refusal with this code is right. A kernel must refuse a plan
with a right subject, and for one of them; it must take any other plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from conformance.problems import BASE_ALIGNMENT, Operand, itemsize
from conformance.records import ReasonCode

#: Bytes of which a descriptor's base and pitch, and the rows of what it stores, are multiples.
DESCRIPTOR_BYTES = 16
#: A descriptor's pitch in bytes is below this, and its sizes below 2**31.
PITCH_LIMIT, SIZE_LIMIT = 2**40, 2**31
#: Programs along the second and third dimension of a grid, at most.
GRID_LIMIT = 65535


@dataclass(frozen=True)
class KernelLimits:
    """The limits of a kernel, as data. A family whose kernels have more limits adds fields in a subclass.

    ``operations`` and ``dtypes`` are those of the kernel; :attr:`dtypes` lists here only those that no case has.
    """

    operations: frozenset[str] = frozenset()
    dtypes: tuple[str, ...] = ()
    #: fields of :class:`~conformance.kernels.kernel.Variant` that may differ from the usual ones
    variant: frozenset[str] = frozenset()
    #: capabilities that a target must have
    needs: tuple[str, ...] = ()
    #: capabilities of the targets for which another kernel is meant
    avoids: tuple[str, ...] = ()
    #: who makes the descriptors, as ``Variant.descriptors`` says -> the capability that this needs
    makers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: operands and outputs that a descriptor covers, whatever the variant; ``Variant.tma_store`` adds the output
    described: tuple[str, ...] = ()
    #: fields of the config that the kernel cannot do without, such as "chain"
    states: tuple[str, ...] = ()


#: A rule of a refusal code: (plan, limits) -> the subjects for which a refusal is right.
Rule = Callable[[Any, Any], Iterable[str]]
Rules = Mapping[ReasonCode, Rule]
#: A rule of descriptors that an operand breaks: the code, the operand, and a text with the figures.
Broken = tuple[ReasonCode, str, str]


def lacks(target: Any, name: str) -> bool:
    """True if ``target`` does not have the capability."""
    return not target.capability(name).available


def capabilities(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields the capabilities for which ``plan`` must be refused: missing ones, and those of other kernels' targets."""
    maker = limits.makers.get(plan.variant.descriptors)
    constants = ("constant-argument",) if plan.variant.static else ()
    yield from (name for name in (*limits.needs, *((maker,) if maker else ()), *constants) if lacks(plan.target, name))
    yield from (name for name in limits.avoids if not lacks(plan.target, name))


def variants(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "variant" if the plan's variant is unusual in a field that the kernel does not take."""
    fields = (one for one in dataclasses.fields(plan.variant) if one.name not in limits.variant)
    if any(getattr(plan.variant, one.name) != one.default for one in fields):
        yield "variant"


def statements(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields the fields that the plan's config lacks."""
    yield from (name for name in limits.states if not hasattr(plan.config, name))


def past_the_grid(**programs: int) -> Iterator[str]:
    """Yields the names whose number of programs is more than a dimension of the grid has.

    >>> list(past_the_grid(batch=3, heads=70_000))
    ['heads']
    """
    yield from (name for name, count in programs.items() if count > GRID_LIMIT)


def memory_rules(broken: Callable[[Any, Any], Iterable[Broken]]) -> dict[ReasonCode, Rule]:
    """Returns a rule for each code of ``broken``, which lists what descriptors cannot cover."""
    codes = (ReasonCode.LAYOUT, ReasonCode.EXTENT, *(code for code in ReasonCode if code.name.startswith("ALIGNMENT")))
    return {code: _of_code(code, broken) for code in codes}


def _of_code(code: ReasonCode, broken: Callable[[Any, Any], Iterable[Broken]]) -> Rule:
    return lambda plan, limits: (name for broken_code, name, _ in broken(plan, limits) if broken_code is code)


def together(*rules: Rule) -> Rule:
    """Returns the rule whose subjects are those of all ``rules``."""
    return lambda plan, limits: (subject for rule in rules for subject in rule(plan, limits))


def undescribed(operand: Operand) -> Iterator[Broken]:
    """Yields the rules of ``cuTensorMapEncodeTiled`` (CUDA driver API) that ``operand`` breaks.

    Checks that the base lies on 16 bytes, and that a pitch is a multiple of 16 bytes and below 2**40. One of the last
    two strides must be 1.
    """
    size = itemsize(operand.dtype)
    if 1 not in operand.strides[-2:]:
        yield ReasonCode.LAYOUT, operand.name, f"strides of {operand.strides} elements, none of them 1"
        return
    base = operand.offset * size % BASE_ALIGNMENT % DESCRIPTOR_BYTES
    if base:
        yield ReasonCode.ALIGNMENT_BASE, operand.name, f"a base {base} bytes past a multiple of {DESCRIPTOR_BYTES}"
    rows = -2 if operand.strides[-1] == 1 else -1
    pitch = operand.strides[rows] * size
    if operand.shape[rows] > 1 and pitch % DESCRIPTOR_BYTES:
        yield ReasonCode.ALIGNMENT_PITCH, operand.name, f"a pitch of {pitch} bytes, no multiple of {DESCRIPTOR_BYTES}"
    apart = [stride * size for extent, stride in zip(operand.shape[:-2], operand.strides, strict=False) if extent > 1]
    for distance in apart:
        if distance % DESCRIPTOR_BYTES:
            text = f"matrices {distance} bytes apart, no multiple of {DESCRIPTOR_BYTES}"
            yield ReasonCode.ALIGNMENT_PITCH, operand.name, text
    pitches = [*apart, pitch] if operand.shape[rows] > 1 else apart
    if max(operand.shape) >= SIZE_LIMIT or max(pitches, default=0) >= PITCH_LIMIT:
        yield ReasonCode.EXTENT, operand.name, f"sizes {operand.shape} and a pitch of {pitch} bytes"


def unstored(out: Operand) -> Iterator[Broken]:
    """Yields the rules that an output breaks if a descriptor stores it.

    They are those of :func:`undescribed`, and rows with unit stride that end on 16 bytes: the copy unit writes whole
    ones.
    """
    if not out.numel:
        return
    yield from undescribed(out)
    if out.strides[-1] != 1:
        yield ReasonCode.LAYOUT, out.name, f"an inner stride of {out.strides[-1]} elements"
    rest = out.shape[-1] * itemsize(out.dtype) % DESCRIPTOR_BYTES
    if rest:
        text = f"rows that end {rest} bytes past a multiple of {DESCRIPTOR_BYTES}"
        yield ReasonCode.ALIGNMENT_EXTENT, out.name, text
