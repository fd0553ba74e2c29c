"""Parts of a reproducer of a compiler's fault. These definitions are copied into the script as they stand, or refer to
others that can be; no GPU is needed."""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton

from conformance.codegen_checks import code
from conformance.execution.compile.code_structure import structure
from conformance.execution.compile.kernel_figures import parse_amdgcn, parse_cuobjdump


class Driver:
    """Stands in for a GPU's driver: with it Triton compiles for `target` where there is none."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def pointer(dtype: Any, elements: int, offset: int = 0) -> torch.Tensor:
    """A tensor without memory, which stands for a pointer: the compiler asks for its dtype and alignment only."""
    return torch.empty(max(elements, 1), dtype=dtype, device="meta").as_strided((1,), (1,), offset)


def check_code(kernel: Any, patterns: list[tuple[str, str, str, bool]]) -> list[str]:
    """Returns a sentence for each of `patterns` (feature, stage, regular expression, whether it must match) that the
    compiled code contradicts."""
    faults = []
    for feature, stage, pattern, required in patterns:
        match = re.search(pattern, code(stage, kernel.asm[stage]), re.MULTILINE)
        if bool(match) != required:
            seen = f"{match[0]!r} is in" if match else f"nothing like {pattern!r} is in"
            faults.append(f"{feature} is {'missing' if required else 'there'}: {seen} the {stage}")
    return faults


def used_on_nvidia(kernel: Any) -> dict[str, int]:
    """Returns the resources of one block: bytes of shared memory, registers per thread and in all, threads, bytes of
    spills per thread."""
    numbers, metadata = resource_usage(kernel), kernel.metadata
    # the stack frame less what the program declares itself
    declared = re.findall(r"^\s*\.local\s[^;\[]*\.b8\s[^;\[]*\[(\d+)\]", kernel.asm["ptx"], re.MULTILINE)
    # from sm_90 on the system takes 1024 bytes of each block's shared memory, which the limits do not count
    static = max(numbers["SHARED"] - (1024 if metadata.target.arch >= 90 else 0), 0)
    return {
        "shared memory": metadata.shared + static,
        "registers": numbers["REG"],
        # a warp gets registers in units of 256
        "block registers": metadata.num_warps * -(-numbers["REG"] * 32 // 256) * 256,
        "tensor memory": getattr(metadata, "tmem_size", 0) or 0,
        "threads": metadata.num_warps * 32,
        "spills": max(numbers["STACK"] + numbers["LOCAL"] - sum(map(int, declared)), 0),
    }


def used_on_amd(kernel: Any) -> dict[str, int]:
    """Returns the resources of one block: bytes of shared memory, registers and spilled registers per lane, threads."""
    numbers = parse_amdgcn(kernel.asm["amdgcn"], kernel.metadata.name)
    if numbers is None:
        print("CANNOT RUN: the assembly does not say what the kernel uses")
        raise SystemExit(2)
    return {
        "shared memory": max(kernel.metadata.shared, numbers["group_segment_fixed_size"]),
        "registers": numbers["vgpr_count"],
        "threads": kernel.metadata.num_warps * kernel.metadata.target.warp_size,
        "spills": numbers["vgpr_spill_count"],
    }


def resource_usage(kernel: Any) -> dict[str, int]:
    """Returns the output of cuobjdump, which Triton brings along, for the binary."""
    own = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    tool = os.environ.get("TRITON_CUOBJDUMP_PATH", str(own))
    if not os.access(tool, os.X_OK):
        print(f"CANNOT RUN: {tool} is missing; set TRITON_CUOBJDUMP_PATH")
        raise SystemExit(2)
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(kernel.asm["cubin"])
        done = subprocess.run([tool, "-res-usage", str(binary)], capture_output=True, text=True, check=False)
    numbers = parse_cuobjdump(done.stdout, kernel.metadata.name)
    if numbers is None:
        print(f"CANNOT RUN: cuobjdump says nothing of {kernel.metadata.name}: {done.stderr}")
        raise SystemExit(2)
    return numbers


def check_limits(used: dict[str, int], limits: dict[str, int]) -> list[str]:
    """Returns a sentence for each resource past `limits`: compiling for the architecture of another GPU enforces none
    of them."""
    return [f"{name}: {used[name]}, the limit is {limit}" for name, limit in limits.items() if used[name] > limit]


def check_structure(stage: str, text: str, faults: tuple[str, ...]) -> list[str]:
    """Returns a sentence for each of `faults` that the order of the code's instructions has."""
    counts = structure(stage, text)
    return [f"{name}: {counts[name]} in the {stage}" for name in faults if counts.get(name)]
