"""The implementations that Inductor offers for a product, its error if there is none, and what the unusual ones
compute.

The scenarios are those of PyTorch's max-autotune tests. Here numbers are exact integers instead of near those of
another kernel, and one choice is pinned after another instead of the fastest being taken. What must not be offered is
checked, too. A decision that a test replaces is as before afterwards.
"""

import dataclasses
import functools
import re
import zlib

import pytest
import torch

from conformance.cases.generated_cases import Thin, generated
from conformance.families.gemm.problem import mm
from conformance.inductor.compile.observation import known
from conformance.inductor.compile.program import Decision, dense, program_of
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.inductor.topics import choices as checks
from conformance.judging.inductor_judge import CHOICES
from conformance.records import Reason, ReasonCode, Verdict

GRAPHS, OWN = "conformance.inductor.topics.gemm", "conformance.inductor.topics.choices"

MAX_AUTOTUNE = {"max_autotune": True}
TRITON = {**MAX_AUTOTUNE, "max_autotune_gemm_backends": "TRITON", "shape_padding": False}
ALIKE = (("alpha", 1.0), ("beta", 1.0))


# --- programs ---------------------------------------------------------------------------------------------------------

#: An operand of fp16.
half = functools.partial(dense, dtype="fp16")


def factors(m, n, k, dtype="fp16"):
    """Both operands of a product, packed by rows."""
    return [dense("a", m, k, dtype=dtype), dense("b", k, n, dtype=dtype)]


def picked(inductor):
    """A number that differs between cases, for choosing one of several."""
    return zlib.crc32(inductor.recorder.case.encode()) % 997


# --- zero sizes -------------------------------------------------------------------------------------------------------


def check_empty(inductor, graph, operands, target, shape, **fields):
    """Numbers, shape and dtype. Without K every element is what a sum of nothing is."""
    compiled = inductor.exact(graph, operands, target, **fields)
    inductor.record(checks.check_output(compiled, inductor.harness.executor, shape=shape, dtype=operands[0].dtype))


def emptied(empty):
    """M, N and K, of which the one named ``empty`` is 0."""
    return [0 if empty == name else size for name, size in (("M", 10), ("N", 100), ("K", 10))]


@generated(empty=["M", "N", "K"], dynamic=[False, True])
def test_mm_zero_size_input(inductor, target, empty, dynamic):
    """Products of a computed operand without rows, without columns and without K; the last is zeros. PyTorch's test
    has the first alone and checks that nothing is raised."""
    m, n, k = emptied(empty)
    fields = {"dynamic": dynamic, "settings": MAX_AUTOTUNE}
    check_empty(inductor, f"{OWN}:sin_mm", factors(m, n, k, "fp32"), target, (m, n), **fields)


@generated(empty=["M", "N", "K"], dynamic=[False, True])
def test_addmm_zero_size_input(inductor, target, empty, dynamic):
    """The same with a bias, which is doubled: without K the result is twice the bias in every row."""
    m, n, k = emptied(empty)
    operands = [*factors(m, n, k, "fp32"), dense("bias", n)]
    fields = {"arguments": (("alpha", 1.0), ("beta", 2.0)), "dynamic": dynamic, "settings": MAX_AUTOTUNE}
    check_empty(inductor, f"{GRAPHS}:addmm", operands, target, (m, n), **fields)


@generated(empty=["M", "K"], dynamic=[False, True], space=["DEFAULT", "EXHAUSTIVE"])
def test_mm_plus_mm_zero_size_input(inductor, target, empty, dynamic, space):
    """Sums of two products without rows and without K; the last is zeros. PyTorch's test has the first alone and
    checks that nothing is raised."""
    m, n, k = (0, 1536, 64) if empty == "M" else (16, 48, 0)
    pair = (("a", m, k), ("b", k, n), ("c", m, k), ("d", k, n))
    operands = [dense(name, *shape) for name, *shape in pair]
    settings = {**MAX_AUTOTUNE, "max_autotune_gemm_search_space": space}
    check_empty(inductor, f"{GRAPHS}:mm_plus_mm", operands, target, (m, n), dynamic=dynamic, settings=settings)


