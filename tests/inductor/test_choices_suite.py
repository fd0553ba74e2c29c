"""Each check of the suite about Inductor's choices fails where a fault is planted."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import pickle
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.kernel import mm as mm_module
from torch._inductor.select_algorithm import AlgorithmSelectorCache

from conformance.execution.compilation import Task
from conformance.execution.interpreter import InterpreterExecutor
from conformance.execution.resources import KernelResources
from conformance.inductor.checks import choices, split_k
from conformance.inductor.compile import replaced_decisions
from conformance.inductor.compile.program import (
    Choice,
    Decision,
    Failure,
    Generated,
    GeneratedKernel,
    Lowering,
    Program,
)
from conformance.inductor.compile.provider import Compiled
from conformance.inductor.replay.exact import exact_verdicts
from conformance.records import Status, Verdict
from conformance.targets import find
from tests.execution.sample_kernels import pool
from tests.inductor.planting import failed, interpreted

SM90 = find("sm_90")


def suite() -> Any:
    """The suite, imported when it is needed: its marks must be known before."""
    return importlib.import_module("conformance.suites.test_inductor_choices")


def generate(program: Program) -> Generated:
    result = pool().submit(Task("conformance.inductor.compile.deviceless_worker:generate", program, SM90)).result()
    assert result.status is Status.PASS, result.error
    generated: Generated = result.value
    return generated


# --- faults of generated modules --------------------------------------------------------------------------------------

M, N, K = 32, 32, 2048


@functools.cache
def decomposed() -> Compiled:
    """A product in four parts."""
    operands, _ = suite().product_of(f"{suite().GRAPHS}:mm", M, N, K, "bf16")
    program = suite().program(
        f"{suite().GRAPHS}:mm", operands, suite().TRITON, templates=r"^decompose_k_mm_4_split|^bmm", pick=0
    )
    return Compiled(program, generate(program))


@functools.cache
def empty() -> Compiled:
    """A product without K."""
    operands = [suite().tensor("a", 10, 0, dtype="fp32"), suite().tensor("b", 0, 100, dtype="fp32")]
    program = suite().program(f"{suite().GRAPHS}:mm", operands, suite().MAX_AUTOTUNE)
    return Compiled(program, generate(program))


@functools.cache
def wide() -> Compiled:
    """A batch of products that are not rounded to fp16."""
    operands = [suite().tensor("a", 2, 3, 4), suite().tensor("b", 2, 4, 5)]
    program = suite().program(f"{suite().OWN}:wide_bmm", operands, suite().TRITON, pick=0)
    return Compiled(program, generate(program))


def edited(compiled: Compiled, pattern: str, replacement: str) -> Compiled:
    module, count = re.subn(pattern, replacement, compiled.generated.modules[-1], flags=re.MULTILINE)
    assert count, f"{pattern!r} is nowhere in {compiled.generated.modules[-1]}"
    return dataclasses.replace(compiled, generated=dataclasses.replace(compiled.generated, modules=(module,)))


#: name -> what is compiled, what is found in its module, what is put there, and the checks that must fail
EDITS: dict[str, tuple[str, str, str, list[str]]] = {
    "right": ("decomposed", r"\Z", "", []),
    "part not added": ("decomposed", r"tmp6 = tmp4 \+ tmp5", "tmp6 = tmp4", ["numerics/0"]),
    "part added twice": ("decomposed", r"tmp4 = tmp2 \+ tmp3", "tmp4 = tmp2 + tmp1", ["numerics/0"]),
    "part of A twice": ("decomposed", r"\(512, 2048, 1\), 0\)", "(0, 2048, 1), 0)", ["numerics/0"]),
    "first part of A is the second": ("decomposed", r"\(512, 2048, 1\), 0\)", "(512, 2048, 1), 1)", ["numerics/0"]),
    "element not stored": ("decomposed", "xmask = xindex < xnumel", "xmask = xindex < xnumel - 1", ["numerics/0"]),
    "right without K": ("empty", r"\Z", "", []),
    "nothing written without K": ("empty", r"^ *extern_kernels\.mm\(.*$", "", ["numerics/0"]),
    "ones without K": ("empty", r"extern_kernels\.mm\(.*$", "buf0.fill_(1)", ["numerics/0"]),
    "another dtype": ("empty", r"torch\.float32", "torch.float16", ["dtype"]),
    "another shape": ("empty", r"return \(buf0, ?\)", "return (buf0.reshape(100, 10),)", ["shape"]),
    "right and wide": ("wide", r"\Z", "", []),
    "rounded to the operands' dtype": (
        "wide",
        r"(tl\.store\(\w+ \+ .*), acc, ",
        r"\1, acc.to(tl.float16).to(tl.float32), ",
        ["numerics/0"],
    ),
}


def judge_pickled(path: str) -> None:
    """In an interpreting process: prints what fails of each program in the file, by name; "raised" for an exception."""
    executor = InterpreterExecutor()
    failures = {}
    for name, (compiled, values, shape, dtype) in pickle.loads(Path(path).read_bytes()).items():
        try:
            verdicts = exact_verdicts(compiled, executor, 0, values)
        except Exception as error:
            verdicts = [Verdict("raised", False, repr(error))]
        verdicts += choices.check_output(compiled, executor, shape=shape, dtype=dtype)
        failures[name] = failed(verdicts)
    print(json.dumps(failures))


@functools.cache
def judged() -> dict[str, list[str]]:
    """What fails of each edit, by name."""
    compilations = {
        "decomposed": (decomposed(), split_k.mirrored(M, N, K, "bf16"), (M, N), "bf16"),
        "empty": (empty(), {}, (10, 100), "fp32"),
        "wide": (wide(), suite().wide_values(), (2, 3, 5), "fp32"),
    }
    programs = {}
    for name, (which, pattern, replacement, _) in EDITS.items():
        compiled, *rest = compilations[which]
        programs[name] = (edited(compiled, pattern, replacement), *rest)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pickle.dumps(programs))
        file.flush()
        code = f"from {__name__} import judge_pickled; judge_pickled({file.name!r})"
        return dict(interpreted(code))


@pytest.mark.parametrize("name", EDITS)
def test_wrong_numbers_show(name: str) -> None:
    failures, caught = judged()[name], EDITS[name][-1]
    assert set(caught) <= set(failures), failures
    assert bool(failures) == bool(caught), failures


def test_a_wrong_decomposition_shows_in_the_module() -> None:
    compiled = decomposed()
    assert failed(split_k.check_decomposed(compiled.generated, M, N)) == []
    faults = {
        "parts": (r"torch\.float32\)$", "torch.float16)"),
        "bmm": (r"extern_kernels\.bmm_dtype\(", "extern_kernels.bmm("),
        "function": (r"^def decompose_k_mm_4_split_(\d+)\(", r"def product_\1("),
        "kernels": (r"^(\s*)triton_poi_fused_mm_0\.run\(.*$", r"\1pass"),
        "no template": (r"\Z", "triton_tem_fused_mm_1.run(buf0)"),
    }
    for name, (pattern, replacement) in faults.items():
        failures = failed(split_k.check_decomposed(edited(compiled, pattern, replacement).generated, M, N))
        assert f"source/{name}" in failures, f"{name}: {failures}"
    assert failed(split_k.check_decomposed(compiled.generated, M + 1, N)) == ["source/parts"]
    assert failed(split_k.check_not_decomposed(compiled.generated)) == [
        "offered",
        "source/no bmm",
        "source/no decompose_k",
    ]


def test_fixed_sizes_show_where_symbols_are_required() -> None:
    recompiled = dataclasses.replace(decomposed().generated, counters={"recompiles": 1})
    assert failed(split_k.check_symbolic(recompiled, N)) == ["source/parts", "recompiles"]


# --- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
def test_sums_fit_and_a_part_that_is_lost_or_taken_twice_shows(number: int) -> None:
    m, n, k = [*suite().DEEP, *suite().SHALLOW.values()][number]
    values = split_k.mirrored(m, n, k, "bf16")
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

TEMPLATE = Choice("triton_mm_0", "BLOCK_K=32, BLOCK_M=32, BLOCK_N=32, num_stages=1, num_warps=4, GROUP_M=8", "triton")
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
SPLIT = functools.partial(split_k.check_splits, m=32, n=64, k=2048)
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
    kernel = decomposed().generated.kernels[0]
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
    before = (dict(vars(AlgorithmSelectorCache)), dict(vars(mm_module)), dict(vars(heuristics)))
    with pytest.raises(ZeroDivisionError), replaced_decisions.replacing(decision):
        raise ZeroDivisionError
    assert before == (dict(vars(AlgorithmSelectorCache)), dict(vars(mm_module)), dict(vars(heuristics)))


def test_options_of_an_earlier_compilation_are_forgotten() -> None:
    operands = [suite().tensor("a", 32, 256), suite().tensor("b", 256, 32)]
    results = [
        generate(suite().program(f"{suite().GRAPHS}:mm", operands, {**suite().TRITON, suite().THRESHOLD: threshold}))
        for threshold in (8, 16)
    ]
    assert [bool(split_k.splits_of(result)[0]) for result in results] == [True, False]


def test_an_unreplaced_lookup_has_a_choice() -> None:
    program = suite().program(
        f"{suite().GRAPHS}:mm", [suite().tensor("a", 16, 16), suite().tensor("b", 16, 16)], suite().TRITON
    )
    usual = generate(program)
    assert usual.failure is None
    for decision in (Decision.TIMES_ARE_INFINITE, Decision.DEFERRED_TIMES_ARE_INFINITE):
        infinite = generate(dataclasses.replace(program, decision=decision))
        assert failed(choices.check_infinite(usual, infinite)) == []
