"""Each check of the suite about Inductor's choices fails where a fault is planted."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.kernel import mm as mm_module
from torch._inductor.scheduler import Scheduler
from torch._inductor.select_algorithm import AlgorithmSelectorCache

from conformance.execution.compile.kernel_figures import KernelResources
from conformance.inductor.compile import replaced_decisions
from conformance.inductor.compile.program import (
    Choice,
    Decision,
    Failure,
    Generated,
    GeneratedKernel,
    Lowering,
    program_of,
)
from conformance.inductor.topics import choices
from conformance.judging.inductor_judge import Inductor
from conformance.records import Verdict
from conformance.targets import Target
from tests.inductor.planted_code import Fault, PlantedFaults, failed
from tests.inductor.sample_programs import SM90, generated


def suite() -> Any:
    """The suite, imported when it is needed: its marks must be known before."""
    return importlib.import_module("conformance.suites.test_inductor_choices")


# --- faults of generated modules --------------------------------------------------------------------------------------

M, N, K = 32, 32, 2048
#: The choices of a product in four parts, and those of the products of the parts.
FOUR_PARTS = r"^decompose_k_mm_4_split|^bmm"


def decomposed(inductor: Inductor, target: Target) -> None:
    graph = f"{suite().GRAPHS}:mm"
    operands, values = suite().product_of(graph, M, N, K, "bf16")
    fields = {"settings": suite().TRITON, "templates": FOUR_PARTS, "pick": 0}
    compiled = inductor.exact(graph, operands, target, values=values, **fields)
    inductor.record(choices.check_decomposed(compiled.generated, M, N))


def without_k(inductor: Inductor, target: Target) -> None:
    operands = suite().factors(10, 100, 0, "fp32")
    suite().check_empty(inductor, f"{suite().GRAPHS}:mm", operands, target, (10, 100), settings=suite().MAX_AUTOTUNE)


def wide(inductor: Inductor, target: Target) -> None:
    """A batch of products that are not rounded to fp16."""
    operands = [suite().half("a", 2, 3, 4), suite().half("b", 2, 4, 5)]
    fields = {"values": suite().wide_values(), "settings": suite().TRITON, "pick": 0}
    compiled = inductor.exact(f"{suite().OWN}:wide_bmm", operands, target, **fields)
    inductor.record(choices.check_output(compiled, inductor.harness.executor, shape=(2, 3, 5), dtype="fp32"))


CASES = {"decomposed": decomposed, "without K": without_k, "wide": wide}

VIEW_OF_A = r"\(512, 2048, 1\), 0\)"

FAULTS = (
    Fault("part not added", "decomposed", r"tmp6 = tmp4 \+ tmp5", "tmp6 = tmp4", ("numerics",)),
    Fault("part added twice", "decomposed", r"tmp4 = tmp2 \+ tmp3", "tmp4 = tmp2 + tmp1", ("numerics",)),
    Fault("part of A twice", "decomposed", VIEW_OF_A, "(0, 2048, 1), 0)", ("numerics",)),
    Fault("first part of A is the second", "decomposed", VIEW_OF_A, "(512, 2048, 1), 1)", ("numerics",)),
    Fault("element not stored", "decomposed", r"(xmask = xindex < xnumel)$", r"\1 - 1", ("numerics",)),
    Fault("parts in fp16", "decomposed", r"torch\.float32\)$", "torch.float16)", ("source/parts",)),
    Fault("another product", "decomposed", r"extern_kernels\.bmm_dtype\(", "extern_kernels.bmm(", ("source/bmm",)),
    Fault("another name", "decomposed", r"\bdecompose_k_mm_4_split_(\d+)\(", r"product_\1(", ("source/function",)),
    Fault("parts not added", "decomposed", r"^( *)triton_poi_fused_mm_0\.run\(.*$", r"\1pass", ("source/kernels",)),
    Fault("a template", "decomposed", r"\Z", "\n# triton_tem_fused_mm_1", ("source/no template",)),
    Fault("nothing written", "without K", r"^ *extern_kernels\.mm\(.*$", "", ("numerics",)),
    Fault("ones", "without K", r"extern_kernels\.mm\(.*$", "buf0.fill_(1)", ("numerics",)),
    Fault("another dtype", "without K", r"torch\.float32", "torch.float16", ("dtype",)),
    Fault("another shape", "without K", r"return \(buf0, ?\)", "return (buf0.reshape(100, 10),)", ("shape",)),
    Fault(
        "rounded", "wide", r"(tl\.store\(\w+ \+ .*), acc, ", r"\1, acc.to(tl.float16).to(tl.float32), ", ("numerics",)
    ),
)


@pytest.mark.long(12)
class TestFaults(PlantedFaults):
    pass


@functools.cache
def in_four_parts() -> Generated:
    """Returns the code that is generated for a product in four parts."""
    options = {"templates": FOUR_PARTS, "pick": 0}
    return generated(program_of(f"{suite().GRAPHS}:mm", suite().factors(M, N, K, "bf16"), suite().TRITON, **options))


def test_a_decomposition_of_another_size_shows() -> None:
    assert failed(choices.check_decomposed(in_four_parts(), M + 1, N)) == ["source/parts"]


def test_a_decomposition_shows_where_none_is_allowed() -> None:
    failures = failed(choices.check_not_decomposed(in_four_parts()))
    assert failures == ["offered", "source/no bmm", "source/no decompose_k"]


def test_fixed_sizes_show_where_symbols_are_required() -> None:
    recompiled = dataclasses.replace(in_four_parts(), counters={"recompiles": 1})
    assert failed(choices.check_symbolic(recompiled, N)) == ["source/parts", "recompiles"]


# --- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
def test_sums_fit_and_a_part_that_is_lost_or_taken_twice_shows(number: int) -> None:
    m, n, k = [*suite().DEEP, *suite().SHALLOW.values()][number]
    values = choices.mirrored(m, n, k, "bf16")
    a, b = values["a"].double(), values["b"].double()
    right = a @ b
    assert right.abs().max() <= 256
    assert torch.equal(right.bfloat16().double(), right)
    split = next(number for number in range(2, 30) if k % number == 0)
    step = k // split
    for part in range(split):
        one = a[:, part * step : (part + 1) * step] @ b[part * step : (part + 1) * step]
        assert (one != 0).double().mean() > 0.5
    assert ((a[:, -1:] @ b[-1:]) != 0).any()


def test_fp16_cannot_hold_the_wide_results() -> None:
    values = suite().wide_values()
    right = values["a"].double() @ values["b"].double()
    assert (right.half().double() != right).any()


# --- what is said and offered -----------------------------------------------------------------------------------------

TEMPLATE = Choice("triton_mm_0", "BLOCK_K=32, BLOCK_M=32, BLOCK_N=32, num_stages=2, num_warps=4, GROUP_M=8", "triton")
LARGER = Choice("triton_mm_1", TEMPLATE.description.replace("BLOCK_M=32", "BLOCK_M=128"), "triton")
EXTERN = Choice("mm", "", "extern")
ADVICE = "NoValidChoicesError: No choices to select. please consider adding ATEN into max_autotune_gemm_backends"


def offering(*offered: Choice, lowering: str = "mm", **fields: Any) -> Generated:
    return Generated(lowerings=(Lowering(lowering, offered, offered, len(offered)),), **fields)


def refused(message: str = ADVICE, *types: str, notes: tuple[int, ...] = ()) -> Generated:
    return Generated(failure=Failure(types or ("InductorError", "NoValidChoicesError"), message), notes=notes)


def with_layouts(*layouts: str, lowering: str = "addmm") -> Generated:
    return offering(*(dataclasses.replace(TEMPLATE, layout=layout) for layout in layouts), lowering=lowering)


def splitting(*splits: int | str) -> Generated:
    """A template, and a choice for each of ``splits``."""
    return offering(TEMPLATE, *(Choice(f"decompose_k_mm_{split}_split_0", "", "subgraph") for split in splits))


def copying(text: str) -> Generated:
    """A choice that makes the second operand contiguous, and the module ``text``."""
    return offering(CONTIGUOUS, modules=(text,))


def launching(text: str, *kernels: GeneratedKernel) -> Generated:
    return Generated(modules=(text,), kernels=kernels)


def case(expected: list[str], check: Callable[..., list[Verdict]], *arguments: Any, **options: Any) -> Any:
    """A call of ``check`` in which the ``expected`` verdicts fail."""
    name = f"{check.__name__}-{', '.join(expected) or 'right'}"
    return pytest.param(functools.partial(check, *arguments, **options), expected, id=name)


SMALL, BOTH = offering(TEMPLATE), offering(TEMPLATE, LARGER)
UNCOMPILED = dataclasses.replace(SMALL, counters={"select_algorithm_num_precompilation_exceptions": 1})
OPTIONS = ("max_autotune_gemm_backends", "max_autotune_conv_backends")
POINTWISE = GeneratedKernel("k", "pointwise", "")
CONTIGUOUS = Choice("contiguous_mm_0", "", "subgraph")
#: A function that copies its second operand into rows.
COPIED = """
def contiguous_mm_0(args):
    contiguous_mm_0_buf0 = empty_strided_cuda((8, 9), (9, 1), torch.float16)
    triton_poi_fused_mm_0.run(contiguous_mm_0_b_1, contiguous_mm_0_buf0, 72, stream=raw_stream0)
    extern_kernels.mm(contiguous_mm_0_a_1, contiguous_mm_0_buf0, out=contiguous_mm_0_buf1)