@pytest.mark.slow(15)
@generated(kernel=[1, 3], space=["DEFAULT", "EXHAUSTIVE"])
def test_empty_conv_input(inductor, target, kernel, space):
    """A convolution of an empty batch gives an empty batch with 256 channels."""
    operands = [dense("x", 0, 256, 14, 14), dense("w", 256, 256, kernel, kernel)]
    settings = {**MAX_AUTOTUNE, "max_autotune_gemm_search_space": space}
    shape = (0, 256, 15 - kernel, 15 - kernel)
    check_empty(inductor, f"{GRAPHS}:convolution", operands, target, shape, settings=settings)


# --- nothing to choose from -------------------------------------------------------------------------------------------


GEMM_BACKENDS, CONV_BACKENDS = "max_autotune_gemm_backends", "max_autotune_conv_backends"


FALLBACK = "autotune_fallback_to_aten"


@generated(to_aten=[False, True])
def test_no_valid_choices(inductor, target, to_aten):
    """No backend at all: an error that says so and what to do, or ATen's product if that was asked for. PyTorch's test
    does not follow the advice."""
    operands = factors(2, 2, 2)
    settings = {**MAX_AUTOTUNE, **known({FALLBACK: to_aten}), GEMM_BACKENDS: ""}
    if to_aten:
        inductor.need_option(FALLBACK)
        inductor.exact(f"{GRAPHS}:mm", operands, target, settings=settings)
        return
    without_backend = inductor.compile(program_of(f"{GRAPHS}:mm", operands, settings), target).generated
    inductor.record(checks.check_advice(without_backend, GEMM_BACKENDS, CONV_BACKENDS))
    inductor.exact(f"{GRAPHS}:mm", operands, target, settings={**settings, GEMM_BACKENDS: "ATEN"})


@generated(operation=["mm", "mm_plus_mm"], empty=["M", "N"], to_aten=[False, True])
@pytest.mark.proves_at_most("nothing", "what Inductor offers is judged, and no kernel is run")
def test_zero_size_has_no_template(inductor, target, operation, empty, to_aten):
    """Templates alone have no choice for a product without rows or columns: the same."""
    m, n, k = emptied(empty)
    operands = factors(m, n, k, "fp32")
    if operation == "mm_plus_mm":
        operands += [dense("c", m, k), dense("d", k, n)]
    graph, settings = f"{GRAPHS}:{operation}", {**TRITON, **known({FALLBACK: to_aten})}
    if to_aten:
        inductor.need_option(FALLBACK)
        check_empty(inductor, graph, operands, target, (m, n), settings=settings)
        return
    without_choice = inductor.compile(program_of(graph, operands, settings), target).generated
    inductor.record(checks.check_advice(without_choice, GEMM_BACKENDS, CONV_BACKENDS))


@generated()
def test_conv_backend(inductor, target):
    """The same for a convolution, whose backends are another option."""
    operands = [dense("x", 2, 3, 16, 16), dense("w", 3, 3, 1, 1)]
    settings = {**MAX_AUTOTUNE, "layout_optimization": False, CONV_BACKENDS: ""}
    without_backend = inductor.compile(program_of(f"{GRAPHS}:convolution", operands, settings), target).generated
    inductor.record(checks.check_advice(without_backend, CONV_BACKENDS, GEMM_BACKENDS))
    inductor.exact(f"{GRAPHS}:convolution", operands, target, settings={**settings, CONV_BACKENDS: "ATEN"})


@generated(deferred=[False, True])
@pytest.mark.proves_at_most("nothing", "what Inductor offers is judged, and no kernel is run")
def test_inf_timing(inductor, target, deferred):
    """No choice is left if none could be timed, whether they are timed when a product is lowered or, ``deferred``,
    when it is scheduled. Unlike in PyTorch's test, the same program with times is compiled too."""
    requested = program_of(f"{GRAPHS}:mm", factors(16, 16, 16), TRITON)
    usual = inductor.compile(requested, target).generated
    decision = Decision.DEFERRED_TIMES_ARE_INFINITE if deferred else Decision.TIMES_ARE_INFINITE
    infinite = inductor.compile(dataclasses.replace(requested, decision=decision), target).generated
    inductor.record(checks.check_infinite(usual, infinite))


# --- what is offered --------------------------------------------------------------------------------------------------


OPERATIONS = ["mm", "addmm", "bmm", "baddbmm", "mm_plus_mm"]
#: Configs of each template that are offered, at most.
MOST = 4


def few_configs():
    return known({"test_configs.max_mm_configs": MOST})


