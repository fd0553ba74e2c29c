"""Code that multiplies other operands than its plan asks for, or makes descriptors elsewhere, is seen."""

from __future__ import annotations

import dataclasses

import pytest

from conformance import codegen_checks, targets
from conformance.execution.compile.compilation import Artefact, CompileRequest
from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import mm, scaled_mm
from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.heuristics.configs import Config, FlexConfig, FlexDecodeConfig
from conformance.judging.plan_code import descriptor_features, dots, operand_types, plan_verdicts, sums, tiles
from conformance.kernels import catalogue
from conformance.kernels.kernel import Variant
from conformance.problems import SPLIT_PRECISIONS
from tests.execution.sample_kernels import pool

HOPPER, AMD = targets.find("sm_90"), targets.find("gfx942")
SMALL, LARGE = Config(32, 32, 32, 2, 4), Config(64, 64, 32, 2, 4)
SCALED = Config(64, 64, 64, 2, 4)
IEEE, TF32 = mm(64, 64, 64, "fp32"), mm(64, 64, 64, "fp32", precision="tf32")
SPLIT = {
    f"{name} on {target.id}": ("mm", mm(64, 64, 64, "fp32", precision=name), SMALL, Variant(), target)
    for name in SPLIT_PRECISIONS
    for target in (HOPPER, AMD)
    if target.capability(name).available
}
FORWARD = Attention("attention", 1, 2, 65, 75, 64, "bf16", value_dim=32)
BACKWARD = dataclasses.replace(FORWARD, op="attention_backward", head_dim=16, value_dim=32)
FEW = dataclasses.replace(FORWARD, queries=9, kv_heads=1)
BACK_IEEE = dataclasses.replace(BACKWARD, dtype="fp32")
WIDE, TALL = FlexConfig(32, 64, 1, 4), FlexConfig(64, 32, 1, 4)
PLANS = {
    "bf16": ("mm", mm(64, 64, 64, "bf16"), SMALL, Variant(), HOPPER),
    "fp16 by wgmma": ("mm", mm(64, 64, 64), LARGE, Variant(), HOPPER),
    "fp16 sums": ("mm_fp16_acc", mm(64, 64, 64), LARGE, Variant(), HOPPER),
    "tf32": ("mm", TF32, SMALL, Variant(), HOPPER),
    "ieee": ("mm", IEEE, SMALL, Variant(), HOPPER),
    "e4m3": ("scaled_mm", scaled_mm(64, 64, 64), LARGE, Variant(), HOPPER),
    "e4m3 fast": ("scaled_mm", scaled_mm(64, 64, 64, fast_accum=True), LARGE, Variant(), HOPPER),
    **SPLIT,
    "amd": ("mm", mm(64, 64, 64, "bf16"), SMALL, Variant(), AMD),
    "mxfp8": ("microscaled_mm", MicroscaledGemm("mxfp8", "mxfp8", 64, 64, 64), SCALED, Variant(), HOPPER),
    "mxfp4": ("microscaled_mm", MicroscaledGemm("mxfp8", "mxfp4", 64, 64, 64), SCALED, Variant(), HOPPER),
    "device": ("mm_persistent_tma", mm(64, 64, 64), LARGE, Variant(), HOPPER),
    "host": ("mm_persistent_tma", mm(64, 64, 64), LARGE, Variant("host"), HOPPER),
    "wide": ("attention", FORWARD, WIDE, Variant(), HOPPER),
    "tall": ("attention", FORWARD, TALL, Variant(), HOPPER),
    "decode": ("attention_decode", FEW, FlexDecodeConfig(32, 1, 2), Variant(splits=2), HOPPER),
    "decode 64": ("attention_decode", FEW, FlexDecodeConfig(64, 1, 2), Variant(splits=2), HOPPER),
    "keys": ("attention_backward", BACKWARD, WIDE, Variant(), HOPPER),
    "keys tall": ("attention_backward", BACKWARD, TALL, Variant(), HOPPER),
    "queries": ("attention_backward", BACKWARD, WIDE, Variant(), HOPPER),
    "queries tall": ("attention_backward", BACKWARD, TALL, Variant(), HOPPER),
    "queries ieee": ("attention_backward", BACK_IEEE, FlexConfig(16, 16, 1, 4), Variant(), HOPPER),
    "queries tf32": (
        *("attention_backward", dataclasses.replace(BACK_IEEE, precision="tf32"), FlexConfig(16, 16, 1, 4)),
        *(Variant(), HOPPER),
    ),
}


