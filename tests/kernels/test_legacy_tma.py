"""The kernels with the descriptors of Triton 3.2 and 3.3: refusals and launches on any Triton, code on theirs."""

import dataclasses
import importlib

import pytest
import torch
import triton.language as tl

from conformance import targets
from conformance.codegen_checks import TENSORMAP, TMA_STORE, check, code, filecheck
from conformance.execution.compile.compilation import CompileRequest
from conformance.families.gemm.problem import Bias, mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels import catalogue
from conformance.kernels.catalogue import meta_launch, meta_tensor
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.kernels.legacy_tma import KERNELS, HostTensormap
from conformance.problems import Layout
from conformance.records import ReasonCode, Status
from tests.execution.sample_kernels import pool

HOPPER, AMPERE = targets.find("sm_90"), targets.find("sm_80")
SMALL = Config(64, 64, 64, 2, 4)
NAMES = [kernel.name for kernel in KERNELS]
CUDA = importlib.import_module("triton.language.extra.cuda")
API = {
    "_experimental_descriptor_load": tl,
    "_experimental_make_tensor_descriptor": tl,
    "experimental_device_tensormap_create2d": CUDA,
}


@pytest.fixture(params=[True, False], ids=["offered", "missing"])
def offered(request, monkeypatch):
    """Returns True if this Triton seems to have the API."""
    for name, owner in API.items():
        if request.param:
            monkeypatch.setattr(owner, name, None, raising=False)
        else:
            monkeypatch.delattr(owner, name, raising=False)
    targets._capability.cache_clear()
    yield request.param
    targets._capability.cache_clear()


def problem_of(name, m=96, n=128, k=128, **fields):
    return scaled_mm(m, n, k, **fields) if name.startswith("scaled") else mm(m, n, k, **fields)


def refusal(name, problem, target=HOPPER, **variant):
    kernel = catalogue.get(name)
    return kernel.refusal(kernel.draft(problem, SMALL, target, Variant(**variant)))


@pytest.mark.parametrize("name", NAMES)
def test_a_triton_without_the_api_is_a_typed_reason(offered, name):
    reason = refusal(name, problem_of(name))
    if offered:
        assert reason is None
        assert refusal(name, problem_of(name), AMPERE) is not None
    else:
        assert (reason.code, reason.subject) == (
            ReasonCode.CAPABILITY,
            "experimental-descriptor" if "descriptor" in name else "device-tensormap",
        )
        assert "the installed Triton has no triton.language" in reason.detail


@pytest.mark.parametrize(
    ("name", "fields", "variant", "code", "subject"),
    [
        ("mm_legacy_tma", {"layout_a": Layout(pad=8)}, {}, ReasonCode.LAYOUT, "a"),
        ("mm_legacy_tma", {"layout_b": Layout("col", pad=8)}, {"descriptors": "host"}, ReasonCode.LAYOUT, "b"),
        ("mm_legacy_tma", {"layout_out": Layout(pad=8)}, {"tma_store": True}, ReasonCode.LAYOUT, "out"),
        ("mm_legacy_tma", {"layout_a": Layout(pad=1)}, {}, ReasonCode.ALIGNMENT_PITCH, "a"),
        ("mm_legacy_tma", {"k": 100}, {}, ReasonCode.ALIGNMENT_PITCH, "a"),
        ("mm_legacy_tma", {}, {"flatten": True}, ReasonCode.CONFIG, "variant"),
        ("mm_legacy_tma_persistent", {}, {"epilogue_subtile": 2}, ReasonCode.CONFIG, "variant"),
        ("mm_legacy_descriptor_persistent", {}, {"descriptors": "host"}, ReasonCode.CONFIG, "variant"),
        ("scaled_mm_legacy_tma_persistent", {"bias": Bias("n", "bf16")}, {}, ReasonCode.BIAS, "bias"),
        ("mm_legacy_tma", {"layout_out": Layout(pad=8)}, {}, None, None),
        ("mm_legacy_tma", {"m": 1, "layout_a": Layout(pad=8)}, {}, None, None),
        ("mm_legacy_descriptor_persistent", {"layout_a": Layout(pad=8)}, {"tma_store": True}, None, None),
    ],
)
@pytest.mark.parametrize("offered", [True], indirect=True)
def test_typed_reason(offered, name, fields, variant, code, subject):
    reason = refusal(name, problem_of(name, **fields), **variant)
    assert (reason and reason.code, reason and reason.subject) == (code, subject), str(reason)


