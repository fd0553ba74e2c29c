"""Inductor's caches: products that may share a generated template, and how the compiler counts them. Its checks are
about what is found again and what is in a key."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.execution.compile.compile_worker import named
from conformance.inductor.compile.program import Program
from conformance.inductor.tuning import stand_ins
from conformance.inductor.tuning.max_autotune import compiling
from conformance.inductor.tuning.stand_ins import selector_restored
from conformance.problems import DTYPES, Operand
from conformance.records import Verdict
from conformance.targets import Target


def two_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return a @ b, c @ d


def product_and_twice(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a product, and one of twice the rows."""
    return a @ b, torch.cat((a, a)) @ b


def ten_products(*operands: Tensor) -> list[Tensor]:
    """Returns the product of each of ten pairs."""
    return [a @ b for a, b in zip(operands[::2], operands[1::2], strict=True)]


def two_sums_of_products(*operands: Tensor) -> list[Tensor]:
    """a @ b + c @ d of each of two fours."""
    return [a @ b + c @ d for a, b, c, d in zip(*[iter(operands)] * 4, strict=True)]


@dataclass(frozen=True)
class Counted:
    """The counts of one compilation: choices of the first lowering that are Triton templates, hits and misses of the
    cache of generated templates. ``failure`` is the text of what stopped it."""

    templates: int
    hits: int
    misses: int
    failure: str = ""


def key_is_constant() -> AbstractContextManager[Any]:
    """Until exit the cache takes every template for the same."""
    from torch._inductor.select_algorithm import GeneratedCodeCache

    return mock.patch.object(GeneratedCodeCache, "make_key", return_value="the same for all")


def count_generated(payload: tuple[Program, bool], target: Target) -> Counted:
    """In a compile process: what generating a program's code counts. The second of ``payload`` says whether the key of
    the cache is constant."""
    from conformance.inductor.compile.deviceless_worker import generate

    program, constant_key = payload
    with key_is_constant() if constant_key else contextlib.nullcontext():
        generated = generate(program, target)
    offered = generated.lowerings[0].offered if generated.lowerings else ()
    failure = generated.failure.message if generated.failure else ""
    return _counted(sum(choice.kind == "triton" for choice in offered), generated.counters, failure)


def count_compiled(program: Program, constant_key: bool) -> Counted:
    """The counters of a program that is compiled and called on a device."""
    from torch._inductor.ir import TritonTemplateCallerBase

    offered: list[int] = []

    def watch(choices: list[Any]) -> list[Any]:
        offered.append(sum(isinstance(choice, TritonTemplateCallerBase) for choice in choices))
        return choices

    failure = ""
    with contextlib.ExitStack() as stack:
        if constant_key:
            stack.enter_context(key_is_constant())
        # padding is decided by timing, and what is padded has a layout that the cache does not take
        counters = stack.enter_context(compiling(**{"shape_padding": False, **dict(program.settings)}))
        torch._dynamo.reset()
        stack.enter_context(selector_restored()).add_preprocessing_fn(watch)
        try:
            torch.compile(named(program.graph), dynamic=program.dynamic)(*map(_on_device, program.operands))
        except Exception as error:  # what stopped it is judged
            failure = str(error)
        return _counted(offered[0] if offered else 0, counters["inductor"], failure)


def _on_device(operand: Operand) -> Tensor:
    storage = torch.zeros(operand.span, dtype=DTYPES[operand.dtype], device=torch.accelerator.current_accelerator())
    return storage.as_strided(operand.shape, operand.strides)


def _counted(templates: int, counters: Mapping[str, int], failure: str) -> Counted:
    hits, misses = (counters.get(f"generated_module_cache_{name}", 0) for name in ("hit", "miss"))
    return Counted(templates, hits, misses, failure)


WRONG_OUTPUT = "Generated code cache results in wrong output"


def check_repeated(counted: Counted, repeats: int) -> list[Verdict]:
    """The first lowering misses once for each template. Each of the ``repeats`` hits once for each."""
    count = counted.templates
    return [
        Verdict("compiled", not counted.failure, counted.failure),
        Verdict("templates", count > 0, f"{count} templates were offered"),
        Verdict("misses", counted.misses == count, f"{counted.misses}, {count} required"),
        Verdict("hits", counted.hits == count * repeats, f"{counted.hits}, {count * repeats} required"),
    ]


def check_different(counted: Counted) -> list[Verdict]:
    """Both lowerings miss for every template."""
    return [
        Verdict("compiled", not counted.failure, counted.failure),
        Verdict("hits", counted.hits == 0, f"{counted.hits}, 0 required"),
        Verdict("misses", counted.misses > counted.templates > 0, f"{counted.misses} of {counted.templates} and more"),
    ]


def check_wrong_key(right: Counted, wrong: Counted) -> list[Verdict]:
    """Inductor's own comparison raises nothing for a right key and an error for a wrong one."""
    return [
        Verdict("right key", not right.failure and right.hits > 0, right.failure or f"{right.hits} hits were compared"),
        Verdict("wrong key", WRONG_OUTPUT in wrong.failure, wrong.failure[:300] or "nothing was raised"),
    ]