def launch_of(name):
    """The number of the launch among those of the plan, and what :func:`plan_verdicts` calls it."""
    if name.startswith("queries"):
        return 2, "attention_backward_queries"
    return (1 if name.startswith("keys") else 0), ""


def plan_of(name):
    kernel, problem, config, variant, target = PLANS[name]
    return catalogue.get(kernel).plan(problem, config, target, variant)


@pytest.fixture(scope="module")
def artefacts() -> dict[str, Artefact]:
    factory = "conformance.kernels.catalogue:meta_step"
    plans = {name: plan_of(name) for name in PLANS}
    requests = {name: CompileRequest(factory, (plan, launch_of(name)[0]), plan.target) for name, plan in plans.items()}
    handles = {name: pool().submit(request) for name, request in requests.items()}
    results = {name: handle.result() for name, handle in handles.items()}
    assert all(result.artefact is not None for result in results.values()), results
    return {name: result.artefact for name, result in results.items()}


@pytest.mark.parametrize("name", PLANS)
def test_the_code_of_a_plan_is_what_it_asks(artefacts, name):
    plan = plan_of(name)
    kernel = catalogue.get(plan.kernel)
    assert not list(plan_verdicts(kernel, plan, artefacts[name], launch_of(name)[1]))
    features = descriptor_features(kernel, plan)
    verdicts = codegen_checks.check(artefacts[name], plan.target, features.required, features.forbidden)
    assert all(verdict.passed for verdict in verdicts), [verdict.text for verdict in verdicts]
    assert bool(verdicts) == (name in ("device", "host"))


#: the code, the plan that it stands for, the check that must fail, and its text
FAULTS = [
    ("bf16", "tf32", "codegen/operands", "multiplies operands of bf16; its plan asks for one of f32, kind::tf32, tf32"),
    ("bf16", "tf32", "codegen/products", "multiplies bf16 x bf16, its plan asks for f32 x f32 in tf32"),
    ("tf32", "ieee", "codegen/operands", "multiplies operands of tf32; its plan asks for no matrix unit"),
    ("tf32", "ieee", "codegen/products", "multiplies f32 x f32 in tf32, its plan asks for f32 x f32 in ieee"),
    ("ieee", "tf32", "codegen/products", "multiplies f32 x f32 in ieee, its plan asks for f32 x f32 in tf32"),
    ("tf32", "tf32x3 on sm_90", "codegen/products", "f32 x f32 in tf32, its plan asks for f32 x f32 in tf32x3"),
    ("tf32x3 on sm_90", "tf32", "codegen/products", "f32 x f32 in tf32x3, its plan asks for f32 x f32 in tf32"),
    ("bf16", "tf32x3 on sm_90", "codegen/operands", "multiplies operands of bf16; its plan asks for one of kind::tf32"),
    ("fp16 by wgmma", "bf16", "codegen/operands", "multiplies operands of f16"),
    ("e4m3", "fp16 by wgmma", "codegen/operands", "multiplies operands of e4m3"),
    ("e4m3 fast", "e4m3", "codegen/promotion", "promises promotion after 32 k, its code has one after 1073741824"),
    ("bf16", "e4m3", "codegen/products", "multiplies bf16 x bf16, its plan asks for f8E4M3FN x f8E4M3FN"),
    ("queries tf32", "queries ieee", "codegen/operands", "attention_backward_queries, multiplies operands of tf32"),
    ("queries tf32", "queries ieee", "codegen/products", "attention_backward_queries, multiplies f32 x f32 in tf32"),
    ("fp16 sums", "fp16 by wgmma", "codegen/sums", "mm sums in f16; its contract promises f32"),
    ("fp16 by wgmma", "fp16 sums", "codegen/sums", "mm_fp16_acc sums in f32; its contract promises f16"),
    ("mxfp4", "mxfp8", "codegen/products", "multiplies e4m3 x e2m1, its plan asks for e4m3 x e4m3"),
    ("fp16 by wgmma", "bf16", "codegen/tiles", "mm multiplies tiles of 64x64x32; its plan asks for 32x32x32"),
    ("tall", "wide", "codegen/tiles", "tiles of 64x32x32, 64x32x64; its plan asks for 32x32x64, 32x64x64"),
    ("decode 64", "decode", "codegen/tiles", "tiles of 32x32x64, 32x64x64; its plan asks for 32x32x32, 32x32x64"),
    (
        "keys tall",
        "keys",
        "codegen/tiles",
        "tiles of 32x16x64, 32x32x64, 32x64x16, 32x64x32; its plan asks for 64x16x32",
    ),
    ("queries tall", "queries", "codegen/tiles", "attention_backward_queries, multiplies tiles of 32x16x64, 32x64x16"),
]