def operation_of(name):
    """The operands of 128 x 256 and 256 x 128 (four times, if batched) and the arguments of an operation's graph."""
    batch = (4,) if name in ("bmm", "baddbmm") else ()
    operands = [half("a", *batch, 128, 256), half("b", *batch, 256, 128)]
    if name == "mm_plus_mm":
        operands += [half("c", 128, 256), half("d", 256, 128)]
    if name in ("addmm", "baddbmm"):
        return [*operands, half("bias", *batch, 128, 128) if batch else half("bias", 128)], ALIKE
    return operands, ()


def autotuned(autotune):
    """Settings with autotuning on or off; templates and ATen's implementation are allowed."""
    return {"max_autotune": autotune, "max_autotune_gemm": autotune, GEMM_BACKENDS: "ATEN,TRITON", **few_configs()}


@generated(operation=OPERATIONS, autotune=[False, True])
def test_autotune_gemm_choice_validation(inductor, target, operation, autotune):
    """Templates are offered if autotuning is on; ATen's implementation is offered always. PyTorch's test takes the
    choices together, this one each lowering's."""
    operands, arguments = operation_of(operation)
    fields = {"settings": autotuned(autotune), "arguments": arguments}
    compiled = inductor.exact(f"{GRAPHS}:{operation}", operands, target, **fields)
    most = MOST if few_configs() else 1000
    inductor.record(checks.check_offered(compiled.generated, templates=autotune, most=most))


@generated(autotune=[False, True])
def test_autotune_layout_optimization(inductor, target, autotune):
    """Choices among which are templates have a fixed layout, so that they can be fused; ATen's alone leave it open."""
    operands = [*factors(32, 64, 128), half("bias", 64)]
    compiled = inductor.exact(f"{GRAPHS}:addmm", operands, target, settings=autotuned(autotune), arguments=ALIKE)
    inductor.record(checks.check_layouts(compiled.generated, fixed=autotune))


PRUNING = "max_autotune_prune_choices_based_on_shared_mem"


@pytest.mark.slow(25)
@generated(size=[3, 512])
@pytest.mark.proves_at_most("nothing", "what Inductor offers is judged, and no kernel is run")
def test_prune_choices(inductor, target, size):
    """Configs that need too much shared memory are not offered: what is offered can be compiled and launched, the
    largest first. PyTorch's test has the small product alone, of which every config fits."""
    inductor.need_option(PRUNING)
    templates = inductor.choices_of("mm")
    requested, usual = (
        program_of(f"{GRAPHS}:mm", factors(size, size, size, "fp32"), settings, templates=templates, pick=pick)
        for settings, pick in (({**TRITON, PRUNING: True}, None), ({**TRITON, PRUNING: False}, 0))
    )
    pruned = inductor.compile(requested, target).generated
    usual = dataclasses.replace(usual, descriptions="")  # matches every choice, so that all are described
    inductor.record([checks.compiled_verdict(pruned)])
    inductor.conclude()
    inductor.record(checks.check_pruned(inductor.compile(usual, target).generated, pruned, some=size > 3))
    offered = [choice for choice in pruned.lowerings[0].offered if re.search(templates, choice.name)]
    largest = sorted(range(len(offered)), key=lambda place: checks.tile(offered[place]), reverse=True)
    for place in largest[: CHOICES[inductor.harness.settings.tier]]:
        launched = inductor.compile(dataclasses.replace(requested, pick=place), target).generated
        inductor.record(checks.check_fits(launched, target), f"{place}/")


@generated()
def test_exhaustive(inductor, target):
    """The exhaustive space offers what its list holds, here one config, and nothing of the default list. PyTorch's test
    counts benchmarks; here the choices are counted and the config's numbers judged."""
    size = 256 if inductor.harness.settings.has_gpu else 64
    space = {"max_autotune_gemm_search_space": "EXHAUSTIVE"}
    settings = {**MAX_AUTOTUNE, **space, GEMM_BACKENDS: "ATEN,TRITON"}
    decision = Decision.ONE_EXHAUSTIVE_CONFIG
    requested = program_of(f"{GRAPHS}:mm", factors(size, size, size), settings, decision=decision)
    inductor.record(checks.check_exhaustive(inductor.compile(requested, target).generated))
    fields = {"choices": 1, "settings": space, "decision": decision}
    for run in inductor.pinned(mm(size, size, size, "fp16"), target, inductor.template("mm"), **fields):
        run.check("config", (run.config.block_m, run.config.block_n, run.config.block_k) == (32, 32, 32), run.config.id)


