"""Figures of a compiled kernel: its resources, those past the target's limits, its features, instructions and bytes.

Two stacks can be compared by them. A cross-compile enforces no limit of the target, so what is over one is found here
and not by the compiler.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import codegen_checks
from conformance.codegen_checks import FEATURES, SPILL, CompiledCode
from conformance.execution.compile import code_structure
from conformance.gate.changes.occupancy import NEAR, near_text
from conformance.machine.kept_answers import kept_answer, source_digest
from conformance.machine.versions import assembler_version, nvidia_tool
from conformance.targets import Target, assembler


@dataclass(frozen=True)
class KernelResources:
    """The resources that one block of a compiled kernel uses.

    ``registers`` per thread; ``spills`` in ``spill_unit``: "bytes" per thread on NVIDIA, the stack frame less what the
    program itself declares; "registers" per lane on AMD; ``scalar_spills``: AMD's scalar registers kept in vector
    registers, which cost no memory; ``stack`` bytes per thread of local memory; ``shared_memory`` bytes per block,
    static and dynamic; ``tensor_memory`` columns; ``threads`` per block. ``source`` says where they were read:
    "cubin", "hsaco" or "metadata" (the compiler's own record, when the binary cannot be read: registers is 0 then).
    """

    registers: int
    spills: int
    spill_unit: str
    shared_memory: int
    stack: int
    threads: int
    source: str
    scalar_spills: int = 0
    tensor_memory: int = 0


def read_resources(stages: Mapping[str, Path], metadata: Mapping[str, Any]) -> KernelResources:
    """Resources of the kernel whose stage files are ``stages``; the answer is kept in a file next to the binary.

    Raises RuntimeError if the binary's own description cannot be understood.
    """
    nvidia = "cubin" in stages and (metadata.get("target") or {}).get("backend") == "cuda"
    binary = stages.get("cubin" if nvidia else "hsaco")
    if binary is None or not (nvidia or "amdgcn" in stages):  # a backend of neither vendor
        return _from_metadata(metadata)

    def read() -> dict[str, Any]:
        return dataclasses.asdict(
            _from_cubin(binary, stages, metadata) if nvidia else _from_amdgcn(stages["amdgcn"], metadata)
        )

    return KernelResources(**kept_answer([binary], "resources", source_digest(sys.modules[__name__]), read))


def over_limits(resources: KernelResources, target: Target) -> list[str]:
    """Returns a sentence for each limit of ``target`` that the resources exceed; empty if everything fits."""
    limits = target.limits
    findings = _over_shared_memory(resources, target)
    if limits.registers is not None and resources.registers > limits.registers:
        findings.append(f"registers: {resources.registers} per thread, {target.id} has {limits.registers}")
    allocated = _allocated_registers(resources, target)
    if limits.block_registers is not None and allocated > limits.block_registers:
        findings.append(
            f"registers: {resources.registers} for each of {resources.threads} threads take {allocated} of the "
            f"{limits.block_registers} that {target.id} has per block"
        )
    return findings + _over_tensor_memory(resources, target)


def near_limits(resources: KernelResources, target: Target) -> list[str]:
    """Returns a text for each resource that is close below ``target``'s limit, such as "shared memory: 225,280 of
    232,448 bytes (96 %)"."""
    used, limit = resources.shared_memory, target.limits.shared_memory
    return [f"shared memory: {near_text(used, limit)}"] if NEAR * limit <= used <= limit else []


def over_memory(resources: KernelResources, target: Target) -> list[str]:
    """Returns the sentences of :func:`over_limits` about memory without which a launch cannot begin, so that an
    autotuner passes over the config."""
    return _over_shared_memory(resources, target) + _over_tensor_memory(resources, target)


def _over_shared_memory(resources: KernelResources, target: Target) -> list[str]:
    used, limit = resources.shared_memory, target.limits.shared_memory
    return [f"shared memory: {used} bytes per block, {target.id} has {limit}"] if used > limit else []


def _over_tensor_memory(resources: KernelResources, target: Target) -> list[str]:
    used, limit = resources.tensor_memory, target.limits.tensor_memory
    return [f"tensor memory: {used} columns, {target.id} has {limit}"] if limit is not None and used > limit else []


def _allocated_registers(resources: KernelResources, target: Target) -> int:
    """Registers of a block: a warp gets them in units of 256 (CUDA occupancy calculator, from capability 3.0 on)."""
    warps = -(-resources.threads // target.warp_size)
    return warps * -(-resources.registers * target.warp_size // 256) * 256


def _threads(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("num_warps", 0)) * int((metadata.get("target") or {}).get("warp_size", 32))


def _tensor_memory(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("tmem_size") or 0)


def _from_metadata(metadata: Mapping[str, Any]) -> KernelResources:
    shared = int(metadata.get("shared") or 0)
    return KernelResources(0, 0, "bytes", shared, 0, _threads(metadata), "metadata", 0, _tensor_memory(metadata))


def _from_cubin(binary: Path, stages: Mapping[str, Path], metadata: Mapping[str, Any]) -> KernelResources:
    tool = nvidia_tool("cuobjdump")
    if tool is None:
        return _from_metadata(metadata)
    command = [str(tool), "-res-usage", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    usage = parse_cuobjdump(done.stdout, str(metadata["name"]))
    if usage is None:
        raise RuntimeError(
            f"{' '.join(command)} (exit {done.returncode}) shows no resource usage of {metadata['name']}: "
            f"{(done.stdout + done.stderr).strip()[:500]}"
        )
    target = Target("cuda", int(metadata["target"]["arch"]), 32)
    static = max(usage["SHARED"] - target.system_shared_memory, 0)  # cuobjdump counts the system's
    stack = usage["STACK"] + usage["LOCAL"]
    declared = _declared_local(stages["ptx"].read_text()) if "ptx" in stages else 0
    shared = int(metadata.get("shared") or 0) + static
    spills = max(stack - declared, 0)
    return KernelResources(
        usage["REG"], spills, "bytes", shared, stack, _threads(metadata), "cubin", 0, _tensor_memory(metadata)
    )


def parse_cuobjdump(text: str, kernel: str) -> dict[str, int] | None:
    """Returns the numbers of ``kernel`` in what ``cuobjdump -res-usage`` printed (REG, STACK, SHARED, LOCAL), or None.

    >>> parse_cuobjdump(" Function mm:\\n  REG:32 STACK:0 SHARED:1024 LOCAL:0", "mm")
    {'REG': 32, 'STACK': 0, 'SHARED': 1024, 'LOCAL': 0}
    """
    match = re.search(rf"^\s*Function {re.escape(kernel)}:\s*\n\s*(REG:.*)$", text, re.MULTILINE)
    if match is None:
        return None
    numbers = {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", match[1])}
    return numbers if {"REG", "STACK", "SHARED", "LOCAL"} <= set(numbers) else None


def _declared_local(ptx: str) -> int:
    """Bytes of local memory that the program asks for itself (``.local .align 16 .b8 __local_depot0[32];``)."""
    return sum(int(size) for size in re.findall(r"^\s*\.local\s[^;\[]*\.b8\s[^;\[]*\[(\d+)\]", ptx, re.MULTILINE))


def _from_amdgcn(assembly: Path, metadata: Mapping[str, Any]) -> KernelResources:
    numbers = parse_amdgcn(assembly.read_text(), str(metadata["name"]))
    if numbers is None:
        raise RuntimeError(f"{assembly} has no kernel metadata for {metadata['name']}: is it AMDGPU assembly?")
    return KernelResources(
        registers=numbers["vgpr_count"],
        spills=numbers["vgpr_spill_count"],
        spill_unit="registers",
        shared_memory=max(numbers["group_segment_fixed_size"], int(metadata.get("shared") or 0)),
        stack=numbers["private_segment_fixed_size"],
        threads=_threads(metadata),
        source="hsaco",
        scalar_spills=numbers["sgpr_spill_count"],
    )


_AMD_FIELDS = (
    "vgpr_count",
    "vgpr_spill_count",
    "sgpr_spill_count",
    "group_segment_fixed_size",
    "private_segment_fixed_size",
)


def parse_amdgcn(text: str, kernel: str) -> dict[str, int] | None:
    """Returns the kernel's entry in the metadata note of AMDGPU assembly (code object v3 and later), or None.

    ``vgpr_count`` there counts the accumulation registers of a unified file too.
    """
    start, end = text.rfind(".amdgpu_metadata"), text.rfind(".end_amdgpu_metadata")
    note = text[start:end] if 0 <= start < end else ""
    if not re.search(rf"^\s*(?:-\s+)?\.name:\s+{re.escape(kernel)}\s*$", note, re.MULTILINE):
        return None
    numbers = {}
    for field in _AMD_FIELDS:
        match = re.search(rf"^\s*(?:-\s+)?\.{field}:\s+(\d+)\s*$", note, re.MULTILINE)
        if match is None:
            return None
        numbers[field] = int(match[1])
    return numbers


#: Instructions of a disassembly: an optional predicate and the operation, up to its first modifier.
_SASS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*)")
#: An operation of AMD's: unit and verb, such as v_mfma or buffer_load.
_AMDGCN = re.compile(r"[a-z]+_[a-z0-9]+")
#: How many parts of an operation's name in PTX say what it does; of others the first does.
_PTX_PARTS = {"cp": 3, "ld": 2, "mbarrier": 2, "st": 2, "tcgen05": 2, "wgmma": 2}

ELF_MAGIC = b"\x7fELF"


def describe(artefact: CompiledCode, target: Target, *, disassemble: bool) -> dict[str, Any]:
    """``features`` that the code has, ``bytes`` and ``sha256`` of its machine code, and ``instructions``. The latter
    say how often each operation occurs in ``instructions_of``: "sass", "ptx" or "amdgcn". It is "sass" if NVIDIA's code
    is to be disassembled (a quarter of a second for each kernel) and can be. ``sync`` are the counts of
    :func:`~conformance.execution.compile.code_structure.structure`. ``assembler`` is the version of the ptxas that
    Triton calls for NVIDIA's ``target``. Of the code of another vendor there are only the features, because the format
    of its binary is not known."""
    binary = artefact.stages.get("cubin") or artefact.stages.get("hsaco")
    about = [path for path in (binary, artefact.stages.get("ptx") or artefact.stages.get("amdgcn")) if path is not None]
    about = about or list(artefact.stages.values())  # another vendor's
    code = "\n".join(
        [
            source_digest(sys.modules[__name__], codegen_checks, code_structure),
            *codegen_checks.REGISTERED,
        ]
    )
    name = f"code-{target.id}-{'sass' if disassemble else 'text'}"
    try:
        figures: dict[str, Any] = kept_answer(
            about, name, code, lambda: _figures(artefact, target, binary, disassemble)
        )
    except ValueError as error:  # a text that is none, too
        text = "if a file there was damaged, delete the folder, and the kernel is compiled again"
        raise ValueError(f"{about[0].parent} holds code that cannot be read ({error}): {text}") from None
    used = assembler(int(target.arch)) if target.vendor == "nvidia" and binary is not None else None
    return {**figures, "assembler": assembler_version(used)} if used else figures


def _figures(artefact: CompiledCode, target: Target, binary: Path | None, disassemble: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"features": features(artefact, target)}
    if target.vendor not in ("nvidia", "amd"):
        return figures
    if binary is not None:
        code = b"".join(machine_code(binary.read_bytes()))
        figures |= {"bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()}
    stage, counted = _instructions(artefact, target, disassemble)
    text = "ptx" if target.vendor == "nvidia" else "amdgcn"
    sync = code_structure.structure(text, artefact.stages[text].read_text())
    return figures | {"instructions_of": stage, "instructions": dict(counted.most_common()), "sync": sync}


def _instructions(artefact: CompiledCode, target: Target, disassemble: bool) -> tuple[str, Counter[str]]:
    if target.vendor != "nvidia":
        return "amdgcn", _amdgcn(artefact)
    if disassemble:
        with contextlib.suppress(RuntimeError):  # no disassembler, or one that is older than the target
            return "sass", Counter(_SASS.findall(codegen_checks.disassembled(artefact)))
    return "ptx", _ptx(artefact)


def features(artefact: CompiledCode, target: Target) -> list[str]:
    """Names of the features of which all evidence is there. Spills are left to the resources."""
    return [
        feature.name
        for feature in FEATURES
        if feature is not SPILL and codegen_checks.present(artefact, target, feature)
    ]


def machine_code(binary: bytes) -> Iterator[bytes]:
    """The contents of the ``.text`` sections of a binary. Raises ValueError as :func:`elf_sections` does."""
    return (content for name, content in elf_sections(binary) if name.startswith(b".text"))


def elf_sections(binary: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The name and the content of each section of a 64-bit little-endian ELF file, which cubin and hsaco files are.
    Sections without content in the file are left out.

    The layout is that of the ELF specification (gABI, chapter 4). Raises ValueError for anything else, and for a file
    that is cut off.
    """
    if binary[:4] != ELF_MAGIC or binary[4:6] != b"\x02\x01":
        raise ValueError("the binary is no 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", binary, 0x28)
        size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", binary, table + size * index) for index in range(count)]
        strings = sections[names][4]
    except (struct.error, IndexError) as error:
        raise ValueError(f"the binary's table of sections cannot be read: {error}") from None
    for name, kind, _, _, offset, length in sections:
        if kind in (_NULL, _NOBITS):
            continue
        if offset + length > len(binary):
            raise ValueError(f"a section of the binary ends at byte {offset + length} of {len(binary)}")
        start = strings + name
        yield binary[start : binary.index(b"\0", start)], binary[offset : offset + length]


_NULL, _NOBITS = 0, 8  # kinds of sections without content


def _ptx(artefact: CompiledCode) -> Counter[str]:
    counted: Counter[str] = Counter()
    for word, count in _operations(artefact.stages["ptx"], "ptx").items():
        counted[ptx_name(word)] += count
    return counted


def ptx_name(word: str) -> str:
    """Returns an operation of PTX, in one of its spellings, without the modifiers that do not say what it does.
    ``.shared`` becomes ``.shared::cta``, and ``bar`` an aligned ``barrier``.

    >>> ptx_name("st.shared.v4.b32")
    'st.shared'
    """
    word = word.rstrip(";").replace("::cta", "").replace(".cta.", ".")
    if word == "barrier.sync.aligned":
        word = "bar." + word.removeprefix("barrier.")
    parts = word.split(".")
    return ".".join(parts[: _PTX_PARTS.get(parts[0], 1)])


def _amdgcn(artefact: CompiledCode) -> Counter[str]:
    counted: Counter[str] = Counter()
    for word, count in _operations(artefact.stages["amdgcn"], "amdgcn").items():
        if match := _AMDGCN.match(word):
            counted[match[0]] += count
    return counted


def _operations(path: Path, stage: str) -> Counter[str]:
    """Counts how often each word is the first of a line of code."""
    lines = codegen_checks.code_of(path, stage).split("\n")
    return Counter(words[0] for line in lines if (words := line.split(None, 1)) and words[0][0].isalpha())
