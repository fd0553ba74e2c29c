"""e4m3fnuz and e5m2fnuz: who takes them and where, what is refused, and what the compiled code must have."""

import pytest

from conformance import codegen_checks as codegen
from conformance.cases.scenarios import Scenario, where
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import conv2d
from conformance.families.gemm.problem import mm, scaled_mm
from conformance.families.grouped.problem import GroupedGemm
from conformance.filecheck import filecheck
from conformance.heuristics.configs import Config, FlexConfig
from conformance.judging.plan_code import plan_verdicts
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable
from conformance.kernels.refusal_rules import objection
from conformance.problems import DTYPES, FNUZ, FP8, RESULTS, Layout
from conformance.records import ReasonCode
from conformance.targets import known_targets

TARGETS = {target.id: target for target in known_targets()}
CDNA3 = TARGETS["gfx942"]
SMALL = Config(32, 32, 32, 2, 4)
TAKERS = ["attention_fp8", "fp8_bmm", "scaled_grouped_mm", "scaled_mm", "scaled_mm_blockwise"]


def plan_of(name, dtype="e4m3fnuz", target=CDNA3, config=None):
    kernel = catalogue.get(name)
    config = config or kernel.configs[0]
    return kernel.plan(kernel.example(dtype, config), config, target, kernel.example_variant())


def refusal(name, problem, target=CDNA3, config=SMALL):
    kernel = catalogue.get(name)
    draft = kernel.draft(problem, config, target)
    reason = kernel.refusal(draft)
    if reason is not None:
        assert objection(kernel, draft, reason) is None
    return reason


def test_who_takes_them():
    assert sorted(name for name, kernel in catalogue.own_kernels().items() if kernel.rare_dtypes) == TAKERS
    assert {catalogue.get(name).rare_dtypes for name in TAKERS} == {FNUZ}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("dtype", FNUZ)
def test_only_cdna3_takes_them(name, dtype):
    assert plan_of(name, dtype).grid
    for target in TARGETS.values():
        if target.id != "gfx942":
            with pytest.raises(NotApplicable) as refused:
                plan_of(name, dtype, target)
            assert (refused.value.reason.code, refused.value.reason.subject) == (ReasonCode.DTYPE, dtype)
            assert target.id in refused.value.reason.detail


@pytest.mark.parametrize(
    ("name", "problem", "subject"),
    [
        ("scaled_mm", scaled_mm(64, 64, 64, "e4m3fnuz", b_dtype="e4m3"), "b"),
        ("scaled_mm", scaled_mm(64, 64, 64, "e5m2", b_dtype="e5m2fnuz"), "b"),
        ("mm", mm(64, 64, 64, "e4m3fnuz"), "a"),
        ("fused_mm", mm(64, 64, 64, "e4m3fnuz"), None),
        ("mm_persistent_tma", mm(64, 64, 64, "e5m2fnuz"), None),
        ("attention_fp8_descriptors", Attention("attention", 1, 2, 64, 64, 64, "e4m3fnuz"), "q"),
    ],
)
def test_what_is_refused(name, problem, subject):
    config = FlexConfig(32, 32, 1, 4) if isinstance(problem, Attention) else SMALL
    reason = refusal(name, problem, config=config)
    assert reason is not None
    if subject is not None:
        assert (reason.code, reason.subject) == (ReasonCode.DTYPE, subject)
        assert "takes" in reason.detail or "must have one dtype" in reason.detail


def test_both_in_one_product():
    for first, second in (FNUZ, FNUZ[::-1]):
        assert refusal("scaled_mm", scaled_mm(64, 64, 64, first, b_dtype=second)) is None


def test_nothing_is_rounded_to_them_as_a_result():
    assert [name for name in DTYPES if name not in RESULTS] == list(FNUZ)
    sizes = {"N": 32, "K": 32, "dtype": "e4m3", "scaling": "row", "layout_b": Layout("col")}
    for build in (
        lambda: scaled_mm(64, 64, 64, "e4m3fnuz", out_dtype="e4m3fnuz"),
        lambda: mm(64, 64, 64, out_dtype="e5m2fnuz"),
        lambda: GroupedGemm("2d-3d", (8,), None, out_dtype="e4m3fnuz", **sizes),
        lambda: Attention("attention", 1, 2, 64, 64, 64, "e4m3fnuz", out_dtype="e4m3fnuz"),
        lambda: conv2d(1, 16, 4, 16, 1, "e4m3fnuz"),
    ):
        with pytest.raises(ValueError, match="fnuz' is unknown: use one of"):
            build()
    assert scaled_mm(64, 64, 64, "e4m3fnuz").output_dtype == "bf16"


def test_ids_tell_them_apart():
    problems = [scaled_mm(64, 64, 64, first, b_dtype=second) for first in (*FP8, *FNUZ) for second in (*FP8, *FNUZ)]
    assert len({problem.id for problem in problems}) == len(problems)
    assert problems[-1].id == "scaled_mm-64x64x64-e5m2fnuz-row.col.row-row"