# --- products with one term, and of another dtype ---------------------------------------------------------------------


@pytest.mark.slow(4)
@generated()
def test_mm_k_1(inductor, target):
    """A column times a row, of 90 to 99 elements. The quick tier takes three of these sizes."""
    sizes = (90, 95, 99) if inductor.harness.settings.tier == "quick" else range(90, 100)
    for size in sizes:
        fields = {"settings": TRITON, "pick": picked(inductor) + size}
        compiled = inductor.exact(f"{GRAPHS}:mm", factors(size, size, 1, "fp32"), target, **fields)
        inductor.record(checks.check_triton_alone(compiled.generated), f"{size}/")


def wide_values():
    """Operands of two batches of 3 x 4 and 4 x 5 whose sums of products fp16 cannot hold."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: (2 * torch.randint(-31, 32, shape, generator=generator) + 1).half()
        for name, shape in (("a", (2, 3, 4)), ("b", (2, 4, 5)))
    }


@generated()
def test_bmm_out_dtype(inductor, target):
    """An fp32 product of fp16 matrices is not rounded to fp16 in between. Triton's templates alone give the same, or
    torch says that there is no choice, because it has no such template. PyTorch's test only checks that error."""
    operands, values, graph = [half("a", 2, 3, 4), half("b", 2, 4, 5)], wide_values(), f"{OWN}:wide_bmm"
    compiled = inductor.exact(graph, operands, target, settings=MAX_AUTOTUNE, templates="^bmm", values=values)
    inductor.record([in_source("call", exactly(1, checks.wide_bmm_call()), compiled.generated.modules[-1], "module")])
    inductor.record(checks.check_output(compiled, inductor.harness.executor, shape=(2, 3, 5), dtype="fp32"))
    templates = program_of(graph, operands, TRITON, pick=picked(inductor))
    failure = inductor.compile(templates, target).generated.failure
    if failure is not None:
        named = "NoValidChoicesError" in failure.types and checks.NO_CHOICE in failure.message
        inductor.record([Verdict("refused", named, str(failure)[:300])])
        return
    compiled = inductor.exact(graph, operands, target, settings=TRITON, pick=templates.pick, values=values)
    inductor.record([Verdict("template", any(k.kind == "template" for k in compiled.generated.kernels), "Triton's")])
    inductor.record(checks.check_output(compiled, inductor.harness.executor, shape=(2, 3, 5), dtype="fp32"))


# --- split K: one product as a batch of products of parts of K, and their sum -----------------------------------------

#: Choices that split K, and the products of the parts, which are chosen in turn.
SPLIT = r"^decompose_k_mm_|^bmm"
SPLITS, THRESHOLD = "triton.num_decompose_k_splits", "triton.decompose_k_threshold"


def splitting(**more):
    """Settings under which K may be split up to ten times, which is torch's default for NVIDIA. For AMD it is 0."""
    return {**TRITON, **known({SPLITS: 10}), **more}


#: M, N and K: a K of a power of two, one of several primes, and one of a power of three.
DEEP = [(32, 32, 32768), (64, 128, 200000), (64, 64, 177147)]
#: The same for the interpreter.
SHALLOW = {DEEP[0]: (32, 32, 2048), DEEP[1]: (16, 32, 3200), DEEP[2]: (16, 16, 2187)}


def deep(inductor, shape):
    """``shape`` on a device, else a smaller one of its kind."""
    return shape if inductor.harness.settings.has_gpu else SHALLOW[shape]


def product_of(graph, m, n, k, dtype):
    """Operands and values of ``graph``, whose A may be stored as K x M."""
    a, b = factors(m, n, k, dtype)
    values = checks.mirrored(m, n, k, dtype)
    if "transposed" in graph:
        a = dense("a", k, m, dtype=dtype)
        values["a"] = values["a"].t().contiguous()
    return [a, b], values


