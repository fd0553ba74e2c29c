"""The figures of machine code by which two stacks are compared."""

from __future__ import annotations

import dataclasses
import shutil
import struct
from pathlib import Path

import pytest

from conformance.codegen_checks import FEATURES
from conformance.execution.compile.kernel_figures import describe, machine_code
from conformance.machine.versions import assembler_versions
from conformance.targets import find
from tests.execution.sample_kernels import Sample, compiled

SM80, SM90, SM100, GFX942 = map(find, ("sm_80", "sm_90", "sm_100", "gfx942"))


def elf(*sections: tuple[bytes, int, bytes]) -> bytes:
    """A file of the sections (name, type, content) and the table of their names."""
    names = b"\0" + b"".join(name + b"\0" for name, _, _ in sections) + b".names\0"
    contents = [*(content for _, _, content in sections), names]
    kinds = [*(kind for _, kind, _ in sections), 3]
    titles = [*(name for name, _, _ in sections), b".names"]
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, 64 + sum(map(len, contents)))
    struct.pack_into("<HHH", header, 0x3A, 64, len(contents), len(contents) - 1)
    table, offset = b"", 64
    for title, kind, content in zip(titles, kinds, contents, strict=True):
        entry = struct.pack("<IIQQQQ", names.index(b"\0" + title + b"\0") + 1, kind, 0, 0, offset, len(content))
        table += entry.ljust(64, b"\0")
        offset += len(content)
    return bytes(header) + b"".join(contents) + table


def test_machine_code_is_the_text_sections_and_nothing_else():
    sections = machine_code(
        elf((b".text.one", 1, b"first"), (b".data", 1, b"no"), (b".text", 8, b""), (b".text.two", 1, b"second"))
    )
    assert list(sections) == [b"first", b"second"]


@pytest.mark.parametrize("binary", [b"", b"\x7fELF\x01\x01", elf((b".text", 1, b"code"))[:-40]])
def test_what_is_no_elf_file_is_refused(binary):
    with pytest.raises(ValueError, match="binary"):
        list(machine_code(binary))


@pytest.mark.parametrize("stage", ["cubin", "ptx"])
def test_a_damaged_file_of_the_cache_is_named(tmp_path, stage):
    artefact = compiled(Sample("copy"), SM90)
    stages = {name: Path(shutil.copy(path, tmp_path)) for name, path in artefact.stages.items()}
    stages[stage].write_bytes(b"\xff\xfe garbage")
    with pytest.raises(ValueError, match=f"{tmp_path} holds code that cannot be read .*delete the folder"):
        describe(dataclasses.replace(artefact, stages=stages), SM90, disassemble=False)


def test_nvidia_code_is_described_by_ptx_or_by_its_disassembly():
    artefact = compiled(Sample("descriptor"), SM90)
    quick, whole = (describe(artefact, SM90, disassemble=disassemble) for disassemble in (False, True))
    assert {"TMA_LOAD", "WGMMA"} <= set(quick["features"]) <= {feature.name for feature in FEATURES}
    assert "SPILL" not in quick["features"]
    assert quick["instructions_of"] == "ptx"
    assert quick["instructions"]["wgmma.mma_async"] > 0
    assert quick["instructions"]["cp.async.bulk"] > 0
    assert whole["instructions_of"] == "sass"
    assert whole["instructions"]["UTMALDG"] > 0
    assert 16 * sum(whole["instructions"].values()) == quick["bytes"]  # an instruction has 16 bytes


def test_assembler_is_the_one_that_made_the_code():
    stack = assembler_versions()
    first, second = (describe(compiled(Sample("copy"), target), target, disassemble=False) for target in (SM80, SM100))
    assert (first["assembler"], second["assembler"]) == (stack["ptxas"], stack["ptxas-blackwell"] or stack["ptxas"])
    cubin = compiled(Sample("copy"), SM100).stages["cubin"].read_bytes()
    if b"Cuda compilation tools" in cubin:  # since CUDA 13
        assert f"V{second['assembler']}".encode() in cubin


def test_code_that_cannot_be_disassembled_is_described_by_ptx(monkeypatch: pytest.MonkeyPatch):
    def fails(artefact: object) -> str:
        raise RuntimeError("nvdisasm cannot decode this architecture")

    monkeypatch.setattr("conformance.codegen_checks.disassembled", fails)
    assert describe(compiled(Sample("pointer"), SM90), SM90, disassemble=True)["instructions_of"] == "ptx"


def test_amd_code_is_described_by_its_assembly():
    description = describe(compiled(Sample("pointer"), GFX942), GFX942, disassemble=True)
    assert description["instructions_of"] == "amdgcn"
    assert description["instructions"]["v_mfma"] > 0
    assert "assembler" not in description  # LLVM's own
    assert "amdhsa" not in description["instructions"]  # metadata, no code
    assert description["bytes"] > 0
    assert len(description["sha256"]) == 64


def test_one_changed_byte_of_code_changes_the_digest(tmp_path: Path):
    artefact = compiled(Sample("pointer"), SM90)
    binary = artefact.stages["cubin"].read_bytes()
    code = next(machine_code(binary))
    changed = tmp_path / "changed.cubin"
    changed.write_bytes(binary.replace(code, bytes([code[0] ^ 1]) + code[1:]))
    other = dataclasses.replace(artefact, stages={**artefact.stages, "cubin": changed})
    before, after = (describe(version, SM90, disassemble=False) for version in (artefact, other))
    assert before["sha256"] != after["sha256"]
    assert before["bytes"] == after["bytes"]
