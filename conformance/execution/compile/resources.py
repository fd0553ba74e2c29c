"""Resources of a multiprocessor that a compiled kernel uses, read from its binary, and those past the target's limits.

A cross-compile enforces no limit of the target, so what is over one is found here and not by the compiler.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.gate.changes.occupancy import NEAR, near_text
from conformance.machine.kept_answers import kept_answer, source_digest
from conformance.machine.versions import nvidia_tool
from conformance.targets import Target


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