@pytest.mark.slow(12)
@generated(shape=DEEP, dtype=["fp16", "bf16"], dynamic=[False, True])
def test_decompose_k(inductor, target, shape, dtype, dynamic):
    """A static K that is much longer than M and N is split: alone, before a relu, and with A transposed. Dynamic sizes
    are not split. The splits are pinned; PyTorch's test sees the fastest alone."""
    m, n, k = deep(inductor, shape)
    tier = inductor.harness.settings.tier
    for number, name in enumerate((f"{GRAPHS}:mm", f"{OWN}:relu_mm", f"{OWN}:relu_transposed_mm")):
        operands, values = product_of(name, m, n, k, dtype)
        fields = {"values": values, "settings": splitting()}
        if dynamic:
            compiled = inductor.exact(name, operands, target, dynamic=True, pick=picked(inductor), **fields)
            inductor.record(checks.check_not_decomposed(compiled.generated), f"{number}/")
            continue
        pinned, offered = 0, 1
        most = CHOICES[tier] if number == 0 else 1
        while pinned < offered and (most is None or pinned < most):
            pick = picked(inductor) + number + pinned
            compiled = inductor.exact(name, operands, target, templates=SPLIT, pick=pick, **fields)
            offered = compiled.generated.lowerings[0].matching
            inductor.record(checks.check_splits(compiled.generated, m, n, k, most=10, some=True), f"{number}/")
            inductor.record(checks.check_decomposed(compiled.generated, m, n), f"{number}/{pick}/")
            pinned += 1


@generated(splits=[0, 5, 20], threshold=[8, 16])
@pytest.mark.proves_at_most("nothing", "what Inductor offers is judged, and no kernel is run")
def test_decompose_k_envvars(inductor, target, splits, threshold):
    """The limits on the number of splits and on K / M and K / N hold. They are options here: torch reads the
    environment on import."""
    inductor.need_option(SPLITS, THRESHOLD)
    settings = {**TRITON, SPLITS: splits, THRESHOLD: threshold}
    for m, n, k in ((32, 32, 32768), (32, 32, 256)):
        program = program_of(f"{GRAPHS}:mm", factors(m, n, k), settings, pick=0)  # what is offered is judged
        generated = inductor.compile(program, target).generated
        some = splits > 0 and k >= threshold * m and k >= threshold * n
        inductor.record(checks.check_splits(generated, m, n, k, most=splits, some=some), f"{k}/")


@pytest.mark.slow(4)
@generated()
def test_decompose_k_output_stride(inductor, target):
    """The result is dense although B is part of a wider matrix. PyTorch's test lets nothing else be offered by a
    heuristic; here the choice is pinned, and the numbers are judged too."""
    inductor.need_option(THRESHOLD)
    m, n, k, width = (256, 1096, 32768, 1152) if inductor.harness.settings.has_gpu else (16, 40, 2560, 48)
    graph = f"{OWN}:transposed_mm"
    (a, _), values = product_of(graph, m, n, k, "bf16")
    operands = [a, dense("b", k, n, dtype="bf16", strides=(width, 1))]
    fields = {"settings": splitting(**{THRESHOLD: 16}), "templates": SPLIT, "pick": picked(inductor)}
    compiled = inductor.exact(graph, operands, target, values=values, **fields)
    inductor.record(checks.check_decomposed(compiled.generated, m, n))
    packed = exactly(1, rf"empty_strided_cuda\(\({m}, {n}\), \({n}, 1\), torch\.bfloat16\)")
    inductor.record([in_source("allocation", packed, compiled.generated.modules[-1], "module")])
    executor = inductor.harness.executor
    inductor.record(checks.check_output(compiled, executor, shape=(m, n), dtype="bf16", strides=(n, 1)))


@pytest.mark.slow(4)
@generated()
def test_decompose_k_dynamic_input(inductor, target):
    """M is twice a dynamic size. If Inductor decides to split K, one compilation is right for other sizes, too.
    PyTorch's test calls the function with one size."""
    n, k = (32, 32768) if inductor.harness.settings.has_gpu else (32, 2048)
    rows = (16, 11)
    first, second = (factors(m, n, k) for m in rows)
    calls = {"dynamic": None, "marked": (("a", 0),), "calls": (tuple(second),)}
    fields = {
        "decision": Decision.K_MAY_BE_SPLIT,
        "settings": splitting(),
        "templates": SPLIT,
        "pick": picked(inductor),
    }
    values = checks.mirrored(rows[0], n, k, "fp16")
    compiled = inductor.exact(f"{OWN}:stacked_mm", first, target, values=values, **calls, **fields)
    inductor.record(checks.check_symbolic(compiled.generated, n))
    values = checks.mirrored(rows[1], n, k, "fp16", seed=1)
    inductor.record(inductor.second_call(compiled, values), f"{rows[1]} rows/")


