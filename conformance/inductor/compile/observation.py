"""Compiling a program, with or without a device: its options, and the log of what torch did."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.program import (
    Choice,
    Failure,
    Generated,
    GeneratedKernel,
    Invocation,
    Lowering,
    Program,
    Unsupported,
)
from conformance.inductor.compile.replaced_decisions import replacing
from conformance.kernels import carveout
from conformance.records import Reason, ReasonCode

#: What would be remembered past one compilation, done in another process, or hide the compiled kernels; an option that
#: the installed torch does not have is left out.
ALWAYS: Mapping[str, Any] = {
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "compile_threads": 1,
    "autotune_in_subproc": False,
    "triton.cudagraphs": False,
    "use_static_cuda_launcher": False,  # its kernels hold no stage files; the later name is next
    "use_static_triton_launcher": False,
}


@dataclass
class CompilationLog:
    """The log of torch while it compiled a program: the fields of :class:`Generated` as they grow.

    ``first`` is the number of graphs that the first call took.
    """

    modules: list[str] = field(default_factory=list)
    lowerings: list[Lowering] = field(default_factory=list)
    invocations: list[Invocation] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)
    first: int = 0

    def generated(
        self, kernels: tuple[GeneratedKernel, ...], failure: Failure | None, counters: Mapping[str, int]
    ) -> Generated:
        """Returns the results of the program."""
        return Generated(
            modules=tuple(self.modules),
            lowerings=tuple(self.lowerings),
            kernels=kernels,
            invocations=tuple(self.invocations),
            failure=failure,
            counters=counters,
            notes=tuple(self.notes),
        )


@contextmanager
def compiling(program: Program, options: Mapping[str, Any]) -> Iterator[CompilationLog]:
    """Until exit, ``torch.compile`` compiles ``program`` without caches and with ``options`` of Inductor.

    Yields the log of what it does. What was compiled stays in use after the exit.
    """
    with ExitStack() as stack:
        log = CompilationLog(notes=stack.enter_context(replacing(program.decision)))
        stack.enter_context(_caches())
        _forget_templates()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        stack.enter_context(_guards_untimed())
        stack.enter_context(configured(options))
        stack.enter_context(carveout.reserved(program.carveout))
        stack.enter_context(_watching(program, log))
        yield log


@contextmanager
def configured(options: Mapping[str, Any]) -> Iterator[None]:
    """Until exit Inductor has these ``options``, and its cache of generated templates is tested. What Inductor takes
    from there is generated once more, and another text is an error."""
    from torch._inductor import config
    from torch._inductor.select_algorithm import TritonTemplate

    # a release that does not test its cache never reads the attribute
    with config.patch(dict(options)), mock.patch.object(TritonTemplate, "test_cache", True, create=True):
        yield


def mark(program: Program, tensors: Sequence[torch.Tensor]) -> None:
    """Marks the program's ``marked`` dimensions as dynamic. Raises ValueError for an operand that it does not have."""
    names = [operand.name for operand in program.operands]
    for name, dimension in program.marked:
        if name not in names:
            raise ValueError(f"{program.graph} has no operand {name!r}, only {', '.join(names)}")
        torch._dynamo.mark_dynamic(tensors[names.index(name)], dimension)


