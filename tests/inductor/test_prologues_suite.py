"""Each check of the suite about prologues fails where a fault is planted in what Inductor generated."""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace

import pytest

from conformance.inductor.compile.program import Generated, GeneratedKernel, Program
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.topics import prologues
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.inductor_judge import Inductor
from tests.inductor.planted_code import Fault, PlantedFaults, suite_test

case = functools.partial(suite_test, "test_inductor_prologues")

CASES = {
    "upcast": case("test_upcast", sizes=(63, 120, 250)),
    "gather": case("test_gather_fusion"),
    "low_precision": case("test_low_precision", added=0),
    "downcast": case("test_downcast"),
    "multiple_fusions": case("test_multiple_fusions", sizes=(64, 120, 64)),
    "upcast_relu": case("test_pending_fusion_pro_and_epi", measured=False),
    "storage_offset": case("test_storage_offset_prologue"),
    "increased": case("test_preserves_zero_analysis", graph="increased"),
    "positive": case("test_preserves_zero_analysis", graph="positive"),
    "mismatched_group": case("test_mismatched_prologue_group"),
    "second_call": case("test_template_with_epilogues_and_dynamic_shape"),
}

LAUNCH = r"^( *)(triton_tem_\w+\.run\(.*\))$"

FAULTS = (
    Fault("a second launch", "upcast", LAUNCH, r"\1\2\n\1\2", ("wrapper",)),
    Fault("an operand that stays", "upcast", r"^ *del arg0_1$", "", ("wrapper",)),
    Fault("a product of ATen", "downcast", LAUNCH, r"\1extern_kernels.mm(buf0, arg1_1, out=buf1)", ("wrapper",)),
    Fault(
        "zeros where zero stays zero", "upcast", r"a = tmp1\.", "a = tl.where(a_mask, tmp1, 0.0).", ("loop/no mask",)
    ),
    Fault("rows that are not gathered", "gather", r"idx_n \+ 128\*tmp\d+", "idx_n + 128*idx_m", ("numerics/0",)),
    Fault(
        "a detour through fp32",
        "low_precision",
        r"\.to\(tl\.bfloat16\)",
        ".to(tl.float32).to(tl.bfloat16)",
        ("loop/stays in low precision",),
    ),
    Fault("a wrong constant", "multiple_fusions", r"(tmp[36] = .*)\b1\.5\b", r"\g<1>1.25", ("numerics/0",)),
    Fault("a constant that is absent", "multiple_fusions", r"tmp1 = acc \* tmp0", "tmp1 = acc", ("numerics/0",)),
    Fault("half of the launch", "storage_offset", r", 4, 1, 1, stream=", ", 2, 1, 1, stream=", ("numerics/0",)),
    Fault("an offset of another row", "storage_offset", r"\b4096\b", "4032", ("numerics/0",)),
    Fault("k's mask", "increased", r"a = tl\.where\(a_mask, (\w+), 0\.0\)", r"a = \1", ("mask/a",)),
    Fault("b's mask for a", "increased", r"tl\.where\(a_mask,", "tl.where(tl.trans(b_mask),", ("mask/a",)),
    Fault("a mask too many", "positive", r"a = tmp(\d)\.", r"a = tl.where(a_mask, tmp\1, 0.0).", ("mask/a",)),
    Fault("no epilogue", "upcast_relu", r"triton_helpers\.maximum\(.*, acc\)", "acc", ("numerics/0",)),
    Fault(
        "a tensor too many",
        "mismatched_group",
        r"^( *)buf2 = ",
        r"\1buf9 = empty_strided_cuda((1, ), (1, ), torch.float32)\n\1buf2 = ",
        ("wrapper",),
    ),
    Fault("sizes of the first call", "second_call", r"s27 = arg1_1$", "s27 = 5", ("raises AssertionError",)),
)


@pytest.mark.long(17)
class TestFaults(PlantedFaults):
    pass


