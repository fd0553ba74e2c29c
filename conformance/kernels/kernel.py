"""The declarations of every kernel of the catalogue, and the plan that it makes for one problem, config and target."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.examples import SHAPES, WHOLE_TILES
from conformance.families.family import Family, family_of_class
from conformance.families.limits import KernelLimits
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.launch import Launch
from conformance.machine.entry_point_loading import OutsideError
from conformance.numerics.contract import Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import DTYPES, Problem, itemsize
from conformance.records import ExecutorName, Reason, ReasonCode
from conformance.targets import Target
from conformance.user_files.thresholds import UNMOVED, Tables

if TYPE_CHECKING:
    from conformance.codegen_checks import Feature


@dataclass(frozen=True)
class Variant:
    """The way in which a kernel is asked to do its work, beyond the config.

    ``descriptors``: built on the "device" or by the "host"; ``tma_store``: C is written through a descriptor;
    ``epilogue_subtile``: C leaves in 1, 2 or 4 column blocks per tile; ``flatten``: tile and K loop are one;
    ``static``: sizes are compile-time constants; ``sms``: SMs to assume instead of the target's own number;
    ``splits``: parts into which K, or the keys of attention, are split (None: the kernel's own choice);
    ``implied_dtype``: the product of int8 operands does not say in which dtype it is summed.
    """

    descriptors: str = "device"
    tma_store: bool = False
    epilogue_subtile: int = 1
    flatten: bool = False
    static: bool = False
    sms: int | None = None
    splits: int | None = None
    implied_dtype: bool = False

    def __post_init__(self) -> None:
        if self.descriptors not in ("device", "host"):
            raise ValueError(f"descriptors {self.descriptors!r} is unknown: use 'device' or 'host'")
        if self.epilogue_subtile not in (1, 2, 4):
            raise ValueError(f"epilogue_subtile {self.epilogue_subtile} is unknown: use 1, 2 or 4")

    @property
    def id(self) -> str:
        """Text naming what differs from the default, such as ``host.store.sub2.static``; empty for the default."""
        parts = ["host"] if self.descriptors == "host" else []
        parts += ["store"] if self.tma_store else []
        parts += [f"sub{self.epilogue_subtile}"] if self.epilogue_subtile > 1 else []
        parts += ["flat"] if self.flatten else []
        parts += ["static"] if self.static else []
        parts += [f"sms{self.sms}"] if self.sms is not None else []
        parts += [f"splits{self.splits}"] if self.splits is not None else []
        parts += ["implied"] if self.implied_dtype else []
        return ".".join(parts)


#: Variants in which a kernel is tried that refuses the usual one, nearest first.
VARIANTS = (
    *sorted(
        (
            Variant(descriptors, store, static=static)
            for descriptors, store, static in itertools.product(("device", "host"), (False, True), (False, True))
        ),
        key=lambda variant: len(variant.id.split(".")) if variant.id else 0,
    ),
    Variant(flatten=True),
    Variant(epilogue_subtile=2),
    Variant(splits=2),
)

#: Refusals that another shape, order or variant does not change.
FINAL = (ReasonCode.DTYPE, ReasonCode.PRECISION, ReasonCode.SHARED_MEMORY)


@dataclass(frozen=True)
class Plan:
    """A plan of what a kernel launches: picklable, without tensors.

    ``kernel`` is the kernel's name, ``problem`` a :class:`~conformance.problems.Problem` and ``config`` an
    :class:`~conformance.heuristics.configs.AnyConfig` of its family. ``grid`` is the number of programs in each
    dimension; it is empty until :meth:`Kernel.plan` has accepted the plan.
    """

    kernel: str
    problem: Any
    config: Any
    variant: Variant
    target: Target
    grid: tuple[int, ...] = ()


def lacking(plan: Plan, *capabilities: str, code: ReasonCode = ReasonCode.CAPABILITY) -> Reason | None:
    """Returns the reason that the plan's target lacks a capability, such as a dtype or what the kernel's :attr:`limits`
    name; None if it has all."""
    for name in capabilities:
        capability = plan.target.capability(name)
        if not capability.available:
            return Reason(code, name, f"{plan.target.id}: {capability.why}")
    return None


@dataclass(frozen=True)
class Features:
    """Codegen features of a compiled launch: those that it must have, and those that it must not have."""

    required: frozenset[Feature] = frozenset()
    forbidden: frozenset[Feature] = frozenset()


class NotApplicable(Exception):
    """A kernel cannot take a problem, config or tensor; ``reason`` says why."""

    def __init__(self, kernel: str, reason: Reason) -> None:
        super().__init__(f"{kernel} refuses: {reason}")
        self.kernel = kernel
        self.reason = reason


class NoApplicableKernel(Exception):
    """Nothing in the catalogue takes a problem; ``reasons`` holds each kernel's typed reason by name."""

    def __init__(self, problem: Problem, reasons: Mapping[str, Reason]) -> None:
        lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
        super().__init__(f"no kernel takes {problem.id}:{lines}")
        self.problem = problem
        self.reasons = dict(reasons)


class Kernel(abc.ABC):
    """One kernel of the catalogue. A third-party kernel subclasses this and is named in the entry-point group
    ``conformance.kernels``; the suites then judge it like any other."""

    #: unique name in the catalogue
    name: str
    #: class of its problems; the family that is registered for it has the examples
    problems: type[Any] = Problem
    #: operations it computes, by the ``op`` of their problems
    operations: frozenset[str]
    #: operand dtypes it takes, in the order in which suites sample them
    dtypes: tuple[str, ...]
    #: further operand dtypes, which few targets have: scenarios that name them have cases
    rare_dtypes: tuple[str, ...] = ()
    #: config space, in the order of the published table
    configs: tuple[AnyConfig, ...]
    #: name of that table in ``conformance.heuristics``; None for a kernel with a table of its own
    table: str | None = None
    #: a second table whose rows it takes; None for none
    extra_table: str | None = None
    #: torch's own tables whose rows it takes, as patterns of their names; None: those that its table was
    torch_tables: tuple[str, ...] | None = None
    #: torch's own exhaustive tables, likewise
    torch_spaces: tuple[str, ...] | None = None
    #: family of problems that it belongs to, such as "gemm" or "attention": the word by which suites select kernels
    family: str
    #: how many cases the quick and the default tier have of it: 3 for many, 1 for few. 2 is for a kernel that differs
    #: from one of weight 3 in the epilogue alone
    weight: int = 3
    #: whether the grid is min(SMs - carveout, tiles) and each program loops over tiles
    persistent: bool = False
    #: whether its programs share tiles: each takes a part of all blocks of K
    shares_k: bool = False
    #: whether the installed Triton has what the kernel's code calls; one that it lacks takes no target, and no run
    #: misses it
    offered: bool = True
    #: whether operands are loaded through tensor descriptors
    descriptors: bool = False
    #: what it takes, as data. Its family's rules judge each of its refusals by them, and each plan that it accepts.
    #: None for a third-party kernel, whose refusals are not judged
    limits: KernelLimits | None = None
    #: shape classes of its examples, each with what it shows, in the order in which a sweep takes them
    shapes: Mapping[str, str] = SHAPES
    #: the shape class by which a sweep asks whether a config is usable, and with which it times that config
    usual_shape: str = "ragged"
    #: lines of ``conformance sweep RUN --spills`` about cases of a third-party kernel that are known to spill; None
    #: for a kernel whose spills, if any, are in ``data/declared_spills.txt``
    declared_spills: frozenset[str] | None = None
    #: file of the failures that are expected of a third-party kernel, as ``--expected-failures`` takes them
    expected_failures: Path | None = None
    #: thresholds of findings about a third-party kernel, in the words of a file for ``--thresholds``: the name of a
    #: kind -> key -> value
    thresholds: Tables = UNMOVED
    #: variant in which suites ask it for what their topic says nothing about
    usual_variant: Variant = Variant()
    #: orders of A and B in memory that are tried where it refuses the usual ones, which are None
    more_orders: tuple[tuple[str, str], ...] = ()
    #: orders of A and B in the problems that say nothing about them; None for those of the operation
    usual_orders: tuple[str, str] | None = None

    @abc.abstractmethod
    def refusal(self, plan: Plan) -> Reason | None:
        """Returns the reason why this kernel cannot take the plan's problem with its config and variant on its target;
        None if it can.

        It must answer for a problem of any family, because every kernel of the catalogue is asked. What only a compiler
        can tell is no reason: see :meth:`likely_refusal`.
        """

    def foreign(self, plan: Plan) -> Reason | None:
        """Returns the reason why the kernel does not compute the operation of the plan's problem; None if it does."""
        operation = plan.problem.op
        if operation in self.operations:
            return None
        computes = ", ".join(sorted(self.operations))
        return Reason(ReasonCode.OPERATION, operation, f"{self.name} computes {computes}, not {operation}")

    def lacking(self, plan: Plan) -> Reason | None:
        """Returns which of the capabilities that its :attr:`limits` name the plan's target lacks; None if it has
        all."""
        limits = self.limits or KernelLimits()
        maker = limits.makers.get(plan.variant.descriptors)
        return lacking(plan, *limits.needs, *((maker,) if maker else ()))

    def other_variant(self, plan: Plan) -> Reason | None:
        """Returns the reason why the kernel does not work in the plan's variant, by its :attr:`limits`; None if it
        does."""
        unusual = {one.name for one in dataclasses.fields(Variant) if getattr(plan.variant, one.name) != one.default}
        accepted = self.limits.variant if self.limits is not None else frozenset()
        if unusual <= accepted:
            return lacking(plan, "constant-argument") if plan.variant.static else None
        fields = f"variants of {', '.join(sorted(accepted))}" if accepted else "the usual variant"
        detail = f"'{plan.variant.id}' was asked for: {self.name} works in {fields} alone"
        return Reason(ReasonCode.CONFIG, "variant", detail)

    @abc.abstractmethod
    def grid(self, plan: Plan) -> tuple[int, ...]:
        """Programs to launch in each dimension, one to three of them. Asked only of plans that are not refused."""

    @abc.abstractmethod
    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """Returns the launch of ``plan`` over ``tensors`` (the problem's operands and outputs by name).

        Raises NotApplicable if a tensor is not what the plan was made for.
        """

    @property
    def declared_zero_sign(self) -> str:
        """``Contract.zero_sign`` in the interpreter: what the kernel's own class says as ``zero_sign``, else "any". No
        class inherits it, for a subclass may begin its sums otherwise."""
        return str(vars(type(self)).get("zero_sign", "any"))

    @abc.abstractmethod
    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """Returns the contract of the kernel's arithmetic when ``executor`` runs it."""

    def order(self, plan: Plan) -> SumOrder | None:
        """In which order the kernel sums the products of an element on the plan's target; None if that is not known.

        With it every bit that a known tensor core owes is judged, so it must be certain. A subclass that sums in
        another order must say so.
        """
        return None

    @abc.abstractmethod
    def features(self, plan: Plan) -> Features:
        """Codegen features of the compiled main launch on the plan's target."""

    @property
    def answers(self) -> Family:
        """The record of the family of its problems."""
        return family_of_class(self.problems)

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Any:
        """Returns a small problem for ``config``: of a dtype of :meth:`dtype_names` and a shape class of
        :attr:`shapes`. By default it is the family's.

        Raises OutsideError if the family has none."""
        if self.answers.example is None:
            reason = self.answers.lacks["example"]
            raise OutsideError(
                f"{self.name} has no example, nor has its family ({reason}): give the kernel an example()"
            )
        return self.answers.example(self, dtype, config, shape)

    def dtype_names(self) -> list[str]:
        """Returns the dtypes of its cases: those that it takes, and "tf32" (fp32 operands in tf32 precision) after
        "fp32"."""
        return [name for dtype in self.dtypes for name in (("fp32", "tf32") if dtype == "fp32" else (dtype,))]

    def example_variant(self) -> Variant:
        """Returns the variant in which it takes its examples: two programs for a persistent kernel, which then
        loops."""
        return dataclasses.replace(self.usual_variant, sms=2) if self.persistent else self.usual_variant

    def example_shapes(self) -> list[str]:
        """Returns the shape classes of its examples: :attr:`shapes`, and whole tiles if :meth:`example` knows them."""
        return [*self.shapes, *filter(self.knows, (WHOLE_TILES,))]

    def knows(self, shape: str) -> bool:
        """True if :meth:`example` knows this shape class."""
        try:
            self.example(self.dtype_names()[0], self.configs[0], shape)
        except KeyError:
            return False
        return True

    def fitted(self, dtype: str, config: AnyConfig, target: Target) -> Kernel | None:
        """Returns the kernel, or a copy with another usual shape, orders or variant, that takes its example with this
        dtype and config on ``target``. The copy is the nearest to what is usual. Returns None if there is none."""
        for way in ways(self):
            reason = way.example_refusal(dtype, config, target)
            if reason is None:
                return way
            if reason.code in FINAL:
                return None
        return None

    def example_refusal(self, dtype: str, config: AnyConfig, target: Target) -> Reason | None:
        """Returns the reason why the kernel does not take its example of the usual shape with this dtype and config on
        ``target``; None if it does."""
        return self.example_refusals(dtype, config, (target,))[0]

    def example_refusals(
        self, dtype: str, config: AnyConfig, targets: Iterable[Target], *, estimated: bool = True
    ) -> list[Reason | None]:
        """:meth:`example_refusal` on each of ``targets``; without ``estimated`` only for what is certain."""
        example, variant = self.example(dtype, config, self.usual_shape), config.in_variant(self.example_variant())
        ask = self.likely_refusal if estimated else self.refusal
        return [ask(self.draft(example, config, target, variant)) for target in targets]

    def usable_on(self, target: Target) -> bool:
        """True if it takes an example of some dtype with some config on ``target``."""
        return any(
            self.example_refusal(name, config, target) is None for name in self.dtype_names() for config in self.configs
        )

    def timed(self, dtype: str) -> Any:
        """Returns the problem that is timed with each of its configs, so that they can be compared. It is the family's,
        or the example of the first config."""
        if self.answers.timed is None:
            return self.example(dtype, self.configs[0], self.usual_shape)
        return self.answers.timed(self, dtype)

    def timed_variant(self) -> Variant:
        """The variant in which it is timed: that of the examples, on all SMs."""
        return dataclasses.replace(self.example_variant(), sms=None)

    @property
    def drawn_configs(self) -> tuple[AnyConfig, ...]:
        """The configs of random problems: all of its own, unless it says otherwise."""
        return self.configs

    def default_configs(self, target: Target) -> tuple[AnyConfig, ...]:
        """Returns the configs that are used on ``target`` without a search, and that its table may lack."""
        return ()

    def draw_problem(self, draw: Draw) -> Any:
        """Returns a random problem, which :meth:`refusal` may still refuse: the family's, or one of the examples."""
        if self.answers.draw_problem is None:
            return self.example(draw.pick(self.dtype_names()), draw.pick(self.configs), draw.pick(list(self.shapes)))
        return self.answers.draw_problem(self, draw)

    def draw_variant(self, draw: Draw) -> Variant:
        """Returns the variant of a random problem."""
        return Variant(sms=draw.pick((None, 2, 3))) if self.persistent else self.example_variant()

    def multiply_adds(self, problem: Problem, config: AnyConfig) -> int:
        """Multiply-adds that the code of one program holds for one step of the main loop if nothing but such
        instructions computes its products; by default those of one product of tiles."""
        return math.prod(config.tile)

    def shared_memory(self, plan: Plan) -> int | None:
        """Bytes of shared memory that one block needs, by the kernel's own estimate; None if it makes none. Asked only
        of plans that :meth:`refusal` accepts."""
        return None

    def estimated_refusal(self, plan: Plan) -> Reason | None:
        """Returns the reason why a plan that :meth:`refusal` accepts needs more shared memory than its target has, by
        :meth:`shared_memory`; None if it fits or the kernel makes no estimate. The compiler may need more or less."""
        needed, limit = self.shared_memory(plan), plan.target.limits.shared_memory
        if needed is None or needed <= limit:
            return None
        detail = (
            f"{plan.config.id} needs {needed} bytes of shared memory by estimate, {plan.target.id} has {limit} per "
            "block: use fewer stages or smaller tiles"
        )
        return Reason(ReasonCode.SHARED_MEMORY, plan.config.id, detail)

    def likely_refusal(self, plan: Plan) -> Reason | None:
        """:meth:`refusal`, else :meth:`estimated_refusal`: for who chooses among plans and compiles none."""
        return self.refusal(plan) or self.estimated_refusal(plan)

    def draft(self, problem: Problem, config: AnyConfig, target: Target, variant: Variant | None = None) -> Plan:
        """Returns a plan that the kernel has not accepted yet: without a grid, to ask :meth:`refusal` about it. Without
        a ``variant`` it is the usual one."""
        return Plan(self.name, problem, config, self.usual_variant if variant is None else variant, target)

    def plan(
        self,
        problem: Problem,
        config: AnyConfig,
        target: Target,
        variant: Variant | None = None,
        *,
        unchecked: bool = False,
        estimated: bool = True,
    ) -> Plan:
        """The plan for a problem, in the usual variant unless one is given; raises NotApplicable with a typed reason if
        the kernel cannot take it.

        ``unchecked`` skips that check, for cases that show what happens past it. Who compiles the plan asks without
        ``estimated``, and reads of the compiled code what memory it needs.
        """
        plan = self.draft(problem, config, target, variant)
        ask = self.likely_refusal if estimated else self.refusal
        reason = None if unchecked else ask(plan)
        if reason is not None:
            raise NotApplicable(self.name, reason)
        return dataclasses.replace(plan, grid=self.grid(plan))


@functools.cache
def ways(kernel: Kernel) -> tuple[Kernel, ...]:
    """``kernel``, and copies of it that differ in what is usual: shapes outermost, variants innermost."""
    shapes = dict.fromkeys((kernel.usual_shape, *kernel.example_shapes()))
    variants = dict.fromkeys((kernel.usual_variant, *VARIANTS))
    orders = dict.fromkeys((kernel.usual_orders, *kernel.more_orders))
    copies = [kernel]
    for shape, order, variant in itertools.islice(itertools.product(shapes, orders, variants), 1, None):
        way = copy.copy(kernel)
        way.usual_shape, way.usual_orders, way.usual_variant = shape, order, variant
        copies.append(way)
    return tuple(copies)


def check_tensors(kernel: str, problem: Problem, tensors: Mapping[str, Tensor]) -> None:
    """Raises NotApplicable if a tensor is missing or differs from the operand it stands for.

    Shape, dtype and every stride of a dimension longer than 1 must agree; the base must have the alignment that the
    operand's offset implies up to 16 bytes.
    """
    for operand in problem.tensors:
        tensor = tensors.get(operand.name)
        code = {"scale_a": ReasonCode.SCALE, "scale_b": ReasonCode.SCALE, "bias": ReasonCode.BIAS}.get(operand.name)
        if tensor is None:
            code = code or ReasonCode.OPERATION
            raise NotApplicable(kernel, Reason(code, operand.name, f"operand {operand.name} is missing: pass a tensor"))
        if tensor.dtype != DTYPES[operand.dtype]:
            detail = f"{operand.name} is {tensor.dtype}, {DTYPES[operand.dtype]} is required: convert it"
            raise NotApplicable(kernel, Reason(code or ReasonCode.DTYPE, operand.name, detail))
        single = operand.numel == 1 and tensor.numel() == 1
        if tuple(tensor.shape) != operand.shape and not single:
            detail = f"{operand.name} has shape {tuple(tensor.shape)}, {operand.shape} is required"
            raise NotApplicable(kernel, Reason(code or ReasonCode.LAYOUT, operand.name, detail))
        strides = zip(operand.shape, tensor.stride(), operand.strides, strict=False)
        if operand.numel and not single and any(have != want for extent, have, want in strides if extent > 1):
            detail = f"{operand.name} has strides {tensor.stride()}, the plan was made for {operand.strides}"
            raise NotApplicable(kernel, Reason(code or ReasonCode.LAYOUT, operand.name, detail))
        expected = operand.offset * itemsize(operand.dtype) % 16
        if operand.numel and tensor.data_ptr() % 16 != expected:
            detail = (
                f"the first byte of {operand.name} lies {tensor.data_ptr() % 16} bytes past a 16-byte boundary, "
                f"the plan was made for {expected}"
            )
            raise NotApplicable(kernel, Reason(ReasonCode.ALIGNMENT_BASE, operand.name, detail))