@pytest.mark.parametrize("name", TAKERS)
def test_the_unit_multiplies_them_as_they_are(name):
    for dtype in FNUZ:
        assert {codegen.MFMA, codegen.MFMA_FP8} <= catalogue.get(name).features(plan_of(name, dtype)).required
    for target in (CDNA3, TARGETS["sm_90"], TARGETS["gfx950"]):
        of_others = catalogue.get(name).features(plan_of(name, "e5m2", target))
        assert codegen.MFMA_FP8 not in of_others.required | of_others.forbidden
    accumulator = catalogue.get(name).contract(plan_of(name), "device").accumulator
    assert accumulator.assumed


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[0:1], v[2:3], a[0:15]", True),
        ("v_mfma_f32_16x16x32_bf8_fp8 a[0:3], v[0:1], v[2:3], a[0:3]", True),
        ("v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", False),
        ("v_cvt_f32_fp8_e32 v1, v2", False),
    ],
)
def test_what_the_feature_is_known_by(line, there):
    machine, ttir = codegen.MFMA_FP8.evidence["amd"]
    assert filecheck(machine.directive, codegen.code(machine.stage, line)).passed == there
    dot = "%7 = tt.dot %4, %5, %6 : tensor<32x64x{0}> * tensor<64x32x{0}> -> tensor<32x32xf32>"
    seen = {kind: filecheck(ttir.directive, dot.format(kind)).passed for kind in ("f8E4M3FNUZ", "f8E5M2FNUZ", "f8E5M2")}
    assert seen == {"f8E4M3FNUZ": True, "f8E5M2FNUZ": True, "f8E5M2": False}


class Code:
    """Compiled code of one stage."""

    target_id, kernel_name, resources = "gfx942", "gemm_pointer", None

    def __init__(self, path, text, ttgir=""):
        path.write_text(text)
        self.stages = {"amdgcn": path}
        if ttgir:
            self.stages["ttgir"] = path.with_suffix(".ttgir")
            self.stages["ttgir"].write_text(ttgir)


@pytest.mark.parametrize(
    ("dtype", "instruction", "right"),
    [
        ("e4m3fnuz", "fp8_fp8", True),
        ("e5m2fnuz", "bf8_bf8", True),
        ("e4m3fnuz", "f16", False),
        ("e4m3fnuz", "bf8_bf8", False),
        ("e5m2", "f16", True),
        ("e5m2", "bf8_bf8", False),
        ("e4m3", "fp8_fp8", False),
    ],
)
def test_the_instructions_formats_are_those_of_the_operands(tmp_path, dtype, instruction, right):
    """On gfx942 fp8 and bf8 are e4m3fnuz and e5m2fnuz: for e4m3 and e5m2 they would be wrong, and there the compiler
    multiplies fp16."""
    text = f"\tv_mfma_f32_32x32x16_{instruction} a[0:15], v[0:1], v[2:3], a[0:15]\n"
    plan = plan_of("scaled_mm", dtype, config=SMALL)
    verdicts = list(plan_verdicts(catalogue.get("scaled_mm"), plan, Code(tmp_path / "kernel.amdgcn", text)))
    assert [verdict.check for verdict in verdicts] == ([] if right else ["codegen/operands"])


@pytest.mark.parametrize(("pair", "transposed"), [("fp8_bf8", "false"), ("bf8_fp8", "true")])
def test_formats_are_exchanged_as_the_operands_are(tmp_path, pair, transposed):
    """B comes first if the tile is made transposed."""
    kernel = catalogue.get("scaled_mm")
    plan = kernel.plan(scaled_mm(64, 64, 64, "e4m3fnuz", b_dtype="e5m2fnuz"), SMALL, CDNA3)
    text = f"\tv_mfma_f32_32x32x16_{pair} a[0:15], v[0:1], v[2:3], a[0:15]\n"
    for is_transposed in ("true", "false"):
        layout = f"#mma = #ttg.amd_mfma<{{version = 3, isTransposed = {is_transposed}}}>\n"
        verdicts = list(plan_verdicts(kernel, plan, Code(tmp_path / f"{is_transposed}.amdgcn", text, layout)))
        expected = [] if is_transposed == transposed else ["codegen/operand-order"]
        assert [verdict.check for verdict in verdicts] == expected


def test_only_a_scenario_that_names_them_has_cases():
    def dtypes(**fields):
        table = Scenario(where(name="scaled_mm"), {}, **fields).table
        from conformance.cases.case_table import Selection

        rows = table(Selection((CDNA3, TARGETS["gfx950"]), "default"), ["kernel", "target", "dtype", "config"]).rows
        return {(row[1].id, row[2]) for row in rows.values()}

    assert not {dtype for _, dtype in dtypes()} & set(FNUZ)
    assert dtypes(dtypes=FNUZ) == {("gfx942", dtype) for dtype in FNUZ}
