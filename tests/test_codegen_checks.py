"""Named features against the code of small kernels: each directive is seen to match and to fail."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline

from conformance import codegen_checks as codegen
from conformance.codegen_checks import (
    ASYNC_COPY,
    EVIDENCE,
    FEATURES,
    MFMA,
    MMA,
    POINTER_LOAD,
    POINTER_STORE,
    SCALED_MMA,
    SPILL,
    TENSOR_DESCRIPTOR,
    TMA_LOAD,
    TMA_STORE,
    WARP_SPECIALIZED,
    WGMMA,
    check,
    code,
    disassembled,
    filecheck,
    present,
)
from conformance.execution.compile.compilation import Artefact
from conformance.records import Status
from conformance.targets import Target, compile_targets, find
from tests.execution.sample_kernels import Sample, compiled, submit

SAMPLES = {
    "pointer": Sample("pointer"),
    "fp8": Sample("pointer", dtype=torch.float8_e4m3fn),
    "copy": Sample("copy"),
    "descriptor": Sample("descriptor"),
    "stored": Sample("descriptor", store=True),
    "host": Sample("host"),
    "specialised": Sample("descriptor", specialise=True),
}
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "gfx1201")
ASSEMBLY = ("ptx", "amdgcn")
SM90 = Target("cuda", 90, 32)
Artefacts = dict[tuple[str, str], Artefact | None]


@pytest.fixture(scope="module")
def artefacts() -> Artefacts:
    """Every sample for every target, compiled in parallel; None where the target refuses the dtype."""
    handles = {(t, name): submit(sample, find(t)) for t in TARGETS for name, sample in SAMPLES.items()}
    results = {key: handle.result() for key, handle in handles.items()}
    bad = {key: result.error for key, result in results.items() if result.status is not Status.PASS}
    assert set(bad) == {("sm_80", "fp8")}, bad
    return {key: result.artefact for key, result in results.items()}


def table(artefacts: Artefacts, target: str) -> str:
    """The features of every sample, without those that depend on the release: spills, and copies on gfx950."""
    skipped = {SPILL, ASYNC_COPY} if target == "gfx950" else {SPILL}
    lines = []
    for name in SAMPLES:
        artefact = artefacts[target, name]
        shown = ["refused"]
        if artefact is not None:
            shown = [f.name for f in FEATURES if f not in skipped and present(artefact, find(target), f)]
        lines.append(f"{name:12}{' '.join(shown)}")
    return "\n".join(lines)


def test_features_on_sm_80(artefacts: Artefacts) -> None:
    assert_expected_inline(
        table(artefacts, "sm_80"),
        """\
pointer     POINTER_LOAD POINTER_STORE ASYNC_COPY MMA
fp8         refused
copy        POINTER_LOAD POINTER_STORE
descriptor  POINTER_LOAD POINTER_STORE ASYNC_COPY MMA
stored      POINTER_LOAD POINTER_STORE ASYNC_COPY MMA
host        POINTER_LOAD POINTER_STORE MMA
specialised POINTER_LOAD POINTER_STORE MMA""",
    )


def test_features_on_sm_90(artefacts: Artefacts) -> None:
    assert_expected_inline(
        table(artefacts, "sm_90"),
        """\
pointer     POINTER_LOAD POINTER_STORE ASYNC_COPY WGMMA
fp8         POINTER_LOAD POINTER_STORE ASYNC_COPY WGMMA
copy        POINTER_LOAD POINTER_STORE
descriptor  TMA_LOAD POINTER_STORE TENSOR_DESCRIPTOR WGMMA
stored      TMA_LOAD TMA_STORE TENSOR_DESCRIPTOR WGMMA
host        TMA_LOAD POINTER_STORE TENSOR_DESCRIPTOR WGMMA
specialised TMA_LOAD POINTER_STORE TENSOR_DESCRIPTOR WGMMA WARP_SPECIALIZED""",
    )


def test_features_on_sm_100(artefacts: Artefacts) -> None:
    assert_expected_inline(
        table(artefacts, "sm_100"),
        """\
