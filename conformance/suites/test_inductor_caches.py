"""Inductor's caches: of generated templates, of the times of choices, and of the configs of generated kernels.

What is in a cache's key is judged by what happens: the same again is found, anything else is not.
"""

import itertools

import pytest
import torch

from conformance import targets
from conformance.execution.compile.compilation import Task
from conformance.inductor.compile.program import dense, program_of
from conformance.inductor.compile.provider import PRELOADED
from conformance.inductor.topics import caches as checks
from conformance.inductor.tuning import max_autotune, stand_ins
from conformance.judging.harness import need_device, record
from conformance.records import Status

#: Options of the programs whose templates are counted: four configs of each, and nothing but templates.
SETTINGS = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON", "test_configs.max_mm_configs": 4}


# --- generated templates: hits and misses -----------------------------------------------------------------------------


def _program(graph, shapes, *, transposed=(), dynamic=False, backends="TRITON"):
    """A program over dense operands of ``shapes``; those at ``transposed`` are column-major."""
    operands = [
        dense(f"x{index}", *shape, last=len(shape) - 2 if index in transposed else None)
        for index, shape in enumerate(shapes)
    ]
    settings = {**SETTINGS, "max_autotune_gemm_backends": backends}
    return program_of(f"conformance.inductor.topics.caches:{graph}", operands, settings, dynamic=dynamic)


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


def _counted(harness, recorder, program, constant_key=False):
    """Compiles ``program`` and returns what that counts, on the device or, without one, for the first target of
    Inductor's."""
    if harness.settings.has_gpu and not harness.settings.compile_only:
        recorder.set(target=harness.targets[0])
        return checks.count_compiled(program, constant_key)
    target = next(target for target in targets.compile_targets() if target.architecture.inductor)
    recorder.set(target=target)
    function = "conformance.inductor.topics.caches:count_generated"
    task = Task(function, (program, constant_key), target, PRELOADED)
    result = harness.pool.submit(task).result()
    if result.reason is not None:
        recorder.not_run(result.reason)
    if result.status is not Status.PASS:
        raise result.failure()
    return result.value


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", list(REPEATED))
@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_repeated_lowering_is_found(harness, recorder, name):
    """A repeated lowering takes every template from the cache. Unlike PyTorch's test, this one needs no device for
    static or dynamic pairs, and counts the templates that are really offered."""
    program, repeats = REPEATED[name]
    record(recorder, checks.check_repeated(_counted(harness, recorder, program), repeats))


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", list(DIFFERENT))
@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_different_lowering_is_not_found(harness, recorder, name):
    """Another size, symbol, expression or stride is another template. PyTorch's tests have no pair that differs in
    static sizes or in strides."""
    record(recorder, checks.check_different(_counted(harness, recorder, DIFFERENT[name])))


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_wrong_key_is_detected(harness, recorder):
    """The cache's own test, which is on in every compilation, notices a key that confuses different products. PyTorch's
    test plants a fault in what is kept; here the key itself is wrong, and a right key raises no error."""
    right = _counted(harness, recorder, REPEATED["pair"][0])
    wrong = _counted(harness, recorder, DIFFERENT["symbols"], constant_key=True)
    record(recorder, checks.check_wrong_key(right, wrong))


# --- generated templates: the key -------------------------------------------------------------------------------------


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_key_of_generated_template(recorder):
    """Any two different templates have different keys. Unlike PyTorch's test, which counts the arguments and compares
    one key's text, each argument is varied."""
    from torch._inductor.select_algorithm import GeneratedCodeCache, TritonTemplate

    record(recorder, checks.check_key(GeneratedCodeCache().make_key, TritonTemplate.generate_and_load))


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_options_in_generated_templates(recorder):
    """A template whose text differs because an option does has another key. It is not taken from the cache when the
    same product is compiled again with the other value."""
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.select_algorithm import GeneratedCodeCache

    record(recorder, checks.check_options(GeneratedCodeCache().make_key, TritonKernel.inductor_meta_common))


# --- times of choices -------------------------------------------------------------------------------------------------


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_times_are_kept(recorder):
    """A choice is timed once, and no other choice takes its time. PyTorch's test looks at what is compiled ahead, and
    never calls what it compiled."""
    record(recorder, checks.check_times_are_kept())


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel's result")
@pytest.mark.slow(3)
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
            before = [counters["inductor"][name] for name in _WORK]
            product = torch.compile(_chain, dynamic=False)(*(x.to(device) for x in (*tensors, third))).cpu()
            counts.append([counters["inductor"][name] - count for name, count in zip(_WORK, before, strict=True)])
            recorder.verdict("numbers", torch.equal(product.double(), expected), "the product of whole numbers")
    recorder.verdict("first", counts[0][1] > 0, f"{dict(zip(_WORK, counts[0], strict=True))}")
    recorder.verdict("again", counts[1] == [0, 0], f"{dict(zip(_WORK, counts[1], strict=True))}, none required")


_WORK = ("select_algorithm_precompile", "select_algorithm_autotune")


def _chain(a, b, c):
    return (a @ b) @ c


# --- configs of generated kernels, kept far away ----------------------------------------------------------------------


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel is run")
def test_remote_configs(recorder):
    """Four runs of one kernel and one under another tag, of the cache alone. PyTorch tests it on a device only."""
    record(recorder, checks.check_remote_configs())


def _sine_product(a, b):
    return torch.sin(a) @ b


@pytest.mark.proves_at_most("nothing", "what Inductor keeps is judged, and no kernel's result")
@pytest.mark.slow(3)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_remote_configs_of_a_compilation(harness, recorder, dynamic):
    """The same, of a function that is compiled and called five times: its sine has configs, its product is ATen's.
    Unlike PyTorch's test, what is read from the cache computes the same bits as what was timed."""
    need_device(harness, recorder, "timing real kernels")
    device = torch.accelerator.current_accelerator()
    a = max_autotune.integers(100, 10, dtype=torch.float32).to(device)
    b = torch.eye(10, 100, dtype=torch.float32, device=device)
    outputs = []
    settings = {"shape_padding": False, "autotune_remote_cache": True, "max_autotune_gemm_backends": "ATEN"}
    with checks.remote_cache() as cache:
        for tag in ("", "", "", "", "another"):
            with (
                max_autotune.compiling(**settings),
                checks.tagged(tag),
            ):
                outputs.append(torch.compile(_sine_product, dynamic=dynamic)(a, b).cpu())
    record(recorder, checks.check_statistics(cache))
    same = [torch.equal(first, second) for first, second in itertools.pairwise(outputs)]
    recorder.verdict("same bits", all(same), f"{same}")
