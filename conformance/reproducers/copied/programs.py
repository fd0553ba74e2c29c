"""Parts of a reproducer of a function that `torch.compile` gets wrong. These definitions are copied into the script as
they stand, so they use nothing but Python, torch and triton."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from conformance.codegen_checks import code
from conformance.inductor.source.source_checks import kernels_of, kind_of

#: The modules that Inductor generates, in their order.
MODULES: list[str] = []
#: Values of the operands are whole numbers up to this one, so that results are exact.
LARGEST = 4
#: Bytes of poison behind every operand.
GUARD = 4096


def choose(templates: Any, descriptions: Any, pick: Any) -> None:
    """From here on Inductor selects only choices in whose names and descriptions the regular expressions are found.
    With `pick` it takes the one at `pick` modulo their number."""
    from torch._inductor import select_algorithm

    selector: Any = select_algorithm.AlgorithmSelectorCache
    select = selector.__call__

    def selecting(cache: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        left = [
            choice
            for choice in choices
            if (templates is None or re.search(templates, choice.name))
            and (descriptions is None or re.search(descriptions, str(getattr(choice, "description", ""))))
        ]
        if pick is not None and left:
            left = [left[pick % len(left)]]
        print(
            f"{name}: {len(choices)} choices, of which are left: {', '.join(choice.name for choice in left) or 'none'}"
        )
        return select(cache, name, left, *arguments, **options)

    selector.__call__ = selecting


def keep_modules() -> None:
    """From here on what Inductor generates is kept in `MODULES`."""
    from torch._inductor.graph import GraphLowering

    graph: Any = GraphLowering
    graph.save_output_code = staticmethod(MODULES.append)


def known(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the `settings` that the installed torch has."""
    from torch._inductor import config

    options: Any = config
    missing = [name for name in settings if name not in options._config]
    if missing:
        print(f"this torch has no option {', '.join(missing)}: left out")
    return {name: value for name, value in settings.items() if name not in missing}


def values(layout: tuple[Any, ...], seed: int) -> torch.Tensor:
    """Whole numbers for an operand: equal along dimensions of stride 0."""
    dtype, shape, strides, _ = layout
    stored = [extent if stride else 1 for extent, stride in zip(shape, strides, strict=True)]
    low = 0 if dtype is torch.uint8 else -LARGEST
    numbers = torch.randint(low, LARGEST + 1, stored, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).expand(shape)


