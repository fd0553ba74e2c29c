"""Each check of the suite about Inductor's choices fails where a fault is planted."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import pickle
import re
import tempfile
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
from tests.inductor.planting import interpreted

SM90 = find("sm_90")


def suite() -> Any:
    """The suite, imported when it is needed: its marks must be known before."""
    return importlib.import_module("conformance.suites.test_inductor_choices")


def failed(verdicts: list[Verdict]) -> list[str]:
    return [verdict.check for verdict in verdicts if not verdict.passed]


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


def offering(*offered: Choice, **fields: Any) -> Generated:
    return Generated(lowerings=(Lowering("mm", offered, offered, len(offered)),), **fields)


def refused(message: str = ADVICE, *types: str) -> Generated:
    return Generated(failure=Failure(types or ("InductorError", "NoValidChoicesError"), message))


def test_wrong_advice_shows() -> None:
    def judge(generated: Generated) -> list[str]:
        return failed(choices.check_advice(generated, suite().GEMM_BACKENDS, suite().CONV_BACKENDS))

    assert judge(refused()) == []
    assert judge(refused(ADVICE, "TypeError")) == ["raised"]
    assert judge(refused("NoValidChoicesError")) == ["reason", "advice"]
    assert judge(refused(ADVICE.replace("gemm", "conv"))) == ["advice", "no other advice"]
    assert judge(Generated()) == ["raised", "reason", "advice"]


def test_a_choice_of_infinite_time_shows() -> None:
    usual = offering(TEMPLATE)
    timed = dataclasses.replace(refused(), notes=(5,))
    assert failed(choices.check_infinite(usual, timed)) == []
    assert failed(choices.check_infinite(usual, dataclasses.replace(usual, notes=(5,)))) == ["raised"]
    assert failed(choices.check_infinite(usual, refused())) == ["timed"]
    assert failed(choices.check_infinite(usual, dataclasses.replace(timed, notes=(5, 1)))) == ["timed"]
    assert failed(choices.check_infinite(refused(), timed)) == ["compiled"]


def test_wrong_offers_show() -> None:
    def judge(*offered: Choice, templates: bool, most: int = 4) -> list[str]:
        return failed(choices.check_offered(offering(*offered), templates=templates, most=most))

    assert judge(EXTERN, TEMPLATE, templates=True) == []
    assert judge(EXTERN, templates=False) == []
    assert judge(EXTERN, templates=True) == ["templates/0"]
    assert judge(EXTERN, TEMPLATE, templates=False) == ["templates/0"]
    assert judge(TEMPLATE, templates=True) == ["extern/0"]
    assert judge(EXTERN, TEMPLATE, LARGER, templates=True, most=1) == ["templates/0"]
    assert failed(choices.check_offered(Generated(), templates=True, most=4)) == ["lowerings"]


def test_a_wrong_layout_shows() -> None:
    def judge(*layouts: str, fixed: bool, lowering: str = "addmm") -> list[str]:
        offered = tuple(dataclasses.replace(TEMPLATE, layout=layout) for layout in layouts)
        return failed(choices.check_layouts(Generated(lowerings=(Lowering(lowering, offered, offered),)), fixed=fixed))

    assert judge("FixedLayout", "FixedLayout", fixed=True) == []
    assert judge("FlexibleLayout", fixed=False) == []
    assert judge("FlexibleLayout", fixed=True) == ["layouts"]
    assert judge("FixedLayout", "FixedLayout", "FlexibleLayout", fixed=True) == ["layouts"]
    assert judge("FixedLayout", fixed=True, lowering="mm") == ["lowerings"]
    assert failed(choices.check_layouts(Generated(), fixed=True)) == ["lowerings", "layouts"]


def test_wrong_pruning_shows() -> None:
    small, both = offering(TEMPLATE), offering(TEMPLATE, LARGER)
    assert failed(choices.check_pruned(both, small, some=True)) == []
    assert failed(choices.check_pruned(both, both, some=True)) == ["pruned"]
    assert failed(choices.check_pruned(small, both, some=False)) == ["part"]
    assert failed(choices.check_pruned(both, offering(), some=True)) == ["something left"]
    counted = dataclasses.replace(small, counters={"select_algorithm_num_precompilation_exceptions": 1})
    assert failed(choices.check_pruned(both, counted, some=True)) == ["exceptions"]
    assert choices.tile(LARGER) > choices.tile(TEMPLATE)


def test_a_kernel_past_the_limits_shows() -> None:
    kernel = decomposed().generated.kernels[0]
    assert kernel.artefact is not None
    right = dataclasses.replace(kernel, kind="template")
    used = KernelResources(32, 0, "bytes", SM90.limits.shared_memory + 1, 0, 128, "cubin")
    large = dataclasses.replace(right, artefact=dataclasses.replace(kernel.artefact, resources=used))
    missing = GeneratedKernel("k", "template", "", None, "PassManager::run failed")
    assert failed(choices.check_fits(Generated(kernels=(right,)), SM90)) == []
    assert failed(choices.check_fits(Generated(kernels=(large,)), SM90)) == ["fits"]
    assert failed(choices.check_fits(Generated(kernels=(missing,)), SM90)) == ["fits"]
    assert failed(choices.check_fits(Generated(), SM90)) == ["kernels"]


def test_a_wrong_exhaustive_list_shows() -> None:
    assert failed(choices.check_exhaustive(offering(EXTERN, TEMPLATE))) == []
    assert failed(choices.check_exhaustive(offering(EXTERN, LARGER))) == ["config"]
    assert failed(choices.check_exhaustive(offering(EXTERN, TEMPLATE, LARGER))) == ["offered", "config"]
    assert failed(choices.check_exhaustive(offering(TEMPLATE))) == ["offered"]


def test_wrong_splits_show() -> None:
    def judge(*splits: int, most: int = 10, some: bool = True) -> list[str]:
        offered = [Choice(f"decompose_k_mm_{split}_split_0", "", "subgraph") for split in splits]
        return failed(split_k.check_splits(offering(TEMPLATE, *offered), 32, 64, 2048, most=most, some=some))

    assert judge(2, 32) == []
    assert judge(some=False) == []
    assert judge(64) == ["splits"]  # more than K / N
    assert judge(3) == ["splits"]
    assert judge(1) == ["splits"]
    assert judge(2, 2) == ["splits"]
    assert judge(2, 4, most=1) == ["number"]
    assert judge(2, some=False) == ["number"]
    assert judge() == ["number"]
    odd = Choice("decompose_k_mm_parts", "", "subgraph")
    assert "names" in failed(split_k.check_splits(offering(odd), 32, 64, 2048, most=10, some=True))


def test_a_contiguous_transformation_shows() -> None:
    offered = Choice("contiguous_mm_0", "", "subgraph")
    assert failed(choices.check_not_contiguous(offering(TEMPLATE))) == []
    assert failed(choices.check_not_contiguous(offering(TEMPLATE, offered))) == ["not offered"]
    module = "def contiguous_addmm_3(args): ..."
    assert failed(choices.check_not_contiguous(offering(TEMPLATE, modules=(module,)))) == ["not generated"]
    assert failed(choices.check_not_contiguous(offering())) == ["choices"]


def test_an_extern_kernel_shows_where_triton_is_required() -> None:
    kernel = GeneratedKernel("k", "pointwise", "")
    right = Generated(modules=("k.run(arg0_1)",), kernels=(kernel,))
    assert failed(choices.check_triton_alone(right)) == []
    extern = dataclasses.replace(right, modules=("extern_kernels.mm(arg0_1, arg1_1, out=buf0)",))
    assert failed(choices.check_triton_alone(extern)) == ["source/no extern"]
    assert failed(choices.check_triton_alone(dataclasses.replace(right, kernels=()))) == ["kernels"]


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
