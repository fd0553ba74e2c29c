"""Registers, spills and shared memory, read from binaries and compared with limits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from conformance.execution.compile import kernel_figures
from conformance.execution.compile.kernel_figures import (
    KernelResources,
    near_limits,
    over_limits,
    parse_amdgcn,
    parse_cuobjdump,
    read_resources,
)
from conformance.targets import Target, find
from tests.execution.sample_kernels import Sample, compiled

SM80, SM90, SM100 = Target("cuda", 80, 32), Target("cuda", 90, 32), Target("cuda", 100, 32)
GFX942 = Target("hip", "gfx942", 64)
FITS = KernelResources(64, 0, "bytes", 1024, 0, 128, "cubin")

CUOBJDUMP = """
Resource usage:
 Common:
  GLOBAL:0
 Function first:
  REG:32 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:592 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function first_longer:
  REG:255 STACK:72 SHARED:0 LOCAL:8 CONSTANT[0]:416 TEXTURE:0 SURFACE:0 SAMPLER:0
"""

AMDGCN = """
	v_mov_b32 v0, 0
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .name:           vgpr_count
    .group_segment_fixed_size: 16
    .name:           kernel
    .private_segment_fixed_size: 108
    .sgpr_spill_count: 5
    .vgpr_count:     256
    .vgpr_spill_count: 26
...
	.end_amdgpu_metadata
"""


def test_cuobjdump_is_read_for_the_kernel_asked_for() -> None:
    assert parse_cuobjdump(CUOBJDUMP, "first")["REG"] == 32
    assert parse_cuobjdump(CUOBJDUMP, "first_longer")["STACK"] == 72
    assert parse_cuobjdump(CUOBJDUMP, "longer") is None
    assert parse_cuobjdump("", "first") is None


def test_amd_metadata_is_read() -> None:
    assert parse_amdgcn(AMDGCN, "kernel") == {
        "vgpr_count": 256,
        "vgpr_spill_count": 26,
        "sgpr_spill_count": 5,
        "group_segment_fixed_size": 16,
        "private_segment_fixed_size": 108,
    }
    assert parse_amdgcn(AMDGCN, "other") is None
    assert parse_amdgcn(AMDGCN.replace(".vgpr_spill_count", ".no_count"), "kernel") is None
    assert parse_amdgcn("", "kernel") is None


def test_a_lack_of_registers_spills_and_plenty_does_not() -> None:
    plenty = compiled(Sample("pointer", block=(64, 128, 64)), SM80).resources
    starved = compiled(Sample("pointer", block=(64, 128, 64), maxnreg=32), SM80).resources
    assert (plenty.spills, plenty.spill_unit, plenty.source, plenty.threads) == (0, "bytes", "cubin", 128)
    assert starved.registers <= 32 < plenty.registers
    assert starved.spills > 0
    assert starved.stack >= starved.spills


def test_shared_memory_is_what_the_compiler_asked_for() -> None:
    for target in (SM90, SM100):  # the KiB that the system takes there is not the kernel's
        artefact = compiled(Sample("pointer"), target)
        assert artefact.resources.shared_memory == artefact.metadata["shared"] > 0
    assert compiled(Sample("copy"), SM90).resources.shared_memory == 0
    assert compiled(Sample("pointer"), SM100).resources.tensor_memory > 0


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_amd_resources_come_from_the_assembly(target: str) -> None:
    artefact = compiled(Sample("pointer"), find(target))
    used = artefact.resources
    assert (used.source, used.spill_unit) == ("hsaco", "registers")
    assert used.registers > 0
    assert used.shared_memory == artefact.metadata["shared"]
    assert used.threads == 4 * find(target).warp_size


def test_the_answer_is_kept_beside_the_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    artefact = compiled(Sample("pointer"), SM90)
    stages = {}
    for stage in ("cubin", "ptx"):
        stages[stage] = tmp_path / artefact.stages[stage].name
        stages[stage].write_bytes(artefact.stages[stage].read_bytes())
    first = read_resources(stages, artefact.metadata)
    assert first == artefact.resources

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a process was started again")

    monkeypatch.setattr(kernel_figures.subprocess, "run", never)
    assert read_resources(stages, artefact.metadata) == first
    (answer,) = tmp_path.glob("*.resources.json")
    answer.write_text(json.dumps({"registers": 1, "of_another_version": 2}))
    with pytest.raises(AssertionError, match="started again"):
        read_resources(stages, artefact.metadata)


def test_a_binary_that_cannot_be_read_is_an_error_and_a_missing_tool_is_named_as_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metadata = compiled(Sample("pointer"), SM90).metadata
    (tmp_path / "broken.cubin").write_bytes(b"not a cubin")
    with pytest.raises(RuntimeError, match="shows no resource usage of pointer_mm"):
        read_resources({"cubin": tmp_path / "broken.cubin"}, metadata)
    (tmp_path / "broken.amdgcn").write_text("nothing here")
    with pytest.raises(RuntimeError, match="no kernel metadata"):
        read_resources({"hsaco": tmp_path / "broken.hsaco", "amdgcn": tmp_path / "broken.amdgcn"}, metadata)
    monkeypatch.setattr(kernel_figures, "nvidia_tool", lambda name: None)
    fallback = read_resources({"cubin": tmp_path / "broken.cubin"}, metadata)
    assert (fallback.source, fallback.shared_memory) == ("metadata", metadata["shared"])


@pytest.mark.parametrize(
    ("target", "changes", "words"),
    [
        (SM90, {"shared_memory": 227 * 1024}, None),
        (SM90, {"shared_memory": 227 * 1024 + 1}, "shared memory: 232449 bytes per block, sm_90 has 232448"),
        (SM80, {"shared_memory": 200 * 1024}, "sm_80 has 166912"),
        (GFX942, {"shared_memory": 64 * 1024 + 1}, "gfx942 has 65536"),
        (SM90, {"registers": 255, "threads": 256}, None),
        (SM90, {"registers": 255, "threads": 288}, "take 73728 of the 65536"),
        (SM90, {"registers": 256}, "registers: 256 per thread"),
        (SM100, {"tensor_memory": 512}, None),
        (SM100, {"tensor_memory": 513}, "tensor memory: 513 columns"),
    ],
)
def test_limits(target: Target, changes: dict[str, int], words: str | None) -> None:
    findings = over_limits(dataclasses.replace(FITS, **changes), target)
    if words is None:
        assert findings == []
    else:
        assert len(findings) == 1
        assert words in findings[0]


def test_a_foreign_target_compiles_past_its_limit_and_we_see_it() -> None:
    """The compiler does not enforce a limit of a GPU that is not there."""
    oversized = compiled(Sample("pointer", block=(128, 128, 128), stages=6), SM80)
    assert over_limits(oversized.resources, SM80)
    assert over_limits(compiled(Sample("pointer"), SM80).resources, SM80) == []


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (SM80.limits.shared_memory + 1, []),  # past it
        (SM80.limits.shared_memory, ["shared memory: 166,912 of 166,912 bytes (100 %)"]),
        (int(0.96 * SM80.limits.shared_memory), ["shared memory: 160,235 of 166,912 bytes (95 %)"]),
        (int(0.9 * SM80.limits.shared_memory), []),
    ],
)
def test_shared_memory_near_the_limit_is_named(used, text):
    assert near_limits(dataclasses.replace(FITS, shared_memory=used), SM80) == text
