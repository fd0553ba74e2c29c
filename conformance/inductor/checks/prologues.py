"""Checks of the suite about prologues: what a generated wrapper does, and what stands in the loop of its product."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from conformance.inductor.compile.program import GeneratedKernel
from conformance.inductor.compile.provider import Compiled
from conformance.inductor.replay.pinned_programs import constant
from conformance.inductor.source.source_checks import in_source
from conformance.records import Verdict


@dataclass(frozen=True)
class Counts:
    """Statements of a generated wrapper: Triton kernels launched, tensors allocated, names deleted and kernels of
    ATen called."""

    launches: int
    allocations: int
    deletions: int
    externs: int = 0


def counts_of(module: str) -> Counts:
    """The counts of the function ``call`` in a generated ``module``. Raises ValueError if there is no such function."""
    call = next((n for n in ast.walk(ast.parse(module)) if isinstance(n, ast.FunctionDef) and n.name == "call"), None)
    if call is None:
        raise ValueError("the generated module defines no function call(args)")
    called = [ast.unparse(node.func) for node in ast.walk(call) if isinstance(node, ast.Call)]
    return Counts(
        launches=sum(name.startswith("triton_") and name.endswith(".run") for name in called),
        allocations=sum(name.startswith("empty_strided") for name in called),
        deletions=sum(len(node.targets) for node in ast.walk(call) if isinstance(node, ast.Delete)),
        externs=sum(name.startswith("extern_kernels.") for name in called),
    )


def check_counts(compiled: Compiled, wanted: Counts) -> Verdict:
    """The counts of the last generated wrapper are those ``wanted``."""
    counts = counts_of(compiled.generated.modules[-1])
    return Verdict("wrapper", counts == wanted, f"{counts}, {wanted} is required")


def template_kernel(compiled: Compiled) -> GeneratedKernel:
    """The kernel of the one product. Raises ValueError if there are more or fewer."""
    templates = [kernel for kernel in compiled.generated.kernels if kernel.kind == "template"]
    if len(templates) != 1:
        raise ValueError(f"one kernel of a template is required, there are {len(templates)}")
    return templates[0]


def loop_of(source: str) -> str:
    """The text of a product's kernel from its loop over k to its multiplication. Raises ValueError without them."""
    loop = re.search(r"^ *for k_idx\b.*?\btl\.dot\(", source, re.DOTALL | re.MULTILINE)
    if loop is None:
        raise ValueError("the kernel has no loop over k_idx with a tl.dot in it")
    return loop[0]


def operand_line(source: str, name: str) -> str:
    """The statement in the loop that gives the multiplication its operand ``name``, "a" or "b"."""
    statements = re.findall(rf"^ *{name} = .*$", loop_of(source), re.MULTILINE)
    if len(statements) != 1:
        raise ValueError(f"{len(statements)} statements give {name} its value, there should be one")
    return str(statements[0])


def check_mask(source: str, name: str, *, masked: bool) -> Verdict:
    """Operand ``name`` is set to zero past the end of k if it is to be ``masked``, unless blocks divide k."""
    even = re.search(r"^\s*EVEN_K\b.*=\s*True\s*$", source, re.MULTILINE) is not None
    wanted = masked and not even
    line = operand_line(source, name)
    directives = f"CHECK: tl.where({name}_mask" if wanted else "CHECK-NOT: tl.where"
    return replace(in_source(f"mask/{name}", directives, line), text=f"masked: {wanted}; {line.strip()}")


def check_loop(source: str, name: str, directives: str) -> Verdict:
    """FileCheck ``directives`` over the loop up to the multiplication."""
    return in_source(f"loop/{name}", directives, loop_of(source))


def check_block(source: str, wanted_k: int) -> Verdict:
    """The source's EVEN_K says whether its BLOCK_K divides ``wanted_k``."""
    block = constant(source, "BLOCK_K")
    even = re.search(r"^\s*EVEN_K\b.*=\s*True\s*$", source, re.MULTILINE) is not None
    right = block is not None and (not even or wanted_k % block == 0)
    return Verdict("even k", right, f"EVEN_K {even}, BLOCK_K {block}, k {wanted_k}")
