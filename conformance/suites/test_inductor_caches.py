"""Inductor's caches: of generated templates, of the times of choices, and of the configs of generated kernels.

What is in a cache's key is judged by what happens: the same again is found, anything else is not.
"""

import contextlib
import inspect
import itertools
import math
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from conformance import targets
from conformance.execution.compilation import Task
from conformance.inductor.compile.program import Program
from conformance.inductor.tuning import max_autotune, stand_ins, template_cache
from conformance.judging.case_steps import need_device, record
from conformance.problems import Operand
from conformance.records import CompileFailure, Status, Verdict

#: Options of the programs whose templates are counted: four configs of each, and nothing but templates.
SETTINGS = (("max_autotune", True), ("max_autotune_gemm_backends", "TRITON"), ("test_configs.max_mm_configs", 4))

WRONG_OUTPUT = "Generated code cache results in wrong output"


# --- generated templates: hits and misses -----------------------------------------------------------------------------


def _program(graph, shapes, *, dtype="fp32", transposed=(), dynamic=False, backends="TRITON"):
    """A program over dense operands of ``shapes``; those at ``transposed`` are column-major."""
    operands = []
    for index, shape in enumerate(shapes):
        strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        if index in transposed:
            strides[-2:] = [1, shape[-2]]
        operands.append(Operand(f"x{index}", shape, tuple(strides), dtype))
    settings = (*SETTINGS[:1], ("max_autotune_gemm_backends", backends), *SETTINGS[2:])
    return Program(
        f"conformance.inductor.tuning.template_cache:{graph}", tuple(operands), settings=settings, dynamic=dynamic
    )


A, B = (10, 22), (22, 30)

#: name -> program, and how many lowerings of the first's templates it repeats.
REPEATED = {
    "pair": (_program("two_products", [A, B, A, B]), 1),
    "pair-dynamic": (_program("two_products", [A, B, A, B], dynamic=True), 1),
    "ten": (_program("ten_products", [A, B] * 10), 9),
    "ten-dynamic": (_program("ten_products", [A, B] * 10, dynamic=True), 9),
    "bmm": (_program("two_products", [(10, *A), (10, *B)] * 2), 1),
    "mm_plus_mm": (
        _program("two_sums_of_products", [(10, 40), (40, 30), (10, 40), (40, 30)] * 2, backends="ATEN,TRITON"),
        1,
    ),
}

#: Two products that differ in what the name says.
DIFFERENT = {
    "rows": _program("two_products", [A, B, (11, 22), B]),
    "depth": _program("two_products", [A, B, (10, 26), (26, 30)]),
    "symbols": _program("two_products", [A, B, (11, 23), (23, 31)], dynamic=True),
    "expression": _program("product_and_twice", [A, B], dynamic=True),
    "strides": _program("two_products", [A, B, A, B], transposed=[3]),
}


def judge_repeated(counted, repeats):
    """The first lowering misses once for each template, each one like it hits as often."""
    count = counted.templates
    return [
        Verdict("compiled", not counted.failure, counted.failure),
        Verdict("templates", count > 0, f"{count} templates were offered"),
        Verdict("misses", counted.misses == count, f"{counted.misses}, {count} required"),
        Verdict("hits", counted.hits == count * repeats, f"{counted.hits}, {count * repeats} required"),
    ]


def judge_different(counted):
    """Both lowerings miss."""
    return [
        Verdict("compiled", not counted.failure, counted.failure),
        Verdict("hits", counted.hits == 0, f"{counted.hits}, 0 required"),
        Verdict("misses", counted.misses > counted.templates > 0, f"{counted.misses} of {counted.templates} and more"),
    ]


def _counted(harness, recorder, program, constant_key=None):
    """What compiling ``program`` counts, on the device or, for sm_90, without one."""
    if harness.settings.has_gpu and not harness.settings.compile_only:
        recorder.set(executor="device", target=harness.targets[0])
        return template_cache.count_compiled(program, constant_key)
    target = targets.find("sm_90")
    recorder.set(target=target)
    task = Task("conformance.inductor.tuning.template_cache:count_generated", (program, constant_key), target)
    result = harness.pool.submit(task).result()
    if result.reason is not None:
        recorder.not_run(result.reason)
    if result.status is not Status.PASS:
        raise CompileFailure(result.status, result.error)
    return result.value