@pytest.mark.parametrize(("code", "plan", "check", "text"), FAULTS)
def test_code_of_other_operands_fails(artefacts, code, plan, check, text):
    asked = plan_of(plan)
    verdicts = {
        verdict.check: verdict
        for verdict in plan_verdicts(catalogue.get(asked.kernel), asked, artefacts[code], launch_of(code)[1])
    }
    assert not verdicts[check].passed
    assert text in verdicts[check].text


@pytest.mark.parametrize(("code", "asked"), [("device", "host"), ("host", "device")])
def test_descriptors_made_elsewhere_fail(artefacts, code, asked):
    plan = plan_of(asked)
    features = descriptor_features(catalogue.get(plan.kernel), plan)
    verdicts = codegen_checks.check(artefacts[code], plan.target, features.required, features.forbidden)
    assert {verdict.feature.name for verdict in verdicts if not verdict.passed} == {
        "HOST_DESCRIPTOR",
        "DEVICE_DESCRIPTOR",
    }


SPELLINGS = [
    ("nvidia", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {", {"tf32"}),
    ("nvidia", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {", {"s8"}),
    ("nvidia", "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2 {", {"e4m3", "e5m2"}),
    ("nvidia", "tcgen05.mma.cta_group::1.kind::tf32 [ %r1 ]", {"kind::tf32"}),
    ("nvidia", "ld.global.b32 {", set()),
    ("amd", "v_mfma_f32_32x32x8_bf16_1k a[0:15]", {"bf16"}),
    ("amd", "v_mfma_f32_32x32x2f32 a[0:15]", {"f32"}),
    ("amd", "v_mfma_f32_16x16x8_xf32 a[0:3]", {"xf32"}),
    ("amd", "v_mfma_f32_16x16x32_fp8_bf8 a[0:3]", {"fp8", "bf8"}),
    ("amd", "v_wmma_i32_16x16x16_iu8 v[0:7]", {"iu8"}),
    ("amd", "v_wmma_f32_16x16x16_f16 v[0:7]", {"f16"}),
]


@pytest.mark.parametrize(("vendor", "line", "types"), SPELLINGS)
def test_spellings_of_operand_types(vendor, line, types):
    assert operand_types(vendor, line + "\n") == types


def test_products_of_ttir():
    line = "%9 = tt.dot %7, %8, %6{} : tensor<32x16x{}> * tensor<16x32x{}> -> tensor<32x32xf32>"
    assert dots(line.format("", "f16", "f16")) == {("f16", "f16")}
    assert dots(line.format(", inputPrecision = tf32", "f32", "f32")) == {("f32", "f32", "tf32")}
    assert dots(line.format("", "f32", "f32")) == {("f32", "f32", "ieee")}
    assert sums(line.format("", "f16", "f16")) == {"f32"}
    assert tiles(line.format("", "f16", "f16")) == {(32, 32, 16)}


def test_code_that_does_not_show_it_says_nothing(artefacts):
    plan = plan_of("tf32")
    empty = dataclasses.replace(artefacts["bf16"], stages={})
    assert not list(plan_verdicts(catalogue.get("mm"), plan, empty))