def settings(program: Program, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the program's options. They override :data:`ALWAYS`; ``fixed`` overrides them.

    Raises ValueError for an option that the installed torch does not have, or that contradicts ``fixed``.
    """
    options = dict(program.settings)
    unknown = [name for name in options if not has_option(name)]
    if unknown:
        raise ValueError(f"torch {torch.__version__} has no option torch._inductor.config.{unknown[0]}")
    wrong = [name for name, value in program.settings if fixed.get(name, value) != value]
    if wrong:
        raise ValueError(
            f"option {wrong[0]} is {dict(program.settings)[wrong[0]]!r} and must be {fixed[wrong[0]]!r} where code is "
            "generated without a device: leave it out, or use a device"
        )
    merged = {**ALWAYS, **options, **fixed}
    return known(merged)


def known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ``options`` that the installed torch has."""
    return {name: value for name, value in options.items() if has_option(name)}


def unmeasured_fusion() -> dict[str, Any]:
    """The option by which Inductor does not measure whether to fuse, by the names that torch has had for it."""
    return known(dict.fromkeys(("benchmark_epilogue_fusion", "benchmark_template_fusion"), False))


def has_option(name: str) -> bool:
    """True if the installed torch has the option ``name`` of torch._inductor.config."""
    from torch._inductor import config

    return name in config._config  # type: ignore[attr-defined]


@contextmanager
def _caches() -> Iterator[None]:
    """Triton's own cache, wherever that is, and a folder for Inductor's files that is removed afterwards.

    Inductor would set both for the whole process, move Triton's cache into its own folder, and leave files behind.
    Raises Unsupported for a Triton before 3.4, which has no ``knobs``.
    """
    try:
        from triton import knobs
    except ImportError:
        detail = "the installed Triton has no triton.knobs, by which generated code is compiled here: use 3.4 or later"
        raise Unsupported(Reason(ReasonCode.CAPABILITY, "triton.knobs", detail)) from None

    if knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is set: code is generated in a process without it, such as the pool's")
    with (
        tempfile.TemporaryDirectory(prefix="conformance-inductor-", ignore_cleanup_errors=True) as folder,
        mock.patch.dict(os.environ, TRITON_CACHE_DIR=knobs.cache.dir, TORCHINDUCTOR_CACHE_DIR=folder),
    ):
        yield


def _guards_untimed() -> AbstractContextManager[Any]:
    """Until exit Dynamo does not time the guards of what it has compiled. For that it would first empty the processor's
    caches, which slows the other processes, too. A release that does not time them is as it is."""
    from torch._dynamo import guards

    name = "profile_guard_manager"
    return mock.patch.object(guards, name, return_value=0.0) if hasattr(guards, name) else nullcontext()


def _forget_templates() -> None:
    """Empties Inductor's cache of generated templates, whose text depends on options that are not in its key."""
    from torch._inductor.select_algorithm import TritonTemplate

    for template in TritonTemplate.all_templates.values():
        cache = getattr(template, "_generated_code_cache", None)  # from torch 2.9 on
        if cache is not None:
            cache.cache_clear()


@contextmanager
def _watching(program: Program, log: CompilationLog) -> Iterator[None]:
    """Keeps the source of each module, and filters the choices that Inductor selects from."""
    from torch._inductor import select_algorithm
    from torch._inductor.graph import GraphLowering
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, TritonTemplate

    algorithms: Any = select_algorithm
    select = AlgorithmSelectorCache.__call__
    offer = TritonTemplate.maybe_append_choice

    def offering(template: Any, choices: list[Any], **options: Any) -> Any:
        if not _may_match(template.name, program.templates):
            return NotImplementedError(f"the program leaves no choice of {template.name}")
        if program.pick is None or not _names_template(program.templates) or program.descriptions is not None:
            return offer(template, choices, **options)
        choices.append(_Unwritten(template, options))
        return None

    def selecting(cache: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        candidates = matching(choices, program.templates, program.descriptions)
        left = candidates if program.pick is None or not candidates else _picked(candidates, program.pick, offer)
        log.lowerings.append(Lowering(name, described(choices), described(left), len(candidates)))
        return select(cache, name, left, *arguments, **options)  # raises NoValidChoicesError if nothing is left

    with (
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(log.modules.append)),
        mock.patch.object(AlgorithmSelectorCache, "__call__", selecting),
        mock.patch.object(TritonTemplate, "maybe_append_choice", offering),
        mock.patch.object(algorithms, "PyCodeCache", _unloaded(algorithms.PyCodeCache)),
    ):
        yield


# Writing the sources of all choices takes most of the time of a compilation. Where the program names a template and
# picks, only one is written.


def _names_template(templates: str | None) -> bool:
    """True if the program's expression names a template."""
    return templates is not None and templates.startswith("^triton_")


def _may_match(template: str, templates: str | None) -> bool:
    """True if a choice of ``template`` may match the program's expression."""
    return not _names_template(templates) or re.search(str(templates), f"triton_{template}_0") is not None


class _Unwritten:
    """A choice of ``template`` whose source is not written yet."""

    description = ""

    def __init__(self, template: Any, options: Mapping[str, Any]) -> None:
        self.template, self.options = template, options
        self.name = f"triton_{template.name}_0"
        self.layout = options.get("layout")
        # Releases ask the first choice of attention for what to measure with. One choice is left, and is not measured.
        self.input_nodes = options.get("input_nodes", ())

    def written(self, offer: Callable[..., Any]) -> list[Any]:
        """Returns the choice, or none if its template refuses it."""
        choices: list[Any] = []
        offer(self.template, choices, **self.options)
        return choices


def _picked(candidates: list[Any], pick: int, offer: Callable[..., Any]) -> list[Any]:
    """Returns the candidate at ``pick`` modulo their number, as a list. If its template refuses it: of those that are
    left."""
    candidate = candidates[pick % len(candidates)]
    if not isinstance(candidate, _Unwritten):
        return [candidate]
    left = candidate.written(offer)
    if left:
        return left
    written = [choice for unwritten in candidates for choice in unwritten.written(offer)]
    return [written[pick % len(written)]] if written else []


def _unloaded(cache: Any) -> Any:
    """The ``cache`` of modules as the selector sees it: the module of a choice is written, and not loaded. Only what
    times a choice needs it, and loads it by its path. Of some thirty choices most are never timed."""

    class Unloaded(cache):
        @classmethod
        def load(cls, source_code: str, extra: str = "", **options: Any) -> Any:
            key, path = cache.write(source_code, extra)
            return SimpleNamespace(key=key, __file__=path)

    return Unloaded


def matching(choices: list[Any], templates: str | None, descriptions: str | None) -> list[Any]:
    """Returns the ``choices`` in whose name and description the expressions are found; None is found in all."""
    return [
        choice
        for choice in choices
        if (templates is None or re.search(templates, choice.name))
        and (descriptions is None or re.search(descriptions, str(getattr(choice, "description", ""))))
    ]


#: class names of choices -> kinds; other classes, such as those of CUTLASS, are "other"
KINDS = {
    "TritonTemplateCallerBase": "triton",
    "_Unwritten": "triton",
    "ExternKernelCaller": "extern",
    "SubgraphChoiceCaller": "subgraph",
}


def described(choices: list[Any]) -> tuple[Choice, ...]:
    """``choices`` as data."""
    return tuple(
        Choice(
            choice.name,
            str(getattr(choice, "description", "")),
            next((KINDS[base.__name__] for base in type(choice).__mro__ if base.__name__ in KINDS), "other"),
            type(getattr(choice, "layout", None)).__name__,
        )
        for choice in choices
    )


def graphs() -> int:
    """Graphs that torch has compiled since it was told to forget."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def counted(log: CompilationLog) -> dict[str, int]:
    """``graphs`` compiled, ``recompiles`` of them after the first call, ``graph_breaks``, and Inductor's own."""
    counters = torch._dynamo.utils.counters
    own = {name: int(value) for name, value in counters["inductor"].items()}
    compiled = graphs()
    breaks = sum(counters["graph_break"].values())
    return own | {
        "graphs": compiled,
        "recompiles": compiled - log.first if log.first else 0,
        "graph_breaks": breaks,
    }


def failure_of(error: BaseException) -> Failure:
    """Returns the error as data, with the classes of its causes."""
    types: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        types.append(type(cause).__name__)
        cause = _cause(cause)
    return Failure(tuple(types), f"{type(error).__name__}: {error}")


def _cause(error: BaseException) -> BaseException | None:
    """Returns the error from which ``error`` was raised. Inductor keeps it as ``inner_exception`` or, hidden, names it
    in its text."""
    inner = getattr(error, "inner_exception", None) or error.__cause__
    context = error.__context__
    hidden = context is None or (error.__suppress_context__ and type(context).__name__ not in str(error))
    return inner if inner is not None or hidden else context