def _layout(**changes: Any) -> SimpleNamespace:
    fields = {"size": [10, 22], "stride": [22, 1], "dtype": torch.float32, "device": torch.device("cpu"), "offset": 0}
    return SimpleNamespace(**(fields | changes))


def _node(name: str = "first", **changes: Any) -> SimpleNamespace:
    layout = _layout(**changes)
    return SimpleNamespace(get_layout=lambda: layout, get_name=lambda: name)


#: Arguments of a template of which no two values may share an entry.
KEY_VALUES: dict[str, list[Any]] = {
    "input_nodes": [
        (_node(), _node("second")),
        (_node(),),
        (_node(size=[11, 22]), _node("second")),
        (_node(stride=[1, 10]), _node("second")),
        (_node(dtype=torch.float16), _node("second")),
        (_node(device=torch.device("meta")), _node("second")),
        (_node(offset=4), _node("second")),
    ],
    "layout": [_layout(), _layout(size=[10, 30]), _layout(stride=[32, 1]), _layout(dtype=torch.float16)],
    "num_stages": [1, 2],
    "num_warps": [2, 4],
    "call_sizes": [[10, 30], [10, 31]],
    "prefix_args": [0, 1],
    "suffix_args": [0, 1],
    "epilogue_fn_hash": ["one", "another"],
    "num_consumer_groups": [0, 2],
    "num_buffers_warp_spec": [0, 3],
    "tma_store": [False, True],
    "tma_load_for_template_epilogue": [False, True],
    "transpose_discontiguous_tensor_descriptors_override": [None, True],
    "kwargs": [{"BLOCK_M": 16, "ALLOW_TF32": True}, {"BLOCK_M": 32, "ALLOW_TF32": True}],
    "hint_override": [None, 64],
    "triton_meta": [None, {"waves_per_eu": 2}],
}


#: Arguments that make a template one that is not kept.
NOT_KEPT: dict[str, list[Any]] = {"subgraphs": [[]], "workspace_arg": ["a workspace"], "epilogue_fn_hash": [None]}


#: Arguments outside the key: epilogue_fn is in it as a hash, generate_with_caching asks for the cache.
NO_PART = ("self", "epilogue_fn", "generate_with_caching")


#: Options whose values are in the text of every template.
OPTIONS_IN_THE_TEXT = ("max_autotune", "triton.store_cubin")


#: The part of the text that asks for a device.
BACKEND_HASH = "torch.utils._triton.triton_hash_with_backend"


def _taken(make_key: Callable[..., Any]) -> set[str]:
    """Returns the arguments of a key."""
    return set(inspect.signature(make_key).parameters) - {"self"}


def _varied(parameters: set[str]) -> dict[str, list[Any]]:
    """Values of each argument that is in the key, those that are not listed here among them."""
    unlisted = parameters - set(KEY_VALUES) - set(NOT_KEPT) - set(NO_PART)
    return KEY_VALUES | {name: ["one", "another"] for name in sorted(unlisted)}


def _usual_arguments(make_key: Callable[..., Any]) -> dict[str, Any]:
    """Arguments with which ``make_key`` makes a key: the first value of each."""
    parameters = _taken(make_key)
    usual = {name: values[0] for name, values in _varied(parameters).items()} | dict.fromkeys(NOT_KEPT)
    usual |= {"epilogue_fn_hash": KEY_VALUES["epilogue_fn_hash"][0]}
    return {name: value for name, value in usual.items() if name in parameters} | {"epilogue_fn": len}


def check_options(make_key: Callable[..., Any], in_text: Callable[[], Any]) -> list[Verdict]:
    """An option whose value is in a template's text changes the template's key. ``in_text`` returns that part of the
    text."""
    from torch._inductor import config

    arguments, verdicts = _usual_arguments(make_key), []
    for option in OPTIONS_IN_THE_TEXT:
        texts, keys = set(), set()
        for value in (False, True):
            with config.patch({option: value}), mock.patch(BACKEND_HASH, return_value="any backend"):
                texts.add(repr(in_text()))
                keys.add(make_key(**arguments))
        text = f"{len(keys)} keys of {len(texts)} texts"
        verdicts.append(Verdict(f"distinct/{option}", len(texts) == 1 or len(keys) == len(texts), text))
    return verdicts


def check_key(make_key: Callable[..., Any], generating: Callable[..., Any]) -> list[Verdict]:
    """Every argument of a template's generation that may change its code changes its key; some have no key."""
    parameters = _taken(make_key)
    needed = set(inspect.signature(generating).parameters) - set(NO_PART)
    varied = _varied(parameters)
    base = _usual_arguments(make_key)

    def key(**changes: Any) -> Any:
        return make_key(**(base | changes))

    verdicts = [
        Verdict("complete", needed <= parameters, f"not in the key: {sorted(needed - parameters)}"),
        Verdict("repeatable", key() is not None and key() == key(), "the same twice"),
    ]
    for name, values in varied.items():
        if name in parameters:
            keys = [key(**{name: value}) for value in values]
            distinct = len(set(keys)) == len(values) and None not in keys
            verdicts.append(Verdict(f"distinct/{name}", distinct, f"{len(set(keys))} keys of {len(values)} values"))
    for name, values in NOT_KEPT.items():
        with_key = [value for value in values if key(**{name: value}) is not None]
        verdicts.append(Verdict(f"not kept/{name}", not with_key, f"{with_key} have a key"))
    return verdicts


