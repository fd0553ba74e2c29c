"""Decisions of Inductor's that a program can have replaced: which, and how, while it is compiled."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.deviceless import DevicelessUnsupported
from conformance.inductor.compile.program import Decision, Scheduled
from conformance.inductor.tuning import prescreened_choices
from conformance.records import Reason, ReasonCode

#: What a replacement notes while torch compiles; plain data.
Notes = list[Any]


#: A class or module of Inductor's, its attribute, and what takes the attribute's place; or Inductor's own way to it.
Patch = tuple[Any, str, Any] | AbstractContextManager[Any]


def _times_are_infinite(notes: Notes, *, deferred: bool) -> list[Patch]:
    """Times every choice of every lowering as infinite when it is lowered, or, if ``deferred``, after the scheduler has
    fused what it can. Notes the number of choices each time."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, *arguments: Any, **options: Any) -> Any:
        return select(cache, *arguments, **{**options, "return_multi_template": deferred})

    def lookup(cache: Any, choices: list[Any], *arguments: Any, **options: Any) -> dict[Any, float]:
        notes.append(len(choices))
        return dict.fromkeys(choices, math.inf)

    return [(AlgorithmSelectorCache, "__call__", selecting), (AlgorithmSelectorCache, "lookup", lookup)]


def _selection_is_deferred(notes: Notes) -> list[Patch]:
    """The scheduler selects, when it has fused what it can."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, *arguments: Any, **options: Any) -> Any:
        return select(cache, *arguments, **{**options, "return_multi_template": True})

    return [(AlgorithmSelectorCache, "__call__", selecting)]


def _schedule_is_noted(notes: Notes) -> list[Patch]:
    """Returns the patches that note the nodes of the scheduler before it fuses them, and when it is done."""
    from torch._inductor.scheduler import Scheduler

    fuse, finish = Scheduler.fuse_nodes, Scheduler.compute_last_usage

    def note(stage: str, scheduler: Any, nodes: Iterable[Any]) -> None:
        notes.append((stage, dict(scheduler.mutation_renames), tuple(map(_scheduled, nodes))))

    def fusing(scheduler: Any, nodes: Any) -> Any:
        note("before fusion", scheduler, nodes)
        return fuse(scheduler, nodes)

    def finishing(scheduler: Any) -> Any:
        note("after fusion", scheduler, scheduler.nodes)
        return finish(scheduler)

    return [
        *_selection_is_deferred(notes),
        (Scheduler, "fuse_nodes", fusing),
        (Scheduler, "compute_last_usage", finishing),
    ]


def _scheduled(node: Any) -> Scheduled:
    """Returns a node of the scheduler as data."""
    outputs = node.get_outputs()
    return Scheduled(
        kind=type(node).__name__,
        operation=type(node.node).__name__,
        writes=tuple(buffer.get_name() for buffer in outputs),
        mutates=tuple(name for buffer in outputs for name in buffer.get_mutations()),
        unmet=tuple(sorted({dependency.name for dependency in node.unmet_dependencies})),
    )


def _k_may_be_split(notes: Notes) -> list[Patch]:
    """K is long enough for being split whatever M, N and K are, and not so long that nothing else is offered."""
    from torch._inductor.kernel import mm

    def use(m: Any, n: Any, k: Any, threshold_multiple: int = 1) -> bool:
        return threshold_multiple == 1

    return [(mm, "use_decompose_k_choice", use)]


def _k_is_split(notes: Notes) -> list[Patch]:
    """The same, and one choice of each lowering is left: the first that splits K, or the first of all. Notes
    (lowering, name of the choice)."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        left = [choice for choice in choices if choice.name.startswith("decompose_k")] or choices
        notes.append((name, left[0].name if left else None))
        return select(cache, name, left[:1], *arguments, **options)

    return [*_k_may_be_split(notes), (AlgorithmSelectorCache, "__call__", selecting)]


#: The one config in place of the exhaustive list, and of the user's. For AMD Inductor takes two stages for any config.
ONE_CONFIG: Mapping[str, int] = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_stages": 2, "num_warps": 4}


def _one_exhaustive_config(notes: Notes) -> list[Patch]:
    """The exhaustive list of configs holds :data:`ONE_CONFIG` alone."""
    module = _heuristics()
    config = module.GemmConfig(*ONE_CONFIG.values(), group_m=8)

    def configs(heuristic: Any) -> Any:
        return functools.partial(heuristic.preprocess_mm_configs, configs=[config])

    return [(module.BaseConfigHeuristic, "get_exhaustive_mm_configs", configs)]


