"""Products of what pointwise functions make of their operands, and checks of their wrappers and loops. The constants
keep results exact."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn.functional import linear, pad

from conformance.inductor.compile.program import GeneratedKernel
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.replay.pinned_programs import constant
from conformance.inductor.source.source_checks import in_source
from conformance.records import Verdict


def _like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` as ``dtype``; fp64 stays, so that the same function is its own reference."""
    return x if x.dtype == torch.float64 else x.to(dtype)


def upcast(x: Tensor, y: Tensor) -> Tensor:
    return _like(x, torch.float32) @ y


def downcast(x: Tensor, y: Tensor) -> Tensor:
    return _like(x, torch.float16) @ y


def gather(x: Tensor, index: Tensor, y: Tensor) -> Tensor:
    """Rows of ``x`` by ``index``, as the 64-bit numbers that one indexes with."""
    return x[index.long()] @ y


def low_precision(x: Tensor, y: Tensor, *, added: int) -> Tensor:
    """``added`` of 0 leaves a change of dtype alone."""
    wide = _like(x, torch.bfloat16)
    return (wide + added if added else wide) @ y


def multiple_fusions(x: Tensor, y: Tensor) -> Tensor:
    return ((x - 1.5) @ (y + 1.5)) * 1.5


def two_products(x: Tensor, y: Tensor) -> Tensor:
    return (x @ x.T) * (y @ y.T)


def product_relu(x: Tensor) -> Tensor:
    return torch.relu(x @ x)


def upcast_relu(x: Tensor) -> Tensor:
    y = _like(x, torch.float32)
    return torch.relu(y @ y)


def multiple_inputs(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _like(x + y, torch.float32) @ z


def storage_offset(x: Tensor) -> Tensor:
    """Both operands lie in one tensor, the second one behind the first."""
    half = x.shape[0] // 2
    return (x[:half] + 2) @ (x[half:] - 2)


def multiple_nodes(x: Tensor, y: Tensor) -> Tensor:
    return ((x * 2 - 1) / 2) @ (y * 4) * 3


def broadcast_x(x: Tensor, y: Tensor) -> Tensor:
    """One element, as a row of as many as ``y`` has rows."""
    return (x.expand([1, y.shape[0]]) + 1) @ y


def product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


def positive(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x) @ y


def increased(x: Tensor, y: Tensor) -> Tensor:
    return (x + 1) @ y


def absolute(x: Tensor, y: Tensor) -> Tensor:
    """The absolute value, by a function whose value at zero Inductor does not work out."""
    return torch.hypot(x, x - x) @ y


def read_into_both(x: Tensor) -> Tensor:
    y = (x + 1) * 2
    return y @ (y - 2)


def mismatched_group(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """``x`` is one row, ``y`` has many."""
    return ((x + 2) * 2 * y) @ z


def padded(x: Tensor, y: Tensor) -> Tensor:
    """The product of operands whose sizes are padded to multiples of eight, without the padding."""
    rows, inner, columns = x.shape[0], x.shape[1], y.shape[1]
    more = [-extent % 8 for extent in (rows, inner, columns)]
    full = pad(x, (0, more[1], 0, more[0])) @ pad(y, (0, more[2], 0, more[1]))
    return full[:rows, :columns]


def linear_relu_times(x: Tensor, weight: Tensor, bias: Tensor, factor: Tensor) -> Tensor:
    return torch.relu(linear(x.T, weight.T, bias)) * factor


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


def check_counts(compiled: CompiledProgram, required: Counts) -> Verdict:
    """Checks that the counts of the last generated wrapper are those ``required``."""
    counts = counts_of(compiled.generated.modules[-1])
    return Verdict("wrapper", counts == required, f"{counts}, {required} is required")


def template_kernel(compiled: CompiledProgram) -> GeneratedKernel:
    """Returns the kernel of the one product. Raises ValueError if there are more or fewer."""
    templates = [kernel for kernel in compiled.generated.kernels if kernel.kind == "template"]
    if len(templates) != 1:
        raise ValueError(f"one kernel of a template is required, there are {len(templates)}")
    return templates[0]


def loop_of(source: str) -> str:
    """Returns the text of a product's kernel from its loop over k to its multiplication. Raises ValueError without
    them."""
    loop = re.search(r"^ *for k_idx\b.*?\btl\.dot\(", source, re.DOTALL | re.MULTILINE)
    if loop is None:
        raise ValueError("the kernel has no loop over k_idx with a tl.dot in it")
    return loop[0]


def operand_line(source: str, name: str) -> str:
    """Returns the statement in the loop that gives the multiplication its operand ``name``, "a" or "b"."""
    statements = re.findall(rf"^ *{name} = .*$", loop_of(source), re.MULTILINE)
    if len(statements) != 1:
        raise ValueError(f"{len(statements)} statements give {name} its value, there should be one")
    return str(statements[0])


def check_mask(source: str, name: str, *, masked: bool) -> Verdict:
    """Operand ``name`` is set to zero past the end of k if it is to be ``masked``, unless blocks divide k."""
    even = re.search(r"^\s*EVEN_K\b.*=\s*True\s*$", source, re.MULTILINE) is not None
    has_mask = masked and not even
    line = operand_line(source, name)
    directives = f"CHECK: tl.where({name}_mask" if has_mask else "CHECK-NOT: tl.where"
    return replace(in_source(f"mask/{name}", directives, line), text=f"masked: {has_mask}; {line.strip()}")


def check_loop(source: str, name: str, directives: str) -> Verdict:
    """FileCheck ``directives`` over the loop up to the multiplication."""
    return in_source(f"loop/{name}", directives, loop_of(source))


def check_block(source: str, wanted_k: int) -> Verdict:
    """The source's EVEN_K says whether its BLOCK_K divides ``wanted_k``."""
    block = constant(source, "BLOCK_K")
    even = re.search(r"^\s*EVEN_K\b.*=\s*True\s*$", source, re.MULTILINE) is not None
    right = block is not None and (not even or wanted_k % block == 0)
    return Verdict("even k", right, f"EVEN_K {even}, BLOCK_K {block}, k {wanted_k}")
