"""Inductor's selection among several implementations: by size at run time, from a table, by heuristics of the user.

PyTorch has tests of these systems' parts. Here each is compiled, what it selects is asserted, and every branch that it
can take is judged bit by bit.
"""

import math

import pytest
import torch

from conformance.cases.generated_cases import Thin, generated
from conformance.inductor.compile.program import Decision, dense, program_of
from conformance.inductor.compile.replaced_decisions import ONE_CONFIG
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.inductor.topics import selection as checks
from conformance.inductor.topics.choices import check_advice

GRAPHS = "conformance.inductor.topics.gemm"
TRITON = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON", "shape_padding": False}


# --- kernels for several sizes ----------------------------------------------------------------------------------------

MULTI = "multi_kernel_hints"
#: The hints, of which each is a long compilation, and numbers of rows that are nearest to each in turn.
HINTS, ROWS = Thin([(64, 256, 4096)], quick=0), (50, 300, 2100)


@pytest.mark.slow(15)
@generated(sampled=True, hints=HINTS)
def test_kernels_for_several_sizes(inductor, target, hints):
    """One compilation holds a kernel for each hint, and each call takes the one whose hint is nearest to its rows."""
    inductor.need_option(MULTI)
    first, *others = ([dense("a", rows, 32, dtype="fp16"), dense("b", 32, 48, dtype="fp16")] for rows in ROWS)
    compiled = inductor.exact(
        f"{GRAPHS}:mm",
        first,
        target,
        settings={**TRITON, MULTI: list(hints)},
        decision=Decision.SELECTION_IS_DEFERRED,
        dynamic=None,
        marked=(("a", 0),),
        calls=tuple(tuple(operands) for operands in others),
    )
    inductor.record(checks.check_branches(compiled.generated, hints))
    executor = inductor.executor()
    inductor.record(checks.check_dispatch(compiled, executor), f"{ROWS[0]} rows/")
    for called, verdicts in inductor.further_calls(compiled):
        rows = called.program.operands[0].shape[0]
        inductor.record([*verdicts, *checks.check_dispatch(called, executor)], f"{rows} rows/")


# --- a table, and heuristics, of the user's ---------------------------------------------------------------------------

TABLE = "lookup_table.table"
#: A row of the table, for a product whose K is a multiple of BLOCK_K.
DETAILS = {"GROUP_M": 8, "EVEN_K": True, "USE_FAST_ACCUM": False, "ACC_TYPE": "tl.float32"}
ROW = {"template_id": "triton::mm", **ONE_CONFIG, **DETAILS}


def half_factors(m, n, k):
    """Both operands of an fp16 product."""
    return [dense("a", m, k, dtype="fp16"), dense("b", k, n, dtype="fp16")]


@pytest.mark.slow(8)
@generated(sampled=True, device=Thin([False, True]))
def test_config_from_a_table(inductor, target, device):
    """A product whose key, with the ``device``'s name or without, is in the table gets that config and no other. One
    with another K is not in it and gets the usual choices."""
    inductor.need_option(TABLE)
    graph, operands, fields = f"{GRAPHS}:mm", half_factors(48, 80, 64), {"decision": Decision.TABLE_IS_USED}
    only = {"templates": inductor.choices_of("mm"), "pick": 0}
    program = program_of(graph, operands, {**TRITON, TABLE: {"no key": []}}, **only, **fields)
    keys = inductor.compile(program, target).generated.notes
    inductor.record(checks.check_keys(keys, "mm", [(48, 64), (64, 80)]), "keys/")
    inductor.conclude()
    settings = {**TRITON, TABLE: {keys[0][0 if device else 1]: [ROW]}}
    compiled = inductor.exact(graph, operands, target, settings=settings, **fields)
    inductor.record(checks.check_only(compiled.generated, ONE_CONFIG))
    other = program_of(graph, half_factors(48, 80, 96), settings, **only, **fields)
    inductor.record(checks.check_usual(inductor.compile(other, target).generated), "other K/")


@generated()
def test_heuristic_of_the_user(inductor, target):
    """A heuristic that takes the place of Inductor's for the template mm: its one config is offered, and no other."""
    fields = {"settings": TRITON, "decision": Decision.HEURISTIC_IS_OVERRIDDEN}
    compiled = inductor.exact(f"{GRAPHS}:mm", half_factors(48, 80, 64), target, **fields)
    inductor.record(checks.check_only(compiled.generated, ONE_CONFIG))


# --- the library as a choice ------------------------------------------------------------------------------------------

OPERATIONS = ["mm", "addmm", "bmm", "baddbmm", "mm_plus_mm", "int_mm", "convolution"]
#: The kernel of ATen that is offered with the templates of each.
LIBRARY = {"addmm": ("addmm", "bias_addmm"), "int_mm": ("_int_mm", "int_mm"), "mm_plus_mm": ("_mm_plus_mm",)}
BOTH = {"max_autotune": True, "shape_padding": False, "layout_optimization": False}
BACKENDS = ("max_autotune_gemm_backends", "max_autotune_conv_backends")