def _table_is_used(notes: Notes) -> list[Patch]:
    """Choices come from Inductor's table of configs, as if the user had set its handler. Notes the two keys, with the
    device's name and without, of every product."""
    from torch._inductor.virtualized import V

    name = "torch._inductor.lookup_table.choices"
    with contextlib.suppress(ImportError):
        base: Any = importlib.import_module(name).LookupTableChoices

        class Noting(base):
            def make_lookup_key_variants(self, kernel_inputs: Any, op_name: str) -> Any:
                keys = super().make_lookup_key_variants(kernel_inputs, op_name)
                notes.append(keys)
                return keys

        return [V.set_choices_handler(Noting())]
    detail = f"torch {torch.__version__} has no module {name}"
    raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "lookup table", detail))


def _heuristic_is_overridden(notes: Notes) -> list[Patch]:
    """The heuristic of the template mm is replaced, as a user would, by one that offers :data:`ONE_CONFIG`."""
    registry = _registry()
    heuristics = _heuristics()
    template = "triton::mm"
    heuristic = registry.get_template_heuristic(template, "cuda", "mm")

    class Own(type(heuristic)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.mm_configs = [heuristics.GemmConfig(*ONE_CONFIG.values(), group_m=8)]

    return [registry.override_template_heuristics("cuda", [(template, "mm")], Own)]


def _registry() -> Any:
    """Inductor's module that registers heuristics by template. Raises DevicelessUnsupported without one."""
    for package in _HEURISTICS:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"{package}.registry")
            if hasattr(module, "override_template_heuristics"):
                return module
    detail = f"torch {torch.__version__} has no override_template_heuristics in {' or '.join(_HEURISTICS)}"
    raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "heuristics", detail))


def _contiguous_is_better(notes: Notes) -> list[Patch]:
    """Sizes never speak against making the second operand contiguous."""
    modules = []
    for name in ("torch._inductor.utils", *(f"{package}.contiguous_mm" for package in _HEURISTICS)):
        with contextlib.suppress(ImportError):
            modules.append(importlib.import_module(name))
    return [(module, "use_contiguous", lambda m, n, k: True) for module in modules if hasattr(module, "use_contiguous")]


def _without_descriptors(notes: Notes) -> list[Patch]:
    """Offers the persistent template without descriptors, which torch offers on AMD alone, in place of the one with
    descriptors; with the configs of NVIDIA's."""
    from torch._inductor.kernel import mm
    from torch._inductor.utils import get_num_sms

    module = _heuristics()
    registry = importlib.import_module(f"{module.__name__.rpartition('.')[0]}.registry")

    class Persistent(module.MMTemplateConfigMixin, module.CUDAConfigHeuristic):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.mm_configs = self.persistent_mm_configs

        def _get_template_configs_impl(self, *arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
            for fields in super()._get_template_configs_impl(*arguments, **options):
                yield {**fields, "NUM_SMS": get_num_sms()}

    template = mm.persistent_mm_template
    heuristics = {**registry._TEMPLATE_HEURISTIC_REGISTRY, (template.uid, "cuda", None): Persistent}
    return [
        (registry, "_TEMPLATE_HEURISTIC_REGISTRY", heuristics),
        (registry, "_HEURISTIC_CACHE", {}),
        (mm, "persistent_tma_mm_template", template),
        (mm, "use_triton_blackwell_tma_template", lambda *operands, **options: False),
    ]


def _nothing_is_pruned(notes: Notes) -> list[Patch]:
    """Every config stays that torch would drop for its shared memory. Notes what torch says of each, as a mapping."""
    base: Any = _heuristics().BaseConfigHeuristic
    choices: Any = importlib.import_module("torch._inductor.choices")
    names = "get_shared_memory_estimation", "_prune_exceeding_max_shared_mem_configs", "get_template_heuristic"
    for owner, name in zip((base, base, choices), names, strict=True):
        if not hasattr(owner, name):
            detail = f"torch {torch.__version__} has no {name}: what it estimates cannot be seen"
            raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "shared memory estimate", detail))
    heuristic_of, estimate, prune = choices.get_template_heuristic, *(getattr(base, name) for name in names[:2])
    templates: dict[int, str] = {}

    def remembering(template: str, *arguments: Any) -> Any:
        heuristic = heuristic_of(template, *arguments)
        templates[id(heuristic)] = template.removeprefix("triton::")
        return heuristic

    def pruning(heuristic: Any, configs: list[Any], *arguments: Any, **options: Any) -> list[Any]:
        called = inspect.signature(prune).bind(heuristic, configs, *arguments, **options)
        called.apply_defaults()
        kept = prune(*called.args, **called.kwargs)
        for config in configs:
            numbers = {name: getattr(config, name.lower()) for name in ONE_CONFIG}
            bytes_needed = int(estimate(heuristic, config, *called.args[2:], **called.kwargs))
            named = {"template": templates.get(id(heuristic)), "estimate": bytes_needed, "kept": config in kept}
            note = numbers | named | {"config": repr(config)}
            if note not in notes:  # tables have rows that are the same for these sizes
                notes.append(note)
        return configs

    return [(choices, names[2], remembering), (base, names[1], pruning)]