def check_times_are_kept() -> list[Verdict]:
    """Kept times, in memory or on disk, are used again. A new input, operation, precision or choice is timed."""
    from torch._inductor import config

    verdicts: list[Verdict] = []

    def measure(check: str, expected: int, **options: Any) -> None:
        choices = [session.stand_in(f"choice {index}", 2.0 - index) for index in range(options.pop("count", 2))]
        selected = session.select(choices, **options)
        times = [choice.measured for choice in choices]
        verdicts.append(Verdict(check, times == [expected] * len(times), f"{times} times, {expected} each required"))
        verdicts.append(
            Verdict(f"{check}/taken", selected is choices[-1], f"took {getattr(selected, 'name', selected)}")
        )

    with stand_ins.selecting() as session:
        measure("first", 1)
        measure("again", 0)
        measure("other operation", 1, name="bmm")
        measure("other input", 1, nodes=[session.node("c", 32, 8), session.node("b", 8, 16)])
        measure("other choice", 1, count=3)
        with _precision("high"):
            measure("other precision", 1)
        measure("as at first", 0)
        with config.patch(autotune_local_cache=False):
            measure("cache off", 1)
    with stand_ins.selecting() as session:
        measure("other folder", 1)
    return verdicts


@contextlib.contextmanager
def _precision(name: str) -> Iterator[None]:
    candidates: list[Any] = [
        getattr(backend, "matmul", None) for backend in (torch.backends.cuda, torch.backends.mkldnn)
    ]
    backends = [backend for backend in candidates if hasattr(backend, "fp32_precision")]  # from torch 2.9 on
    before = torch.get_float32_matmul_precision(), [backend.fp32_precision for backend in backends]
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])  # says "ieee" to backends that were told nothing before
        for backend, own in zip(backends, before[1], strict=True):
            backend.fp32_precision = own


def tagged(tag: str) -> Any:
    from torch.compiler import config

    settings: Any = config
    return settings.patch(cache_key_tag=tag)


class InMemory:
    """A remote cache that is here: counts what is asked of it."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.puts = self.hits = self.misses = 0

    def get(self, key: str) -> Any:
        entry = self.entries.get(key)
        self.hits += entry is not None
        self.misses += entry is None
        return entry

    def put(self, key: str, data: Any) -> None:
        self.puts += 1
        self.entries[key] = data


@contextlib.contextmanager
def remote_cache() -> Iterator[InMemory]:
    """Inductor's remote cache of configs is an :class:`InMemory` until exit, its local and other ones are off."""
    from torch._inductor import config, remote_cache

    cache = InMemory()

    def backend() -> InMemory:
        return cache

    off = ("autotune_local_cache", "fx_graph_cache", "fx_graph_remote_cache", "bundled_autotune_remote_cache")
    with (
        mock.patch.object(remote_cache.RemoteAutotuneCache, "backend_override_cls", backend),
        config.patch({**dict.fromkeys(off, False), "autotune_remote_cache": True}),
    ):
        yield cache


#: The figures of four runs and of one under another tag.
PUTS, HITS, MISSES = 2, 3, 2


def check_statistics(cache: InMemory) -> list[Verdict]:
    figures = (cache.puts, cache.hits, cache.misses)
    return [Verdict("statistics", figures == (PUTS, HITS, MISSES), f"puts, hits, misses {figures}")]


def check_remote_configs() -> list[Verdict]:
    """The best config is put once, and each later run reads it with all its fields. Under another tag it is unknown."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    from triton import Config

    configs = [Config({"XBLOCK": size}, num_warps=warps) for size, warps in ((64, 2), (128, 4), (256, 8))]
    meta = {"autotune_local_cache": False, "autotune_remote_cache": True, "backend_hash": "a backend"}
    read = []
    with remote_cache() as cache:
        for tag in ("", "", "", "", "another"):
            with tagged(tag):
                cache_of_run: Any = AutotuneCache.create(meta, "/a/folder/kernel.py", "a hash of the configs")
                best = cache_of_run.read_best(meta, configs)
                read.append(best)
                if best is None:
                    cache_of_run.save(configs[1], 1_000_000)
    unknown = [config is None for config in read]
    same = [config for config in read if config is not None and str(config) != str(configs[1])]
    return [
        *check_statistics(cache),
        Verdict("known", unknown == [True, False, False, False, True], f"unknown: {unknown}"),
        Verdict("config", not same, f"{same or configs[1]}"),
    ]