def operands_of(operation):
    """Operands of an operation's graph: products of 40 x 64 and 64 x 48, a convolution of 3 x 3. cuBLAS multiplies int8
    only if the second operand is column-major."""
    if operation == "convolution":
        return [dense("x", 2, 8, 10, 10, dtype="fp16"), dense("w", 16, 8, 3, 3, dtype="fp16")]
    batch, dtype = ((3,) if operation in ("bmm", "baddbmm") else ()), "int8" if operation == "int_mm" else "fp16"
    operands = [
        dense("a", *batch, 40, 64, dtype=dtype),
        dense("b", *batch, 64, 48, dtype=dtype, last=0 if operation == "int_mm" else None),
    ]
    if operation == "mm_plus_mm":
        return [*operands, dense("c", 40, 64, dtype=dtype), dense("d", 64, 48, dtype=dtype)]
    return [*operands, dense("bias", *batch, *((40,) if batch else ()), 48, dtype=dtype)][
        : 3 if "add" in operation else 2
    ]


@generated(sampled=True, operation=Thin(OPERATIONS))
def test_library_is_chosen(inductor, target, operation):
    """ATen's kernel is offered together with Triton's templates, and where it is chosen it is what runs."""
    names = LIBRARY.get(operation, (operation,))
    fields = {"arguments": (("alpha", 1.0), ("beta", 1.0))} if "add" in operation else {}
    settings = {**BOTH, **dict.fromkeys(BACKENDS, "ATEN,TRITON")}
    pattern = rf"^(?:{'|'.join(names)})$"
    compiled = inductor.exact(
        f"{GRAPHS}:{operation}", operands_of(operation), target, settings=settings, templates=pattern, pick=0, **fields
    )
    inductor.record(checks.check_library(compiled.generated, names))


#: The shapes of the scales of a product of 40 x 32 and 32 x 48.
SCALES = {"tensor": ((), ()), "row": ((40, 1), (1, 48))}


def powers_of_two(operand):
    """Scales from 1/2 to 4, by which every product is multiplied without rounding."""
    return torch.exp2(torch.arange(math.prod(operand.shape)) % 4 - 1.0).reshape(operand.shape)


@generated(sampled=True, scaling=Thin(list(SCALES)))
def test_library_is_chosen_for_scaled_mm(inductor, target, scaling):
    """The same of an fp8 product. Its output is bf16, the only one that ATen's kernel has for scales of rows."""
    scales = [dense(name, *shape) for name, shape in zip(("scale_a", "scale_b"), SCALES[scaling], strict=True)]
    factors = [dense("a", 40, 32, dtype="e4m3"), dense("b", 32, 48, dtype="e4m3", last=0)]
    compiled = inductor.exact(
        "conformance.inductor.topics.scaled:scaled_mm",
        [*factors, *scales],
        target,
        values={scale.name: powers_of_two(scale) for scale in scales},
        settings={**BOTH, BACKENDS[0]: "ATEN,TRITON"},
        templates="^_scaled_mm$",
        pick=0,
        arguments=(("out_dtype", "bf16"),),
    )
    inductor.record(checks.check_library(compiled.generated, ["_scaled_mm"]))


FALLBACK = "autotune_fallback_to_aten"


@generated(fallback=[False, True])
def test_fallback_to_the_library(inductor, target, fallback):
    """Without any choice Inductor says what is missing, or takes ATen's kernel if that was asked for."""
    inductor.need_option(FALLBACK)
    settings = {**BOTH, FALLBACK: fallback, BACKENDS[0]: ""}
    program = program_of(f"{GRAPHS}:mm", half_factors(40, 48, 64), settings)
    if not fallback:
        inductor.recorder.proves_at_most("nothing", "what Inductor advises is judged, and no kernel is run")
        inductor.record(check_advice(inductor.compile(program, target).generated, *BACKENDS))
        return
    compiled = inductor.exact(program.graph, program.operands, target, settings=settings)
    inductor.record(checks.check_launches(compiled.generated, templates=0, extern=["mm"]))


# --- products that run without Python between their kernels -----------------------------------------------------------


@generated(operation=Thin(["mm", "addmm", "bmm"]))
def test_cuda_graph(inductor, target, operation):
    """Recorded in a CUDA graph over zeros, which is replayed with other numbers: the second call records."""
    inductor.need_device("a CUDA graph, which a device records", target)
    operands, settings = operands_of(operation), {**TRITON, "triton.cudagraphs": True}
    arguments = (("alpha", 1.0), ("beta", 1.0)) if operation == "addmm" else ()
    fields = {"settings": settings, "arguments": arguments, "calls": (tuple(operands),)}
    with checks.counting_replays() as replays:
        inductor.exact(f"{GRAPHS}:{operation}", operands, target, **fields)
    inductor.recorder.verdict("replayed", len(replays) > 0, f"{len(replays)} launches of a graph")


@pytest.mark.slow(60)
@generated(operation=Thin(["mm", "bmm"], quick=0, default=0))
def test_cpp_wrapper(inductor, target, operation):
    """Launched by C++ in place of Python."""
    inductor.need_device("a C++ wrapper, which launches kernels", target)
    settings = {**TRITON, "cpp_wrapper": True}
    compiled = inductor.exact(f"{GRAPHS}:{operation}", operands_of(operation), target, settings=settings)
    source = compiled.generated.modules[-1]
    inductor.record([in_source("wrapper", exactly(1, r"void inductor_entry_impl\("), source, "module")])
