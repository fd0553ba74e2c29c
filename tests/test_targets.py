"""Targets: what there is, what each can do, and the errors when there is none."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import targets
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels import catalogue
from conformance.kernels.kernel import Variant
from conformance.kernels.refusal_rules import objection
from conformance.machine import entry_point_loading
from conformance.records import ReasonCode
from conformance.targets import (
    CAPABILITIES,
    KNOWN,
    Target,
    compile_targets,
    devices,
    find,
    unavailable_targets,
)

CACHES = (
    targets._parameters,
    targets.known_targets,
    targets._torch_devices,
    targets._extension_targets,
    targets.why_not,
    targets._help_text,
    targets._llvm_lacks,
    targets._options,
    targets._capability,
)
SM90 = Target("cuda", 90, 32)


@pytest.fixture
def afresh() -> Iterator[None]:
    """Nothing remembered from before, nor kept for later, where a test changes what is there; Triton looked for its
    backends before that."""
    importlib.import_module("triton.backends")
    for cache in CACHES:
        cache.cache_clear()
    yield
    for cache in CACHES:
        cache.cache_clear()


def test_importing_is_cheap() -> None:
    script = "import conformance.targets, sys; print([m for m in ('torch', 'triton') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_known_architecture_is_a_target_or_has_a_reason() -> None:
    can, cannot = {target.id for target in compile_targets()}, set(unavailable_targets())
    assert not can & cannot
    assert {targets._warp_size(a.backend, a.arch) for a in KNOWN} == {32, 64}
    assert {"sm_80", "sm_90"} <= can
    assert len(can | cannot) >= len(KNOWN)


@pytest.mark.parametrize(
    ("spec", "expected", "vendor", "warp"),
    [
        ("sm_90", "sm_90", "nvidia", 32),
        ("cuda:90", "sm_90", "nvidia", 32),
        ("hip:gfx942", "gfx942", "amd", 64),
        ("gfx1201", "gfx1201", "amd", 32),
    ],
)
def test_find(spec: str, expected: str, vendor: str, warp: int) -> None:
    target = find(spec)
    assert (target.id, target.vendor, target.warp_size, target.is_device) == (expected, vendor, warp, False)
    assert pickle.loads(pickle.dumps(target)) == target


def test_a_number_of_multiprocessors_that_is_not_known_can_be_assumed() -> None:
    assert (find("gfx1250").multiprocessors, find("hip:gfx1250").multiprocessors) == (None, None)
    assert find("gfx1250:256") == dataclasses.replace(find("gfx1250"), multiprocessors=256)


WHAT_EXISTS = r"sm_90|this machine has \d+ device"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("sm_90:64", "sm_90 has 132 multiprocessors"),
        ("gfx1250:0", "number of"),
        ("gfx1250:many", "number of"),
        *((spec, WHAT_EXISTS) for spec in ("sm_77", "cuda:77", "gfx1", "", "device:99", "device:x")),
    ],
)
def test_find_says_what_is_wrong_or_what_exists(spec: str, text: str) -> None:
    with pytest.raises(LookupError, match=text):
        find(spec)


@pytest.mark.parametrize(("backend", "arch"), [("cuda", "sm_90"), ("hip", 942)])
def test_an_arch_of_the_wrong_type(backend: str, arch: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        Target(backend, arch, 32)


HARDWARE = ("tma", "wgmma", "tcgen05", "mfma", "wmma", "tdm")


@pytest.mark.parametrize(
    ("target", "has"),
    [
        (Target("cuda", 80, 32), set()),
        (Target("cuda", 89, 32), set()),
        (SM90, {"tma", "wgmma"}),
        (Target("cuda", 100, 32), {"tma", "tcgen05"}),
        (Target("cuda", 103, 32), {"tma", "tcgen05"}),
        (Target("cuda", 120, 32), {"tma"}),
        (Target("hip", "gfx942", 64), {"mfma"}),
        (Target("hip", "gfx950", 64), {"mfma"}),
        (Target("hip", "gfx1201", 32), {"wmma"}),
        (Target("hip", "gfx1250", 32), {"wmma", "tdm"}),
    ],
    ids=lambda value: value.id if isinstance(value, Target) else "",
)
def test_hardware(target: Target, has: set[str]) -> None:
    assert {name for name in HARDWARE if target.capability(name).available} == has


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("e4m3", [("cuda", 89), ("cuda", 90), ("hip", "gfx942")], [("cuda", 80)]),
        ("e5m2", [("cuda", 80), ("cuda", 90)], []),
        ("e4m3fnuz", [("hip", "gfx942")], [("cuda", 90), ("cuda", 100), ("hip", "gfx950"), ("hip", "gfx1201")]),
        ("e5m2fnuz", [("hip", "gfx942")], [("cuda", 90), ("cuda", 100), ("hip", "gfx950"), ("hip", "gfx1201")]),
        ("tf32", [("cuda", 80), ("hip", "gfx942")], [("hip", "gfx950"), ("hip", "gfx1201")]),
        ("ieee", [("cuda", 80), ("hip", "gfx1201")], []),
        ("warp-specialization", [("cuda", 90), ("cuda", 100)], [("cuda", 80), ("hip", "gfx950")]),
    ],
)
def test_what_triton_offers(name: str, has: list[tuple[str, Any]], has_not: list[tuple[str, Any]]) -> None:
    def offered(backend: str, arch: Any) -> bool:
        return Target(backend, arch, targets._warp_size(backend, arch)).capability(name).available

    assert [target for target in has if not offered(*target)] == []
    assert [target for target in has_not if offered(*target)] == []


def test_every_capability_says_why() -> None:
    for target in (SM90, Target("hip", "gfx942", 64)):
        for name in CAPABILITIES:
            assert target.capability(name).why.startswith(f"{target.id}: ")
    with pytest.raises(ValueError, match="capability 'telepathy' is unknown: use one of"):
        SM90.capability("telepathy")


@pytest.mark.usefixtures("afresh")
def test_a_triton_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton.language as tl

    assert SM90.capability("tensor-descriptor").available
    targets._capability.cache_clear()
    monkeypatch.delattr(tl, "make_tensor_descriptor")
    assert not SM90.capability("tensor-descriptor").available
    assert "no triton.language.make_tensor_descriptor" in SM90.capability("tensor-descriptor").why


@pytest.mark.usefixtures("afresh")
def test_loops_that_the_interpreter_replaced_still_give_warps_different_work(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton.language as tl

    for module in (tl, tl.core):
        monkeypatch.setattr(module, "range", lambda *_, **__: range(0))
    assert SM90.capability("warp-specialization").available


@pytest.mark.usefixtures("afresh")
def test_a_triton_without_constants_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton.language as tl
    from triton.runtime import jit

    assert SM90.capability("constant-argument").available
    assert SM90.capability("constant-item").available
    targets._capability.cache_clear()
    monkeypatch.setattr(jit, "compute_spec_key", None, raising=False)
    monkeypatch.delattr(tl.constexpr, "__getitem__")
    assert "no parameter but one annotated so takes" in SM90.capability("constant-argument").why
    assert "has no items" in SM90.capability("constant-item").why
    sizes, config = mm(64, 64, 64), Config(64, 64, 32, 2, 4)
    kernel = catalogue.get("mm")
    assert kernel.refusal(kernel.draft(sizes, config, SM90)) is None
    reason = kernel.refusal(kernel.draft(sizes, config, SM90, Variant(static=True)))
    assert reason is not None
    assert (reason.code, reason.subject) == (ReasonCode.CAPABILITY, "constant-argument")
    fused = catalogue.get("fused_mm")
    reason = fused.example_refusal("bf16", config, SM90)
    assert reason is not None
    assert (reason.code, reason.subject) == (ReasonCode.CAPABILITY, "constant-item")


@pytest.mark.usefixtures("afresh")
def test_a_triton_whose_scaled_products_have_two_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.language import semantic

    def matrices(self: Any, M: int, N: int, K: int, lhs_scale: Any, rhs_scale: Any) -> None:
        lhs_scale_shape = lhs_scale.type.shape
        assert lhs_scale_shape == [M, K // 32]

    def batches(self: Any, M: int, N: int, K: int, lhs_scale: Any, rhs_scale: Any) -> None:
        lhs_scale_shape = lhs_scale.type.shape
        assert lhs_scale_shape[-2:] == [M, K // 32]

    kernel = catalogue.get("microscaled_mm_batch_tiles")
    draft = kernel.draft(kernel.example("uint8", kernel.configs[0]), kernel.configs[0], SM90)
    monkeypatch.setattr(semantic.TritonSemantic, "verify_scaled_shape", batches, raising=False)
    assert kernel.refusal(draft) is None
    targets._capability.cache_clear()
    monkeypatch.setattr(semantic.TritonSemantic, "verify_scaled_shape", matrices)
    reason = kernel.refusal(draft)
    assert reason is not None
    assert (reason.code, reason.subject) == (ReasonCode.CAPABILITY, "scaled-batch")
    assert "no scales of three dimensions" in reason.detail
    assert objection(kernel, draft, reason) is None
    targets._capability.cache_clear()
    monkeypatch.delattr(semantic.TritonSemantic, "verify_scaled_shape")  # Triton up to 3.5 compares nothing
    assert kernel.refusal(draft) is None


def test_limits_of_an_architecture_and_of_a_device() -> None:
    assert SM90.limits.shared_memory == 232448
    assert find("sm_90").limits.multiprocessors == 132
    assert SM90.limits.multiprocessors is None
    assert Target("cuda", 90, 32, 0, "a smaller one", 1000, 78).limits.multiprocessors == 78
    assert Target("cuda", 90, 32, 0, "a smaller one", 1000, 78).limits.shared_memory == 1000
    assert Target("cuda", 75, 32).limits.shared_memory == targets.LEAST_SHARED_MEMORY


# What is missing is said


@pytest.mark.usefixtures("afresh")
def test_no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None if name == "triton" else original(name))
    assert [target for target in compile_targets() if target.backend in ("cuda", "hip")] == []
    reasons = unavailable_targets()
    assert set(reasons) == {target.id for target in targets.known_targets()}
    assert all(reason.code is ReasonCode.CAPABILITY for reason in reasons.values())
    with pytest.raises(LookupError, match="Triton is not installed"):
        find("sm_90")


@pytest.mark.usefixtures("afresh")
def test_a_ptxas_that_does_not_know_the_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_help_text", lambda path: "sm_80 sm_90")
    assert set(unavailable_targets()) >= {"sm_89", "sm_100", "sm_103", "sm_120"}
    assert "does not list sm_120" in unavailable_targets()["sm_120"].detail


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize(
    ("first", "served"), [(90, {"sm_90", "sm_100", "sm_103", "sm_120"}), (100, {"sm_100", "sm_103"})]
)
def test_the_assembler_is_the_one_that_triton_calls(
    monkeypatch: pytest.MonkeyPatch, first: int, served: set[str]
) -> None:
    compiler = importlib.import_module("triton.backends.nvidia.compiler")
    tools = {False: SimpleNamespace(path="/old"), True: SimpleNamespace(path="/new")}
    monkeypatch.setattr(compiler, "get_ptxas", lambda arch: tools[arch >= first])
    monkeypatch.setattr(targets, "_help_text", lambda path: "sm_80 sm_89" if str(path) == "/new" else "")
    refused = {name: reason.detail for name, reason in unavailable_targets().items() if name.startswith("sm_")}
    assert served <= {name for name, detail in refused.items() if detail.startswith("/new")}
    assert refused["sm_80"].startswith("/old")


@pytest.mark.parametrize("found", ["/the/ptxas", None])
def test_the_assembler_of_triton_3_2_and_3_3(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    """They have it as a pair of its path and version; 3.2 has one for all targets."""

    def pair(*arguments: Any) -> tuple[str, str]:
        if found is None:
            raise RuntimeError("Cannot find ptxas")
        return found, "12.4"

    expected = found and Path(found)
    compiler = importlib.import_module("triton.backends.nvidia.compiler")
    monkeypatch.setattr(compiler, "get_ptxas", lambda arch: pair())
    assert targets.assembler(90) == expected
    monkeypatch.delattr(compiler, "get_ptxas")
    monkeypatch.setattr(compiler, "_path_to_binary", pair, raising=False)
    assert targets.assembler(90) == expected


@pytest.mark.usefixtures("afresh")
def test_an_amd_backend_without_a_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_linker() -> None:
        raise Exception("ROCm linker /opt/rocm/llvm/bin/ld.lld not found")

    native = SimpleNamespace(amd=SimpleNamespace())
    original = importlib.import_module
    monkeypatch.setattr(
        targets.importlib, "import_module", lambda name: native if name.startswith("triton._C") else original(name)
    )
    assert "no ROCm linker" in str(targets._linker_lacks(SimpleNamespace(path_to_rocm_lld=no_linker)))
    assert targets._linker_lacks(SimpleNamespace(path_to_rocm_lld=lambda: "/usr/bin/ld.lld")) is None


def test_an_amd_backend_from_before_gfx1250(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.importlib, "import_module", lambda name: SimpleNamespace(amd=SimpleNamespace()))
    assert "by name only" in str(targets._amd_lacks("gfx1250"))
    assert targets._amd_lacks("gfx942") is None


def test_an_llvm_without_a_processor() -> None:
    assert targets._llvm_lacks("sm_103a") is None
    assert "does not know the processor gfx9999" in str(targets._llvm_lacks("gfx9999"))


# Devices and extensions


def _device(**properties: Any) -> SimpleNamespace:
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_properties=lambda index: SimpleNamespace(multi_processor_count=100 + index, **properties),
    )
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip="6.4" if "gcnArchName" in properties else None))


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize(
    ("torch", "identity", "shared"),
    [
        (_device(major=9, minor=0, name="H200", shared_memory_per_block_optin=4096), ("sm_90", "nvidia", 32), 4096),
        (_device(major=9, minor=0, name="H200"), ("sm_90", "nvidia", 32), 232448),
        (_device(gcnArchName="gfx942:sramecc+:xnack-", name="MI300X"), ("gfx942", "amd", 64), 65536),
    ],
)
def test_devices(
    monkeypatch: pytest.MonkeyPatch, torch: SimpleNamespace, identity: tuple[str, str, int], shared: int
) -> None:
    original = importlib.import_module
    monkeypatch.setattr(targets.importlib, "import_module", lambda name: torch if name == "torch" else original(name))
    first, second = devices()
    assert (first.id, first.vendor, first.warp_size) == identity
    assert (first.device_index, second.device_index) == (0, 1)
    assert (second.limits.multiprocessors, second.limits.shared_memory) == (101, shared)
    assert find("device") == first
    assert find("device:1") == second


def _entry(returned: object) -> SimpleNamespace:
    return SimpleNamespace(value="vendor.targets:ours", load=lambda: lambda: returned)


@pytest.mark.usefixtures("afresh")
def test_targets_of_an_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor, present = Target("vendor", "v1", 16), Target("vendor", "v2", 16, 0)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [_entry(vendor), _entry([present])])
    backend = SimpleNamespace(compiler=SimpleNamespace(supports_target=lambda target: target.backend == "vendor"))
    monkeypatch.setitem(importlib.import_module("triton.backends").backends, "vendor", backend)
    assert compile_targets()[-1] == vendor
    assert devices()[-1] == present
    assert find("vendor_v1") == vendor
    assert vendor.vendor == "vendor"


@pytest.mark.usefixtures("afresh")
def test_a_target_of_an_extension_without_its_backend_cannot_be_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Target("vendor", "v1", 16)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [_entry(vendor)])
    assert vendor not in compile_targets()
    assert "has no 'vendor' backend" in unavailable_targets()["vendor_v1"].detail
    with pytest.raises(LookupError, match=r"vendor_v1.*is not available.*has no 'vendor' backend"):
        find("vendor_v1")


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize(
    ("load", "says"),
    [
        (lambda: lambda: ["sm_90"], "must return a conformance.targets.Target"),
        (lambda: lambda: Target("cuda", 90, 32), "returned target sm_90, and there is one already"),
        (lambda: importlib.import_module("absent_module"), "cannot be loaded: ModuleNotFoundError"),
    ],
    ids=["something else", "an id that is there", "a module that is missing"],
)
def test_an_extension_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, load: Any, says: str) -> None:
    entry = SimpleNamespace(value="vendor.targets:ours", load=load)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    monkeypatch.setattr(entry_point_loading, "LEFT_OUT", {})
    assert compile_targets()
    assert says in entry_point_loading.LEFT_OUT["entry point 'vendor.targets:ours' of group 'conformance.targets'"]