pointer     POINTER_LOAD POINTER_STORE ASYNC_COPY TCGEN05
fp8         POINTER_LOAD POINTER_STORE ASYNC_COPY TCGEN05
copy        POINTER_LOAD POINTER_STORE
descriptor  TMA_LOAD POINTER_STORE TENSOR_DESCRIPTOR TCGEN05
stored      TMA_LOAD TMA_STORE TENSOR_DESCRIPTOR TCGEN05
host        TMA_LOAD POINTER_STORE TENSOR_DESCRIPTOR TCGEN05
specialised TMA_LOAD POINTER_STORE TENSOR_DESCRIPTOR TCGEN05 WARP_SPECIALIZED""",
    )


@pytest.mark.parametrize(("target", "unit"), [("gfx942", "MFMA"), ("gfx950", "MFMA"), ("gfx1201", "WMMA")])
def test_features_on_amd(artefacts: Artefacts, target: str, unit: str) -> None:
    """No tensor copy unit: descriptors are rewritten to pointers, and warp specialisation is not done."""
    lines = [f"{name:12}POINTER_LOAD POINTER_STORE{'' if name == 'copy' else ' ' + unit}" for name in SAMPLES]
    assert table(artefacts, target) == "\n".join(lines)


def test_every_directive_matches_somewhere_and_fails_elsewhere(artefacts: Artefacts) -> None:
    """Features that no target here can show (AMD's tensor data mover and copies) are in the next test, on text."""
    outcomes: dict[tuple[str, str, str], set[bool]] = {}
    for (target, _), artefact in artefacts.items():
        vendor = find(target).vendor
        for feature, pieces in EVIDENCE[vendor].items():
            for piece in pieces:
                if artefact is not None:
                    result = filecheck(piece.directive, code(piece.stage, artefact.text(piece.stage)))
                    outcomes.setdefault((vendor, feature.name, piece.stage), set()).add(result.passed)
    one_sided = {key for key, seen in outcomes.items() if seen != {True, False}}
    # Every kernel loads and stores; on AMD every one does so through pointers.
    always = {("nvidia", "POINTER_LOAD", "ptx")} & one_sided
    amd = {("amd", name, stage) for name in ("POINTER_LOAD", "POINTER_STORE") for stage in ("ttir", "amdgcn")}
    absent = {(f, n, s) for f, n, s in one_sided if outcomes[f, n, s] == {False}}
    scaled = {("nvidia", "SCALED_MMA", "ptx")}
    assert {key for key in absent if key[0] == "nvidia"} == scaled, "no sample multiplies with scales"
    assert one_sided - always - amd == absent
    features = {TMA_LOAD, TMA_STORE, TENSOR_DESCRIPTOR, ASYNC_COPY, WARP_SPECIALIZED, SCALED_MMA}
    assert {name for _, name, _ in absent} <= {feature.name for feature in features}


SPELLINGS = [
    (
        "nvidia",
        TMA_LOAD,
        "ptx",
        "@%p6 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [x];",
    ),
    ("nvidia", TMA_LOAD, "ptx", "@%p6 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [x];"),
    ("nvidia", TMA_STORE, "ptx", "@%p6 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [x], [y];"),
    ("nvidia", POINTER_LOAD, "ptx", "ld.global.v4.b32 { %r1 }, [ %rd1 + 0 ];"),
    ("nvidia", POINTER_LOAD, "ptx", "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;"),
    ("nvidia", MMA, "ptx", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %r1 }, { %r2 };"),
    ("nvidia", TENSOR_DESCRIPTOR, "ttir", "%a: !tt.tensordesc<tensor<64x64xbf16>>"),
    ("nvidia", TENSOR_DESCRIPTOR, "ttir", "%a: !tt.tensordesc<64x64xbf16>"),
    ("nvidia", WGMMA, "ttgir", "%1 = triton_nvidia_gpu.warp_group_dot %2, %3, %4"),
    ("nvidia", ASYNC_COPY, "ttgir", "%1 = triton_gpu.async_copy_global_to_local %2, %3"),
    (
        "nvidia",
        SCALED_MMA,
        "ptx",
        "@%p9 tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [ %r1 ], %rd1, %rd2, %r2, [ %r3 ];",
    ),
    ("nvidia", SCALED_MMA, "ptx", "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [ %r1 ], %rd1, %rd2;"),
    (
        "nvidia",
        SCALED_MMA,
        "ptx",
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 { %r1 };",
    ),
    ("amd", SCALED_MMA, "amdgcn", "v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[0:7], v[8:15], a[0:15], v16, v17"),
    ("amd", SCALED_MMA, "amdgcn", "v_wmma_scale16_f32_16x16x128_f8f6f4 v[0:7], v[8:23], v[24:39], v[0:7]"),
    ("amd", TMA_LOAD, "amdgcn", "tensor_load_to_lds s[0:3], s[4:11]"),
    ("amd", TMA_STORE, "amdgcn", "tensor_store_from_lds s[0:3], s[4:11]"),
    ("amd", ASYNC_COPY, "amdgcn", "buffer_load_dwordx4 v1, s[8:11], 0 offen lds"),
    ("amd", ASYNC_COPY, "amdgcn", "global_load_async_to_lds_b128 v1, v[2:3], off"),
    ("amd", ASYNC_COPY, "ttgir", "%1 = ttg.async_copy_global_to_local %0, %2"),
    ("amd", ASYNC_COPY, "ttgir", "%1 = amdg.buffer_load_to_local %0[%2]"),
    ("amd", MFMA, "amdgcn", "v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], a[0:15]"),
    ("amd", WARP_SPECIALIZED, "ttgir", "ttg.warp_specialize(%0, %1) attributes {x}"),
]

LOOKALIKES = [
    ("nvidia", SCALED_MMA, "ptx", "tcgen05.mma.cta_group::1.kind::f8f6f4 [ %r1 + 0 ], %rd1, %rd2, %r2, %p1;"),
    ("amd", SCALED_MMA, "amdgcn", "v_mfma_f32_32x32x16_bf16 a[0:15], v[0:3], v[4:7], a[0:15]"),
    ("nvidia", TMA_LOAD, "ptx", "cp.async.bulk.commit_group;"),
    ("nvidia", TMA_STORE, "ptx", "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [x];"),
    ("nvidia", MMA, "ptx", "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 { %r1 };"),
    ("nvidia", ASYNC_COPY, "ptx", "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [x];"),
    ("nvidia", POINTER_LOAD, "ptx", "ld.param.b64 %rd1, [kernel_param_0];"),
    ("nvidia", POINTER_STORE, "ptx", "st.shared.v4.b32 [ %r1 + 0 ], { %r2 };"),
    ("nvidia", POINTER_LOAD, "ttir", "%1 = tt.descriptor_load %0[%2, %3]"),
    ("nvidia", POINTER_STORE, "ttir", "tt.descriptor_store %0[%2, %3], %4"),
    ("nvidia", WARP_SPECIALIZED, "ttgir", "} {tt.warp_specialize, ttg.partition = array<i32: 0>}"),
    ("amd", ASYNC_COPY, "amdgcn", "buffer_load_dwordx4 v[0:3], v1, s[8:11], 0 offen"),
    ("amd", POINTER_LOAD, "amdgcn", "s_load_dwordx4 s[0:3], s[4:5], 0x0"),
    ("amd", POINTER_STORE, "amdgcn", "scratch_store_dword off, v1, s32"),
]


@pytest.mark.parametrize(("vendor", "feature", "stage", "line", "expected"), [(*row, True) for row in SPELLINGS] + [
    (*row, False) for row in LOOKALIKES
])  # fmt: skip
def test_spellings_of_other_releases_and_lookalikes(
    vendor: str, feature: codegen.Feature, stage: str, line: str, expected: bool
) -> None:
    pieces = [piece for piece in EVIDENCE[vendor][feature] if piece.stage == stage]
    assert [filecheck(piece.directive, code(stage, f"\t{line}\n")).passed for piece in pieces] == [expected]


def test_the_tensor_data_mover_where_triton_uses_it() -> None:
    targets = [target for target in compile_targets() if target.id == "gfx1250"]
    if not targets or not targets[0].capability("tensor-descriptor").available:
        pytest.skip("the installed Triton cannot lower descriptors for gfx1250")
    artefact = compiled(SAMPLES["stored"], targets[0])
    verdicts = check(artefact, targets[0], [TMA_LOAD, TMA_STORE, TENSOR_DESCRIPTOR], [POINTER_LOAD, POINTER_STORE])
    assert [verdict.text for verdict in verdicts if not verdict.passed] == []


# Verdicts


def replaced(artefact: Artefact, stage: str, text: str, folder: Path) -> Artefact:
    """``artefact`` with another text for ``stage``."""
    path = folder / f"planted.{stage}"
    path.write_text(text)
    return dataclasses.replace(artefact, stages={**artefact.stages, stage: path})


def test_required_and_forbidden() -> None:
    artefact = compiled(SAMPLES["stored"], SM90)
    good = check(artefact, SM90, requires=[WGMMA, TMA_STORE, TMA_LOAD], forbids=[POINTER_STORE, MMA, SPILL, MFMA])
    assert [(verdict.feature.name, verdict.required, verdict.passed) for verdict in good] == [
        ("TMA_LOAD", True, True),
        ("TMA_STORE", True, True),
        ("POINTER_STORE", False, True),
        ("MMA", False, True),
        ("WGMMA", True, True),
        ("MFMA", False, True),
        ("SPILL", False, True),
    ]
    assert {verdict.stage for verdict in good if verdict.required} == {"ptx"}
    bad = check(artefact, SM90, requires=[POINTER_STORE, MMA, SPILL, MFMA], forbids=[WGMMA, TMA_STORE, TMA_LOAD])
    assert not any(verdict.passed for verdict in bad)


def test_a_failure_shows_the_directive_the_stage_the_nearest_lines_and_the_file() -> None:
    artefact = compiled(SAMPLES["descriptor"], SM90)
    (missing,) = check(artefact, SM90, requires=[TMA_STORE])
    assert (missing.stage, missing.path) == ("ptx", artefact.stages["ptx"])
    for part in ("TMA_STORE", "required", "CHECK: {{^cp", str(missing.path), "nearest:\n", "cp.async.bulk.tensor.2d."):
        assert part in missing.text
    (present_,) = check(artefact, SM90, forbids=[TMA_LOAD])
    line = int(present_.text.partition("matches line ")[2].split()[0])
    assert f"  {line}: " in present_.text
    assert "cp.async.bulk.tensor" in artefact.text("ptx").split("\n")[line - 1]


def test_a_descriptor_store_that_was_lost_on_the_way(tmp_path: Path) -> None:
    artefact = compiled(SAMPLES["stored"], SM90)
    lost = artefact.text("ptx").replace("cp.async.bulk.tensor.2d.global.shared::cta", "st.global.b32")
    planted = replaced(artefact, "ptx", lost, tmp_path)
    (verdict,) = check(planted, SM90, requires=[TMA_STORE])
    assert (verdict.passed, verdict.stage) == (False, "ptx")
    assert not check(planted, SM90, forbids=[POINTER_STORE])[0].passed
    assert not check(planted, SM90, forbids=[TMA_STORE])[0].passed  # TTIR still has it


def test_a_feature_from_elsewhere_brings_its_evidence() -> None:
    artefact = compiled(SAMPLES["descriptor"], SM90)
    own, other = (
        codegen.Feature(name, "is its maker's", {"nvidia": (codegen.Evidence("ptx", f"CHECK: {{{{^{text}}}}}"),)})
        for name, text in (("OWN", "wgmma"), ("OTHER", "tcgen05"))
    )
    verdicts = check(artefact, SM90, requires=[own, other])
    assert [(verdict.feature.name, verdict.passed) for verdict in verdicts] == [("OTHER", False), ("OWN", True)]
    (lacking,) = check(compiled(SAMPLES["pointer"], find("gfx942")), find("gfx942"), requires=[own])
    assert (lacking.passed, "there is no evidence for OWN" in lacking.text) == (False, True)


def test_an_empty_or_missing_stage_proves_nothing(tmp_path: Path) -> None:
    artefact = compiled(SAMPLES["pointer"], SM90)
    empty = replaced(artefact, "ptx", "", tmp_path)
    none = dataclasses.replace(artefact, stages={"ttir": artefact.stages["ttir"]})
    for changed in (empty, none):
        for verdict in check(changed, SM90, requires=[WGMMA], forbids=[TMA_STORE]):
            assert (verdict.passed, "empty or not in this artefact" in verdict.text) == (False, True)


def test_a_load_that_is_no_operand_does_not_make_a_pointer_load(tmp_path: Path) -> None:
    artefact = compiled(SAMPLES["descriptor"], SM90)
    planted = replaced(artefact, "ptx", artefact.text("ptx") + "\n\tld.global.b32 %r1, [%rd1];\n", tmp_path)
    assert check(planted, SM90, forbids=[POINTER_LOAD])[0].passed


def test_spills_come_from_the_binary(tmp_path: Path) -> None:
    sm_80 = find("sm_80")
    block = (64, 128, 64)
    assert check(compiled(Sample("pointer", block=block), sm_80), sm_80, forbids=[SPILL])[0].passed
    starved = compiled(Sample("pointer", block=block, maxnreg=32), sm_80)
    (verdict,) = check(starved, sm_80, forbids=[SPILL])
    assert (verdict.passed, f"{starved.resources.spills} bytes spilled" in verdict.text) == (False, True)
    assert check(starved, sm_80, requires=[SPILL])[0].passed
    unread = dataclasses.replace(starved, resources=dataclasses.replace(starved.resources, source="metadata", spills=0))
    assert not check(unread, sm_80, forbids=[SPILL])[0].passed


def test_misuse() -> None:
    artefact = compiled(SAMPLES["copy"], SM90)
    with pytest.raises(ValueError, match="is for sm_90, it was to be checked for sm_80"):
        check(artefact, find("sm_80"), requires=[MMA])
    with pytest.raises(ValueError, match="required and forbidden at once: MMA"):
        check(artefact, SM90, requires=[MMA], forbids=[MMA])


# Names and comments are no code


def test_the_name_of_a_kernel_matches_nothing(artefacts: Artefacts) -> None:
    artefact = artefacts["sm_90", "copy"]
    assert artefact is not None
    assert artefact.kernel_name == "tma_store_wgmma_tcgen05"
    assert "tma_store_wgmma_tcgen05" in artefact.text("ptx")
    assert "tma_store_wgmma_tcgen05" not in code("ttir", artefact.text("ttir"))
    # In PTX it stays as an operand, and every directive there is about the start of a line.
    assert not any(line.startswith("tma_store") for line in code("ptx", artefact.text("ptx")).split("\n"))
    assert all("{{^" in p.directive for f in EVIDENCE.values() for ps in f.values() for p in ps if p.stage in ASSEMBLY)


@pytest.mark.parametrize(
    ("stage", "line", "seen"),
    [
        ("ptx", "\t// cp.async.bulk.tensor.2d.global.shared::cta", ""),
        ("ptx", "\t.loc 1 20 0 // st.global.py:20:0", ""),
        ("ptx", "$L__tmp1:", ""),
        ("ptx", "\t@!%p1 st.global.b32 [ %rd1 ], %r1; // mma.sync", "st.global.b32 [ %rd1 ], %r1;"),
        ("amdgcn", "v_mfma_kernel: ; @v_mfma_kernel", ""),
        ("amdgcn", "\t.globl v_mfma_kernel ; -- Begin function", ""),
        ("amdgcn", "\tv_mfma_f32 a[0:3] ; comment", "v_mfma_f32 a[0:3]"),
        ("ttir", '#loc3 = loc("/tmp/tt.descriptor_store.py":1:2)', ""),
        ("ttir", '  tt.func @tt.store(%x: i32 loc("tt.load"(#loc))) {', "tt.func @(%x: i32) {"),
        ("ttir", '%0 = tt.call @"tt.load__i32"(%x) loc(callsite(#loc1 at #loc2))', "%0 = tt.call @(%x)"),
        ("ttir", "%1 = tt.load %0 : !tt.ptr<f32> loc(#loc5)", "%1 = tt.load %0 : !tt.ptr<f32>"),
        ("llir", "  anything ; at all", "  anything ; at all"),
    ],
)
def test_code_only(stage: str, line: str, seen: str) -> None:
    assert code(stage, f"\n{line}\n").split("\n") == ["", seen, ""]


# FileCheck

TEXT = "alpha one\nbeta two\ngamma three\nbeta four\nomega"


@pytest.mark.parametrize(
    ("directives", "passes"),
    [
        ("CHECK: beta", True),
        ("CHECK: nothing", False),
        ("CHECK: alpha\nCHECK: gamma", True),
        ("CHECK: gamma\nCHECK: alpha", False),
        ("CHECK: {{^beta}}", True),
        ("CHECK: {{^two}}", False),
        ("CHECK: {{alpha$}}", False),
        ("CHECK: {{beta.*three}}", False),
        # CHECK-NOT: alone, before, between and after, at the first and at the last character, several at once
        ("CHECK-NOT: nothing", True),
        ("CHECK-NOT: alpha", False),
        ("CHECK-NOT: omega", False),
        ("CHECK-NOT: nothing\nCHECK-NOT: omega", False),
        ("CHECK-NOT: alpha\nCHECK-NOT: nothing", False),
        ("CHECK-NOT: beta\nCHECK: gamma", False),
        ("CHECK-NOT: omega\nCHECK: gamma", True),
        ("CHECK: alpha\nCHECK-NOT: beta\nCHECK: gamma", False),
        ("CHECK: alpha\nCHECK-NOT: four\nCHECK: gamma", True),
        ("CHECK: gamma\nCHECK-NOT: four", False),
        ("CHECK: gamma\nCHECK-NOT: alpha", True),
        ("CHECK-DAG: gamma\nCHECK-DAG: alpha", True),
        ("CHECK-DAG: gamma\nCHECK-DAG: nothing", False),
        ("CHECK-DAG: beta\nCHECK-DAG: beta", True),
        ("CHECK-DAG: beta\nCHECK-DAG: beta\nCHECK-DAG: beta", False),
        ("CHECK-DAG: gamma\nCHECK-NOT: four", False),
        ("CHECK-NOT: alpha\nCHECK-DAG: gamma", False),
        ("CHECK-COUNT-2: beta", True),
        ("CHECK-COUNT-3: beta", False),
        ("CHECK-COUNT-2: beta\nCHECK-NOT: beta", True),
        ("CHECK-COUNT-1: beta\nCHECK-NOT: beta", False),
        ("CHECK: alpha\nCHECK-SAME: one", True),
        ("CHECK: alpha\nCHECK-SAME: two", False),
    ],
)
def test_filecheck(directives: str, passes: bool, capfd: pytest.CaptureFixture[str]) -> None:
    result = filecheck(directives, TEXT)
    assert result.passed == passes
    assert bool(result.message) != passes
    assert "\x1b" not in result.message
    assert capfd.readouterr() == ("", "")


def test_filecheck_says_where() -> None:
    assert [filecheck(f"CHECK: {word}", TEXT).line for word in ("alpha", "beta", "gamma", "omega")] == [1, 2, 3, 5]
    assert not filecheck("CHECK: anything", "").passed
    assert filecheck("CHECK-NOT: anything", "").passed


@pytest.mark.parametrize(
    "directives",
    [
        "",
        "alpha",
        "CHCK: alpha",
        "CHECK:",
        "CHECK-LABEL: alpha",
        "CHECK-COUNT-0: alpha",
        "CHECK: alpha\nCHEK: beta",
        "CHECK: {{(}}",
        "CHECK: {{alpha",
        "CHECK: [[UNSET]]",
    ],
)
def test_filecheck_refuses_what_it_would_skip_or_misread(directives: str) -> None:
    with pytest.raises(ValueError, match="FileCheck directive"):
        filecheck(directives, TEXT)


# SASS


def test_disassembly() -> None:
    text = disassembled(compiled(SAMPLES["pointer"], SM90))
    assert "HGMMA" in text
    assert "HMMA" not in text.replace("HGMMA", "")
    with pytest.raises(ValueError, match="has no cubin"):
        disassembled(compiled(SAMPLES["pointer"], find("gfx942")))


def test_disassembly_of_a_broken_binary(tmp_path: Path) -> None:
    (tmp_path / "broken.cubin").write_bytes(b"nothing")
    artefact = dataclasses.replace(compiled(SAMPLES["copy"], SM90), stages={"cubin": tmp_path / "broken.cubin"})
    with pytest.raises(RuntimeError, match="failed"):
        disassembled(artefact)