def _triton_is_prescreened(notes: Notes) -> list[Patch]:
    """Triton's choices are prescreened in place of CUTLASS's, and timed by their place: the last one is the fastest."""
    from torch._inductor import config, select_algorithm

    algorithms: Any = select_algorithm
    prescreening = prescreened_choices.place()
    if prescreening is None:
        detail = f"torch {torch.__version__} has no choices of CUTLASS's, which are what it prescreens"
        raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "prescreening", detail))
    cache, caller = algorithms.AlgorithmSelectorCache, algorithms.TritonTemplateCaller
    select = cache.__call__
    places: dict[str, int] = {}

    def selecting(selector: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        selector.prescreening_cache.clear()
        places.update((choice.name, place) for place, choice in enumerate(choices))
        for choice in choices:
            if isinstance(choice, caller):
                choice.bmreq.ensure_dll_loaded = lambda: None
        return select(selector, name, choices, *arguments, **options)

    def make_benchmark_fn(*arguments: Any, **options: Any) -> Callable[[list[Any]], dict[Any, float]]:
        def timed(choices: list[Any]) -> dict[Any, float]:
            notes.append([choice.name for choice in choices])
            return {choice: 1.0 / (1 + places[choice.name]) for choice in choices}

        return timed

    return [
        (prescreening[0], prescreening[1], caller),
        (importlib.import_module("torch._inductor.autotune_process"), "get_tuning_process_pool", lambda: None),
        (caller, "info_dict", lambda choice: {"swizzle": str(prescreened_choices.FIRST)}),
        (cache, "__call__", selecting),
        (cache, "make_benchmark_fn", make_benchmark_fn),
        config.patch(
            prescreened_choices.options(cutlass_prescreening=True, cutlass_max_profiling_swizzle_options=[1, 2])
        ),
    ]


def _fused_as_told(notes: Notes, *, registers: tuple[int, int], spills: int) -> list[Patch]:
    """The scheduler selects. No kernel is compiled for it: a product alone and a fused one take these ``registers``,
    and the fused one has so many ``spills``. Notes the nodes of each fused kernel that it asks for."""
    from torch._inductor import scheduler, select_algorithm

    caller: Any = select_algorithm.TritonTemplateCaller
    if not hasattr(scheduler, "_fuse_epilogue") or not hasattr(scheduler.Scheduler, "compile_kernel"):
        detail = f"torch {torch.__version__} does not decide by registers and spills what it fuses"
        raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "fusion", detail))
    launcher = SimpleNamespace(n_regs=registers[1], n_spills=spills)
    kernel = SimpleNamespace(launchers=[launcher], precompile=lambda: None)

    def compile_kernel(own: Any, nodes: Any, *arguments: Any, **options: Any) -> tuple[None, Any]:
        notes.append([node.get_name() for node in nodes])
        return None, SimpleNamespace(triton_=kernel)

    return [
        *_selection_is_deferred(notes),
        (scheduler.Scheduler, "compile_kernel", compile_kernel),
        (scheduler.BaseSchedulerNode, "_get_estimated_runtime", lambda node: 1e-6),  # it asks for the memory's speed
        (caller, "precompile", lambda choice: setattr(choice, "n_regs", registers[0])),
    ]


def _layouts_are_watched(notes: Notes) -> list[Patch]:
    """The scheduler selects, Triton's choices are the fastest, and every fusion fits. Notes when layouts are fixed."""
    from torch._inductor import ir, scheduler, select_algorithm

    algorithms: Any = select_algorithm
    if not hasattr(scheduler.Scheduler, "_has_layout_conflict_for_template"):
        detail = f"torch {torch.__version__} fixes layouts before it selects"
        raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "deferred layouts", detail))

    def make_benchmark_fn(*arguments: Any, **options: Any) -> Callable[[list[Any]], dict[Any, float]]:
        slow = algorithms.ExternKernelCaller
        return lambda choices: {choice: 2.0 if isinstance(choice, slow) else 1.0 for choice in choices}

    def watched(freeze: Callable[..., None]) -> Callable[..., None]:
        def freezing(buffer: Any, *arguments: Any, **options: Any) -> None:
            flexible = isinstance(buffer.layout, ir.FlexibleLayout)
            freeze(buffer, *arguments, **options)
            strides = tuple(int(stride) for stride in buffer.layout.stride)
            notes.append({"buffer": buffer.get_name(), "flexible": flexible, "strides": strides})

        return freezing

    names = [name for name in vars(ir.Buffer) if name.startswith("freeze_layout")]
    return [
        *_fused_as_told([], registers=(64, 64), spills=0),
        (algorithms.AlgorithmSelectorCache, "make_benchmark_fn", make_benchmark_fn),
        *[(ir.Buffer, name, watched(getattr(ir.Buffer, name))) for name in names],
    ]