"""
SPLIT = functools.partial(choices.check_splits, m=32, n=64, k=2048)
SPLIT.__name__ = "check_splits"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        case([], choices.check_advice, refused(), *OPTIONS),
        case(["raised"], choices.check_advice, refused(ADVICE, "TypeError"), *OPTIONS),
        case(["reason", "advice"], choices.check_advice, refused("NoValidChoicesError"), *OPTIONS),
        case(["advice", "no other advice"], choices.check_advice, refused(ADVICE.replace("gemm", "conv")), *OPTIONS),
        case(["raised", "reason", "advice"], choices.check_advice, Generated(), *OPTIONS),
        case([], choices.check_infinite, SMALL, refused(notes=(5,))),
        case(["raised"], choices.check_infinite, SMALL, offering(TEMPLATE, notes=(5,))),
        case(["timed"], choices.check_infinite, SMALL, refused()),
        case(["timed"], choices.check_infinite, SMALL, refused(notes=(5, 1))),
        case(["compiled"], choices.check_infinite, refused(), refused(notes=(5,))),
        case([], choices.check_offered, offering(EXTERN, TEMPLATE), templates=True, most=4),
        case([], choices.check_offered, offering(EXTERN), templates=False, most=4),
        case(["templates/0"], choices.check_offered, offering(EXTERN), templates=True, most=4),
        case(["templates/0"], choices.check_offered, offering(EXTERN, TEMPLATE), templates=False, most=4),
        case(["extern/0"], choices.check_offered, SMALL, templates=True, most=4),
        case(["templates/0"], choices.check_offered, offering(EXTERN, TEMPLATE, LARGER), templates=True, most=1),
        case(["lowerings"], choices.check_offered, Generated(), templates=True, most=4),
        case([], choices.check_layouts, with_layouts("FixedLayout", "FixedLayout"), fixed=True),
        case([], choices.check_layouts, with_layouts("FlexibleLayout"), fixed=False),
        case(["layouts"], choices.check_layouts, with_layouts("FlexibleLayout"), fixed=True),
        case(["layouts"], choices.check_layouts, with_layouts("FixedLayout", "FlexibleLayout"), fixed=True),
        case(["lowerings"], choices.check_layouts, with_layouts("FixedLayout", lowering="mm"), fixed=True),
        case(["lowerings", "layouts"], choices.check_layouts, Generated(), fixed=True),
        case([], choices.check_pruned, BOTH, SMALL, some=True),
        case(["pruned"], choices.check_pruned, BOTH, BOTH, some=True),
        case(["part"], choices.check_pruned, SMALL, BOTH, some=False),
        case(["something left"], choices.check_pruned, BOTH, offering(), some=True),
        case(["exceptions"], choices.check_pruned, BOTH, UNCOMPILED, some=True),
        case([], choices.check_exhaustive, offering(EXTERN, TEMPLATE)),
        case(["config"], choices.check_exhaustive, offering(EXTERN, LARGER)),
        case(["offered", "config"], choices.check_exhaustive, offering(EXTERN, TEMPLATE, LARGER)),
        case(["offered"], choices.check_exhaustive, SMALL),
        case([], SPLIT, splitting(2, 32), most=10, some=True),
        case([], SPLIT, splitting(), most=10, some=False),
        case(["splits"], SPLIT, splitting(64), most=10, some=True),  # more than K / N
        case(["splits"], SPLIT, splitting(3), most=10, some=True),
        case(["splits"], SPLIT, splitting(1), most=10, some=True),
        case(["splits"], SPLIT, splitting(2, 2), most=10, some=True),
        case(["number"], SPLIT, splitting(2, 4), most=1, some=True),
        case(["number"], SPLIT, splitting(2), most=10, some=False),
        case(["number"], SPLIT, splitting(), most=10, some=True),
        case(["names", "number"], SPLIT, splitting("parts"), most=10, some=True),
        case([], choices.check_contiguous, copying(COPIED), "contiguous_mm"),
        case(["offered"], choices.check_contiguous, launching(COPIED), "contiguous_mm"),
        case(["source/copy"], choices.check_contiguous, copying(COPIED.replace("(9, 1)", "(1, 8)")), "contiguous_mm"),
        case(["source/copy"], choices.check_contiguous, copying(COPIED.replace("_b_1,", "_a_1,")), "contiguous_mm"),
        case(
            ["source/copy"], choices.check_contiguous, copying(COPIED.replace("buf0, out", "b_1, out")), "contiguous_mm"
        ),
        case(["offered", "source/copy"], choices.check_contiguous, copying(COPIED), "contiguous_addmm"),
        case([], choices.check_not_contiguous, SMALL),
        case(["not offered"], choices.check_not_contiguous, offering(TEMPLATE, CONTIGUOUS)),
        case(
            ["not generated"], choices.check_not_contiguous, offering(TEMPLATE, modules=("def contiguous_addmm_3(a)",))
        ),
        case(["choices"], choices.check_not_contiguous, offering()),
        case([], choices.check_triton_alone, launching("k.run(arg0_1)", POINTWISE)),
        case(
            ["source/no extern"], choices.check_triton_alone, launching("extern_kernels.mm(arg0_1, out=b)", POINTWISE)
        ),
        case(["kernels"], choices.check_triton_alone, launching("k.run(arg0_1)")),
        case(["kernels"], choices.check_fits, Generated(), SM90),
    ],
)
def test_fault_of_what_is_offered(check: Callable[[], list[Verdict]], expected: list[str]) -> None:
    assert failed(check()) == expected


def test_a_kernel_past_the_limits_shows() -> None:
    kernel = in_four_parts().kernels[0]
    assert kernel.artefact is not None
    right = dataclasses.replace(kernel, kind="template")
    used = KernelResources(32, 0, "bytes", SM90.limits.shared_memory + 1, 0, 128, "cubin")
    large = dataclasses.replace(right, artefact=dataclasses.replace(kernel.artefact, resources=used))
    missing = GeneratedKernel("k", "template", "", None, "PassManager::run failed")
    for one, expected in ((right, []), (large, ["fits"]), (missing, ["fits"])):
        assert failed(choices.check_fits(Generated(kernels=(one,)), SM90)) == expected


def test_a_larger_tile_is_larger() -> None:
    assert choices.tile(LARGER) > choices.tile(TEMPLATE)


# --- replaced decisions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [None, *Decision])
def test_every_decision_is_as_before_whatever_happens(decision: Decision | None) -> None:
    heuristics: Any = replaced_decisions._heuristics().BaseConfigHeuristic
    changed = (AlgorithmSelectorCache, Scheduler, mm_module, heuristics)
    before = [dict(vars(one)) for one in changed]
    with pytest.raises(ZeroDivisionError), replaced_decisions.replacing(decision):
        raise ZeroDivisionError
    assert before == [dict(vars(one)) for one in changed]


def test_options_of_an_earlier_compilation_are_forgotten() -> None:
    splits = []
    for threshold in (8, 16):
        settings = {**suite().TRITON, suite().THRESHOLD: threshold}
        program = program_of(f"{suite().GRAPHS}:mm", suite().factors(32, 32, 256), settings)
        splits.append(choices.splits_of(generated(program))[0])
    assert [bool(numbers) for numbers in splits] == [True, False]


def test_an_unreplaced_lookup_has_a_choice() -> None:
    program = program_of(f"{suite().GRAPHS}:mm", suite().factors(16, 16, 16), suite().TRITON)
    usual = generated(program)
    assert usual.failure is None
    for decision in (Decision.TIMES_ARE_INFINITE, Decision.DEFERRED_TIMES_ARE_INFINITE):
        infinite = generated(dataclasses.replace(program, decision=decision))
        assert failed(choices.check_infinite(usual, infinite)) == []