MODULE = """
class Runner:
    def call(self, args):
        x, y = args
        buf0 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
        triton_poi_0.run(x, buf0, 16, stream=stream0)
        del x
        buf1 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
        extern_kernels.mm(buf0, y, out=buf1)
        del buf0, y
        return (buf1,)

def benchmark(args):
    z = empty_strided_cuda((4, 4), (4, 1), torch.float32)
    del z
"""

LOOP = """
    EVEN_K : tl.constexpr = True
    BLOCK_K : tl.constexpr = 32
    a = 0
    for k_idx in range(0, tl.cdiv(K, BLOCK_K)):
        a = tmp0.to(tl.float32)
        b = tl.load(B)
        acc += tl.dot(a, b)
    out = tl.where(mask, acc, 0.0)
"""


def compiled(*kinds: str) -> CompiledProgram:
    """Something compiled to MODULE, with kernels of these ``kinds``."""
    kernels = tuple(GeneratedKernel(f"kernel_{number}", kind, LOOP) for number, kind in enumerate(kinds))
    return CompiledProgram(Program("graphs:product", ()), Generated(modules=(MODULE,), kernels=kernels))


def test_counts_are_those_of_call_alone() -> None:
    assert prologues.counts_of(MODULE) == prologues.Counts(launches=1, allocations=2, deletions=3, externs=1)
    with pytest.raises(ValueError, match="no function call"):
        prologues.counts_of("def other(args): ...")


@pytest.mark.parametrize("field", ["launches", "allocations", "deletions", "externs"])
def test_every_count_is_checked(field: str) -> None:
    right = {"launches": 1, "allocations": 2, "deletions": 3, "externs": 1}
    assert prologues.check_counts(compiled(), prologues.Counts(**right)).passed
    for wrong in (right[field] - 1, right[field] + 1):
        assert not prologues.check_counts(compiled(), prologues.Counts(**{**right, field: wrong})).passed


def test_the_loop_ends_at_its_multiplication() -> None:
    assert "tl.where" not in prologues.loop_of(LOOP)
    assert prologues.operand_line(LOOP, "a").strip() == "a = tmp0.to(tl.float32)"
    with pytest.raises(ValueError, match="no loop over k_idx"):
        prologues.loop_of("a = tl.dot(a, b)")
    with pytest.raises(ValueError, match="0 statements give c"):
        prologues.operand_line(LOOP, "c")


def test_a_block_that_does_not_divide_k_is_not_even() -> None:
    assert prologues.check_block(LOOP, 64).passed
    assert not prologues.check_block(LOOP, 63).passed
    assert prologues.check_mask(LOOP, "a", masked=True).passed, "an even k needs no mask"
    assert not prologues.check_mask(LOOP.replace("= True", "= False"), "a", masked=True).passed


def test_one_template_is_required() -> None:
    assert prologues.template_kernel(compiled("template", "pointwise")).name == "kernel_0"
    for kinds in ((), ("template", "template")):
        with pytest.raises(ValueError, match=f"there are {len(kinds)}"):
            prologues.template_kernel(compiled(*kinds))


@pytest.mark.parametrize(
    ("launched", "kinds", "passed"),
    [
        ("kernel_0.run(", ["template"], True),
        ("kernel_0.run(", ["pointwise"], False),
        ("kernel_0.run(); kernel_0.run(", ["template"], False),
        ("kernel_0.run(); kernel_1.run(", ["template", "template"], False),
        ("extern_kernels.mm(", ["template"], False),
        ("kernel_0.run(); extern_kernels.mm(", ["template"], False),
    ],
)
def test_measured_products_are_counted(launched: str, kinds: list[str], passed: bool) -> None:
    module = MODULE.replace("extern_kernels.mm(", launched)
    recorder = CaseRecorder("planted::products")
    kernels = compiled(*kinds)
    generated = Generated(modules=(module,), kernels=kernels.generated.kernels)
    suite = importlib.import_module("conformance.suites.test_inductor_prologues")
    suite.check_products(Inductor(SimpleNamespace(), recorder), CompiledProgram(kernels.program, generated), 1)
    assert [verdict.passed for verdict in recorder.verdicts] == [passed]