@pytest.mark.parametrize("name", list(REPEATED))
def test_repeated_lowering_is_found(harness, recorder, name):
    """The same lowering again takes every template from the cache. Unlike PyTorch's test, for static and dynamic pairs
    alike without a device, and by the number of templates that are really offered."""
    program, repeats = REPEATED[name]
    record(recorder, judge_repeated(_counted(harness, recorder, program), repeats))


@pytest.mark.parametrize("name", list(DIFFERENT))
def test_different_lowering_is_not_found(harness, recorder, name):
    """Another size, symbol, expression or stride is another template. PyTorch's tests have no pair that differs in
    static sizes or in strides."""
    record(recorder, judge_different(_counted(harness, recorder, DIFFERENT[name])))


def judge_wrong_key(right, wrong):
    """Inductor's own comparison is silent where the key is right and speaks up where it is wrong."""
    return [
        Verdict("right key", not right.failure and right.hits > 0, right.failure or f"{right.hits} hits were compared"),
        Verdict("wrong key", WRONG_OUTPUT in wrong.failure, wrong.failure[:300] or "nothing was raised"),
    ]


def test_wrong_key_is_detected(harness, recorder):
    """A key that takes different products for the same is noticed where the cache tests itself. Unlike PyTorch's
    test, which plants a fault in what is kept, the key itself is wrong, and a right one is shown to be silent."""
    right = _counted(harness, recorder, REPEATED["pair"][0], constant_key=False)
    wrong = _counted(harness, recorder, DIFFERENT["symbols"], constant_key=True)
    record(recorder, judge_wrong_key(right, wrong))


# --- generated templates: the key -------------------------------------------------------------------------------------


def _layout(**changes):
    fields = {"size": [10, 22], "stride": [22, 1], "dtype": torch.float32, "device": torch.device("cpu"), "offset": 0}
    return SimpleNamespace(**(fields | changes))


def _node(name="first", **changes):
    layout = _layout(**changes)
    return SimpleNamespace(get_layout=lambda: layout, get_name=lambda: name)