@contextmanager
def _pool_of_one(notes: Notes) -> Iterator[None]:
    """A stand-in for the process that times choices. Notes the names of those that are submitted to it."""
    tuning = prescreened_choices.module()
    start = tuning.AsyncAutotuner.start

    def starting(choices: list[Any], *arguments: Any) -> None:
        notes.extend(choice.name for choice in choices)
        start(choices, *arguments)

    with (
        prescreened_choices.pool_in_place(lambda place: 1.0 / (1 + place)) as pool,
        mock.patch.object(tuning.AsyncAutotuner, "start", starting),
    ):
        pool.gate.set()
        yield


def _selection_is_pipelined(notes: Notes) -> list[Patch]:
    """Choices are timed by a stand-in for the process of pipelined autotuning: the last one is the fastest."""
    if prescreened_choices.module() is None:
        detail = f"torch {torch.__version__} has no pipelined autotuning as it is known here"
        raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, prescreened_choices.OPTION, detail))
    return [_pool_of_one(notes)]


#: Packages of Inductor's heuristics of templates, by release.
_HEURISTICS = ("torch._inductor.heuristics.template", "torch._inductor.template_heuristics")


def _heuristics() -> Any:
    """Inductor's module of lists of configs. Raises DevicelessUnsupported if it is where no known release has it."""
    for name in (*(f"{package}.triton" for package in _HEURISTICS), *_HEURISTICS):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if hasattr(module, "BaseConfigHeuristic") and hasattr(module, "GemmConfig"):
                return module
    detail = f"torch {torch.__version__} has no BaseConfigHeuristic in {' or '.join(_HEURISTICS)}"
    raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "exhaustive configs", detail))


#: What replaces a decision, and notes what the test asks of it.
_REPLACEMENTS: Mapping[Decision, Callable[[Notes], list[Patch]]] = {
    Decision.TIMES_ARE_INFINITE: functools.partial(_times_are_infinite, deferred=False),
    Decision.DEFERRED_TIMES_ARE_INFINITE: functools.partial(_times_are_infinite, deferred=True),
    Decision.SELECTION_IS_DEFERRED: _selection_is_deferred,
    Decision.SCHEDULE_IS_NOTED: _schedule_is_noted,
    Decision.K_MAY_BE_SPLIT: _k_may_be_split,
    Decision.K_IS_SPLIT: _k_is_split,
    Decision.ONE_EXHAUSTIVE_CONFIG: _one_exhaustive_config,
    Decision.TABLE_IS_USED: _table_is_used,
    Decision.HEURISTIC_IS_OVERRIDDEN: _heuristic_is_overridden,
    Decision.CONTIGUOUS_IS_BETTER: _contiguous_is_better,
    Decision.WITHOUT_DESCRIPTORS: _without_descriptors,
    Decision.LAYOUTS_ARE_WATCHED: _layouts_are_watched,
    Decision.NOTHING_IS_PRUNED: _nothing_is_pruned,
    Decision.SELECTION_IS_PIPELINED: _selection_is_pipelined,
    Decision.FUSION_FITS: functools.partial(_fused_as_told, registers=(64, 64), spills=7),
    Decision.FUSION_SPILLS: functools.partial(_fused_as_told, registers=(64, 64), spills=8),
    Decision.FUSION_CROWDS: functools.partial(_fused_as_told, registers=(64, 255), spills=0),
    Decision.TRITON_IS_PRESCREENED: _triton_is_prescreened,
}

#: Functions of torch._inductor.utils that remember their answer for sizes, whatever the options were.
REMEMBERING = ("use_decompose_k_choice", "get_k_splits", "use_contiguous")


@contextmanager
def replacing(decision: Decision | None) -> Iterator[Notes]:
    """Replaces ``decision`` until exit; yields a list that fills with what the replacement notes.

    What Inductor remembers of sizes is forgotten at the beginning and at the end, also without a decision: it depends
    on the options.
    """
    notes: Notes = []
    _forget()
    with ExitStack() as stack:
        stack.callback(_forget)
        for patch in [] if decision is None else _REPLACEMENTS[decision](notes):
            stack.enter_context(mock.patch.object(*patch) if isinstance(patch, tuple) else patch)
        yield notes


def _forget() -> None:
    utils = sys.modules.get("torch._inductor.utils")
    for name in REMEMBERING:
        clear = getattr(getattr(utils, name, None), "cache_clear", None)
        if clear is not None:
            clear()