def place(layout: tuple[Any, ...], values: torch.Tensor, poison: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor that is no view of another, with `poison` before, behind and between its elements; its memory."""
    dtype, shape, strides, offset = layout
    span = 0 if 0 in shape else 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    memory = torch.full(((offset + span) * dtype.itemsize + GUARD,), poison, dtype=torch.uint8, device=device)
    tensor = torch.empty(0, dtype=dtype, device=device).set_(memory.untyped_storage(), offset, shape, strides)
    narrow = tensor[tuple(slice(0, 1 if stride == 0 else None) for stride in strides)]
    narrow.copy_(values[tuple(slice(0, 1 if stride == 0 else None) for stride in strides)].to(device))
    return tensor, memory


def reference(
    function: Callable[..., Any], operands: list[torch.Tensor], arguments: dict[str, Any], device: str
) -> tuple[list[torch.Tensor], list[bool]]:
    """Runs `function` uncompiled, in fp64 on the CPU if it can be computed so, else on the device as it is; returns its
    results and the operands that it writes to."""
    wide = [value.double() if value.dtype.is_floating_point else value.clone() for value in operands]
    try:
        used = [value.contiguous().clone() for value in wide]
        result = function(*used, **arguments)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        print(f"the reference is eager, on the device: {type(error).__name__} in fp64 on the CPU")
        wide = [value.to(device) for value in operands]
        used = [value.clone() for value in wide]
        result = function(*used, **arguments)
    written = [not torch.equal(a.cpu().double(), b.cpu().double()) for a, b in zip(used, wide, strict=True)]
    return outputs(result), written


def outputs(result: Any) -> list[torch.Tensor]:
    return [value.detach().cpu() for value in (result if isinstance(result, (tuple, list)) else (result,))]


def compare(name: str, out: torch.Tensor, expected: torch.Tensor) -> list[str]:
    """Returns a sentence if `out` differs from `expected`, rounded to its dtype; prints the first wrong elements."""
    if out.shape != expected.shape:
        return [f"{name} is {tuple(out.shape)}, right is {tuple(expected.shape)}"]
    got, right = out.double(), expected.to(out.dtype).double()
    wrong = ((got != right) & ~(got.isnan() & right.isnan())).nonzero().tolist()
    for index in wrong[:5]:
        print(f"  {name}{index} is {got[tuple(index)].item():.9g}, right is {right[tuple(index)].item():.9g}")
    return [f"{len(wrong)} of {out.numel()} elements of {name} are wrong"] if wrong else []


def check(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    calls: list[dict[str, Any]],
    arguments: dict[str, Any],
    marked: list[tuple[str, int]],
    seed: int,
    device: str,
) -> list[str]:
    """Calls the compiled function for each set of operands, twice with different poison: all that is wrong."""
    faults: list[str] = []
    for number, layouts in enumerate(calls):
        operands = [values(layout, seed * 1009 + which) for which, layout in enumerate(layouts.values())]
        expected, written = reference(function, operands, arguments, device)
        if not all(map(torch.equal, expected, reference(function, operands, arguments, device)[0])):
            print("CANNOT RUN: the function itself returns something else each time, so nothing says what is right")
            raise SystemExit(2)
        runs = []
        for poison in (0xFF, 0x7B):
            pairs = zip(layouts.values(), operands, strict=True)
            placed = [place(layout, value, poison, device) for layout, value in pairs]
            tensors = dict(zip(layouts, (tensor for tensor, _ in placed), strict=True))
            before = [memory.clone() for _, memory in placed]
            for name, dimension in marked:
                torch._dynamo.mark_dynamic(tensors[name], dimension)
            results = outputs(compiled(*tensors.values(), **arguments))
            for name, (_, memory), old, may in zip(layouts, placed, before, written, strict=True):
                if not may and not torch.equal(memory, old):
                    faults.append(f"bytes were written in or around {name}")
            runs.append(results)
            for index, (out, right) in enumerate(zip(results, expected, strict=True)):
                faults += compare(f"output {index} of call {number}", out, right)
        for index, (first, second) in enumerate(zip(*runs, strict=True)):
            if not torch.equal(*(value.contiguous().view(-1).view(torch.uint8) for value in (first, second))):
                faults.append(f"two runs give different bits in output {index} of call {number}")
    return list(dict.fromkeys(faults))


def template_code() -> Any:
    """The code that Triton compiled Inductor's templates to in this process."""
    folder = Path(os.environ["TRITON_CACHE_DIR"])
    stages = ("ttir", "ttgir", "llir", "ptx", "amdgcn")
    return SimpleNamespace(
        asm={stage: "\n".join(p.read_text() for p in sorted(folder.rglob(f"triton_tem_*.{stage}"))) for stage in stages}
    )


def generated_text(where: str) -> str:
    """Returns the source of the template's kernel ("kernel"), its module or else the last one ("module"), or the code
    of that kernel at a stage."""
    if where not in ("kernel", "module"):
        return code(where, template_code().asm[where])
    for module in reversed(MODULES):
        for source in kernels_of(module).values():
            if kind_of(source) == "template":
                return source if where == "kernel" else module
    return MODULES[-1] if MODULES and where == "module" else ""


def check_generated(checks: list[tuple[str, str, str, int, Any]]) -> list[str]:
    """Returns a sentence for each expression of `checks` (check, where, regular expression, least and most matches)
    that the generated text contradicts."""
    faults = []
    for check, where, pattern, least, most in checks:
        count = len(re.findall(pattern, generated_text(where), re.MULTILINE))
        if count < least or (most is not None and count > most):
            required = least if most == least else f"at least {least}"
            faults.append(f"{check}: {pattern!r} is {count} times in the {where}, {required} required")
    return faults