#: Arguments of a template of which no two values may share an entry.
KEY_VALUES: dict[str, list] = {
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
NOT_KEPT: dict[str, list] = {"subgraphs": [[]], "workspace_arg": ["a workspace"], "epilogue_fn_hash": [None]}

#: Arguments that change nothing in a template: one is what the hash is of, the other asks for the cache.
NO_PART = ("self", "epilogue_fn", "generate_with_caching")


def judge_key(make_key, generating):
    """Every argument of a template's generation that may change its code changes its key; some have no key."""
    taken = set(inspect.signature(make_key).parameters) - {"self"}
    needed = set(inspect.signature(generating).parameters) - set(NO_PART)
    unlisted = taken - set(KEY_VALUES) - set(NOT_KEPT) - set(NO_PART)
    varied = KEY_VALUES | {name: ["one", "another"] for name in sorted(unlisted)}
    base: dict[str, Any] = {name: values[0] for name, values in varied.items()} | dict.fromkeys(
        ("subgraphs", "workspace_arg")
    )
    base = {name: value for name, value in base.items() if name in taken} | {"epilogue_fn": len}

    def key(**changes):
        return make_key(**(base | changes))

    found = [
        Verdict("complete", needed <= taken, f"not in the key: {sorted(needed - taken)}"),
        Verdict("repeatable", key() is not None and key() == key(), "the same twice"),
    ]
    for name, values in varied.items():
        if name in taken:
            keys = [key(**{name: value}) for value in values]
            distinct = len(set(keys)) == len(values) and None not in keys
            found.append(Verdict(f"distinct/{name}", distinct, f"{len(set(keys))} keys of {len(values)} values"))
    for name, values in NOT_KEPT.items():
        kept = [value for value in values if key(**{name: value}) is not None]
        found.append(Verdict(f"not kept/{name}", not kept, f"{kept} have a key"))
    return found


def test_key_of_generated_template(recorder):
    """Any two different templates have different keys. Unlike PyTorch's test, which counts the arguments and compares
    one key's text, each argument is varied."""
    from torch._inductor.select_algorithm import GeneratedCodeCache, TritonTemplate

    record(recorder, judge_key(GeneratedCodeCache().make_key, TritonTemplate.generate_and_load))


# --- times of choices -------------------------------------------------------------------------------------------------


def judge_times_are_kept():
    """Known times are not measured again, on disk as in memory; another input, operation, precision or choice is."""
    found: list[Verdict] = []

    def measure(check, expected, **options):
        choices = [session.stand_in(f"choice {index}", 2.0 - index) for index in range(options.pop("count", 2))]
        taken = session.select(choices, **options)
        times = [choice.measured for choice in choices]
        found.append(Verdict(check, times == [expected] * len(times), f"{times} times, {expected} each required"))
        found.append(Verdict(f"{check}/taken", taken is choices[-1], f"took {getattr(taken, 'name', taken)}"))

    with stand_ins.selecting() as session:
        measure("first", 1)
        measure("again", 0)
        measure("other operation", 1, name="bmm")
        measure("other input", 1, nodes=[session.node("c", 32, 8), session.node("b", 8, 16)])
        measure("other choice", 1, count=3)
        with _precision("high"):
            measure("other precision", 1)
        measure("as at first", 0)
        with _setting(autotune_local_cache=False):
            measure("cache off", 1)
    with stand_ins.selecting() as session:
        measure("other folder", 1)
    return found


@contextlib.contextmanager
def _precision(name):
    known: list[Any] = [getattr(backend, "matmul", None) for backend in (torch.backends.cuda, torch.backends.mkldnn)]
    backends = [each for each in known if hasattr(each, "fp32_precision")]  # from torch 2.9 on
    before = torch.get_float32_matmul_precision(), [each.fp32_precision for each in backends]
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])  # says "ieee" to backends that were told nothing before
        for backend, own in zip(backends, before[1], strict=True):
            backend.fp32_precision = own


def _setting(**settings):
    from torch._inductor import config

    return config.patch(**settings)


def _tagged(tag):
    from torch.compiler import config

    settings: Any = config
    return settings.patch(cache_key_tag=tag)


def test_times_are_kept(recorder):
    """What was timed once is not timed again, and nothing else is taken for it. PyTorch's test of this looks at what is
    compiled ahead, and without calling what it compiled."""
    record(recorder, judge_times_are_kept())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["fp16", "fp32"])
def test_times_of_a_compilation_are_kept(harness, recorder, dtype):
    """Compiled again, a function compiles nothing ahead and times nothing. Unlike PyTorch's test, what was compiled
    again is called, or nothing would have been compiled at all."""
    need_device(harness, recorder, "timing real kernels")
    device = torch.accelerator.current_accelerator()
    tensors = [max_autotune.integers(256, 256, seed=seed, dtype=dtype).clamp(-1, 1) for seed in range(2)]
    third = torch.eye(256, dtype=dtype).roll(1, 0)  # a permutation: the second product is exact as well
    expected = tensors[0].double() @ tensors[1].double() @ third.double()
    counts = []
    with max_autotune.compiling(fx_graph_cache=False, shape_padding=False) as counters:
        for _ in range(2):
            torch._dynamo.reset()
            stand_ins.selector().cache_clear()
            before = [counters[name] for name in _WORK]
            found = torch.compile(_chain, dynamic=False)(*(x.to(device) for x in (*tensors, third))).cpu()
            counts.append([counters[name] - count for name, count in zip(_WORK, before, strict=True)])
            recorder.verdict("numbers", torch.equal(found.double(), expected), "the product of whole numbers")
    recorder.verdict("first", counts[0][1] > 0, f"{dict(zip(_WORK, counts[0], strict=True))}")
    recorder.verdict("again", counts[1] == [0, 0], f"{dict(zip(_WORK, counts[1], strict=True))}, none required")