@pytest.mark.slow(6)
@generated()
def test_decompose_k_dynamic_input_bwd(inductor, target):
    """The same in a backward graph, which cannot be generated without a device."""
    inductor.need_device("gradients, which are compiled on a device only", target)
    inductor.recorder.set(target=target, executor="device")
    settings = {name: value for name, value in TRITON.items() if name != "max_autotune"}
    inductor.record(checks.check_backward(torch.device("cuda", target.device_index), settings))


# --- a contiguous second operand: ROCm alone --------------------------------------------------------------------------

#: AMD first: the quick tier takes its targets.
ROCM = ("amd", "nvidia")
#: The choice that copies the second operand, and ATen's product of the copy: within it nothing else is offered.
CONTIGUOUS = "^contiguous_(add)?mm|^(add)?mm$|^bias_addmm$"


def contiguous(inductor, target, graph, operands, **fields):
    """Judges the transformation where it is offered. Elsewhere checks that it is not, and ends the case: there is
    nothing of it to judge."""
    fields |= {"decision": Decision.CONTIGUOUS_IS_BETTER, "pick": 0}
    if target.vendor == "amd":
        a, b = operands[-2:]
        values = checks.mirrored(a.shape[0], b.shape[1], b.shape[0], a.dtype)
        fields |= {"settings": TRITON, "templates": CONTIGUOUS, "values": values}
        compiled = inductor.exact(graph, operands, target, **fields)
        name = "contiguous_addmm" if operands[0].name == "bias" else "contiguous_mm"
        inductor.record(checks.check_contiguous(compiled.generated, name))
        return
    inductor.record(checks.check_not_contiguous(not_contiguous(inductor, target, graph, operands, **fields)))
    detail = "Inductor offers it on ROCm alone; that it is not offered for this target was checked"
    inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "contiguous transform", detail))


def not_contiguous(inductor, target, graph, operands, **fields):
    """Returns the results of the program with a few choices of every template."""
    requested = program_of(graph, operands, {**TRITON, **few_configs()}, **fields)
    return inductor.compile(requested, target).generated


SIZES = Thin([(64, 128, 256), (128, 256, 512), (256, 512, 1024)])
DTYPE = Thin(["fp16", "bf16", "fp32"])


def second_by_columns(m, n, k, *, dtype="fp16"):
    """Both operands of a product, the second column-major."""
    return [dense("a", m, k, dtype=dtype), dense("b", k, n, dtype=dtype, last=0)]


@generated(vendors=ROCM, size=SIZES, dtype=DTYPE)
def test_contiguous_transform_mm(inductor, target, size, dtype):
    """A column-major second operand."""
    contiguous(inductor, target, f"{GRAPHS}:mm", second_by_columns(*size, dtype=dtype))


@generated(vendors=ROCM, size=SIZES, dtype=DTYPE)
def test_contiguous_transform_addmm(inductor, target, size, dtype):
    """The same with a matrix as bias."""
    operands = [dense("bias", *size[:2], dtype=dtype), *second_by_columns(*size, dtype=dtype)]
    contiguous(inductor, target, f"{OWN}:matrix_addmm", operands)


@generated(vendors=ROCM, dynamic=[False, True])
def test_contiguous_transform_non_contiguous_second(inductor, target, dynamic):
    """Sizes that may be dynamic. It is not offered for a second operand that is contiguous."""
    fields = {"decision": Decision.CONTIGUOUS_IS_BETTER, "pick": 0, "dynamic": dynamic}
    by_rows = not_contiguous(inductor, target, f"{GRAPHS}:mm", factors(64, 128, 64), **fields)
    inductor.record(checks.check_not_contiguous(by_rows), "by rows/")
    contiguous(inductor, target, f"{GRAPHS}:mm", second_by_columns(64, 128, 64), dynamic=dynamic)


@generated(vendors=ROCM)
def test_contiguous_transform_with_epilogue(inductor, target):
    """Before a relu."""
    contiguous(inductor, target, f"{OWN}:relu_mm", second_by_columns(128, 256, 512))