@pytest.mark.parametrize("offered", [True], indirect=True)
def test_launches(offered):
    """Three tensor maps of 128 bytes a program, or those of the host that are needed; a grid of tiles or of SMs."""
    for name, programs in (("mm_legacy_tma", 4), ("mm_legacy_tma_persistent", 3)):
        kernel = catalogue.get(name)
        plan = kernel.plan(mm(96, 128, 128), SMALL, HOPPER, Variant(sms=3))
        launch = meta_launch(plan, HOPPER)
        assert launch.grid == (programs,)
        space = launch.arguments["workspace_ptr"]
        assert (space.dtype, space.numel()) == (torch.uint8, programs * 3 * 128)
        host = meta_launch(kernel.plan(mm(96, 128, 128), SMALL, HOPPER, Variant("host", sms=3)), HOPPER)
        types = [type(host.arguments[f"{operand}_desc"]) for operand in "abc"]
        assert types == [HostTensormap, HostTensormap, type(None)]
        with pytest.raises(RuntimeError, match="made without a device"):
            host.arguments["a_desc"].tma_desc_cpu_ptr()


@pytest.mark.parametrize("offered", [True], indirect=True)
def test_a_missing_scale_is_a_typed_reason(offered):
    kernel = catalogue.get("scaled_mm_legacy_tma_persistent")
    plan = kernel.plan(problem_of(kernel.name), SMALL, HOPPER)
    tensors = {operand.name: meta_tensor(operand) for operand in (*plan.problem.operands, plan.problem.output)}
    assert kernel.launch(plan, tensors).grid == plan.grid
    with pytest.raises(NotApplicable) as raised:
        kernel.launch(plan, tensors | {"scale_a": None})
    assert (raised.value.reason.code, raised.value.reason.subject) == (ReasonCode.SCALE, "scale_a")


@pytest.mark.parametrize(
    ("stage", "line", "expected"),
    [
        ("ptx", "@%p66 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [ %rd4 + 0 ], %rd5;", True),
        ("ptx", "fence.proxy.tensormap::generic.acquire.gpu [%rd54 + 0], 0x80;", True),
        (
            "ptx",
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu [ %rd54 ], [ %rd4 ];",
            False,
        ),
        ("ttgir", "tt.experimental_tensormap_create %2, %arg1, [%c64, %c128], [%arg6, %arg4]", True),
        ("ttgir", "tt.experimental_tensormap_fenceproxy_acquire %2 : !tt.ptr<i8>", False),
    ],
)
def test_spellings(stage, line, expected):
    pieces = [piece for piece in TENSORMAP.evidence["nvidia"] if piece.stage == stage]
    assert any(filecheck(piece.directive, code(stage, f"\t{line}\n")).passed for piece in pieces) == expected


@pytest.mark.parametrize("name", NAMES)
def test_code(name, tmp_path):
    """The features are in the code; without the lines that show one, it is missed."""
    kernel = catalogue.get(name)
    if not kernel.offered:
        pytest.skip(f"{name} needs triton.language.{kernel.api}, which this Triton has not")
    descriptors = ("device", "host") if "descriptor" not in name else ("device",)
    for where in descriptors:
        plan = kernel.plan(problem_of(name), SMALL, HOPPER, Variant(where, tma_store=True, sms=3))
        result = pool().submit(CompileRequest("conformance.kernels.catalogue:meta_launch", plan, HOPPER)).result()
        assert result.status is Status.PASS, result.error
        features = kernel.features(plan)
        assert (TENSORMAP in features.required) == (where == "device")
        verdicts = check(result.artefact, HOPPER, features.required, features.forbidden)
        assert [verdict.text for verdict in verdicts if not verdict.passed] == []
        text = result.artefact.stages["ptx"].read_text()
        for feature, word in ((TENSORMAP, "fence.proxy.tensormap"), (TMA_STORE, "cp.async.bulk.tensor")):
            if feature in features.required:
                path = tmp_path / f"{where}-{feature}.ptx"
                path.write_text("".join(line for line in text.splitlines(True) if word not in line))
                stages = {**result.artefact.stages, "ptx": path}
                lost = dataclasses.replace(result.artefact, stages=stages)
                assert [verdict.passed for verdict in check(lost, HOPPER, [feature])] == [False]