_WORK = ("select_algorithm_precompile", "select_algorithm_autotune")


def _chain(a, b, c):
    return (a @ b) @ c


# --- configs of generated kernels, kept far away ----------------------------------------------------------------------


class InMemory:
    """A remote cache that is here: counts what is asked of it."""

    def __init__(self):
        self.entries = {}
        self.puts = self.hits = self.misses = 0

    def get(self, key):
        found = self.entries.get(key)
        self.hits += found is not None
        self.misses += found is None
        return found

    def put(self, key, data):
        self.puts += 1
        self.entries[key] = data


@contextlib.contextmanager
def remote_cache():
    """Inductor's remote cache of configs is an :class:`InMemory` until exit, its local and other ones are off."""
    from torch._inductor import remote_cache

    cache = InMemory()

    def backend():
        return cache

    settings = {"autotune_local_cache": False, "autotune_remote_cache": True, "fx_graph_cache": False}
    others = ("fx_graph_remote_cache", "bundled_autotune_remote_cache")
    with (
        mock.patch.object(remote_cache.RemoteAutotuneCache, "backend_override_cls", backend),
        _setting(**settings, **dict.fromkeys(others, False)),
    ):
        yield cache


#: The figures of four runs and of one under another tag.
PUTS, HITS, MISSES = 2, 3, 2


def judge_statistics(cache):
    figures = (cache.puts, cache.hits, cache.misses)
    return [Verdict("statistics", figures == (PUTS, HITS, MISSES), f"puts, hits, misses {figures}")]


def judge_remote_configs():
    """A config that was found best is put once and read by each later run, with all its fields; under another tag it
    is unknown."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    from triton import Config

    configs = [Config({"XBLOCK": size}, num_warps=warps) for size, warps in ((64, 2), (128, 4), (256, 8))]
    meta = {"autotune_local_cache": False, "autotune_remote_cache": True, "backend_hash": "a backend"}
    read = []
    with remote_cache() as cache:
        for tag in ("", "", "", "", "another"):
            with _tagged(tag):
                asked: Any = AutotuneCache.create(meta, "/a/folder/kernel.py", "a hash of the configs")
                best = asked.read_best(meta, configs)
                read.append(best)
                if best is None:
                    asked.save(configs[1], 1_000_000)
    known = [config is None for config in read]
    same = [config for config in read if config is not None and str(config) != str(configs[1])]
    return [
        *judge_statistics(cache),
        Verdict("known", known == [True, False, False, False, True], f"unknown: {known}"),
        Verdict("config", not same, f"{same or configs[1]}"),
    ]


def test_remote_configs(recorder):
    """Four runs of one kernel and one under another tag, of the cache alone. PyTorch tests it on a device only."""
    record(recorder, judge_remote_configs())


def _sine_product(a, b):
    return torch.sin(a) @ b


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_remote_configs_of_a_compilation(harness, recorder, dynamic):
    """The same, of a function that is compiled and called five times. Unlike PyTorch's test, what is read from the
    cache computes the same bits as what was timed."""
    need_device(harness, recorder, "timing real kernels")
    device = torch.accelerator.current_accelerator()
    a = max_autotune.integers(100, 10, dtype=torch.float32).to(device)
    b = torch.eye(10, 100, dtype=torch.float32, device=device)
    found = []
    with remote_cache() as cache:
        for tag in ("", "", "", "", "another"):
            with (
                max_autotune.compiling(prologue_fusion=False, shape_padding=False, autotune_remote_cache=True),
                _tagged(tag),
            ):
                found.append(torch.compile(_sine_product, dynamic=dynamic)(a, b).cpu())
    record(recorder, judge_statistics(cache))
    same = [torch.equal(first, second) for first, second in itertools.pairwise(found)]
    recorder.verdict("same bits", all(same), f"{same}")
