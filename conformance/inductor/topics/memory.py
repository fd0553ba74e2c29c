"""Memory: graphs of several steps, and checks of which names in a wrapper stand for the same allocation, and who uses
each. All operands of several products are square."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
import torch.fx.traceback
from torch import Tensor

from conformance.inductor.compile.program import Generated
from conformance.inductor.source.source_checks import extern_calls, launched
from conformance.records import Verdict


def in_a_row(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Each product takes the one before."""
    return ((a @ b) @ c) @ d


def side_by_side(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """No product takes another."""
    return a @ b, a @ c, a @ d


def with_steps(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """A product and what is computed of another one are used twice."""
    first = a @ b
    second = torch.relu(first @ c)
    return first + second, second @ d


def on_two_streams(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Two products that may run at the same time: each is marked as Dynamo marks what a user puts on a stream."""
    with torch.fx.traceback.annotate({"stream": 1}):
        first = a @ b
    with torch.fx.traceback.annotate({"stream": 2}):
        second = c @ d
    return first, second


def sum_mm(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """A product of what is computed of two operands."""
    return (a + c) @ b


def sum_mm_relu(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Returns the same with an epilogue."""
    return torch.relu((a + c) @ b)


#: What a device-made descriptor takes, in bytes.
DESCRIPTOR_BYTES = 128

_ALLOCATED = re.compile(r"^(\w+) = empty_strided_cuda\(\((\d+), *\), \(1, *\), torch\.uint8\)")
_ANY_ALLOCATED = re.compile(r"^(\w+) = empty_strided_cuda\(")
_ALIAS = re.compile(r"^(\w+) = (?:reinterpret_tensor\()?(\w+)\b(?:,.*\))?;? *(?:del (\w+))?.*# (?:reuse|alias)")
_DELETED = re.compile(r"^del (\w+)$")
_LAUNCH = re.compile(r"^(\w+)\.run\((.*)\)$")
_STREAM = re.compile(r"^with (stream\d+):$")


@dataclass(frozen=True)
class WrapperLaunch:
    """A launch of the wrapper. ``allocations`` are those of the names that the ``kernel`` gets, None for an operand or
    for a deleted name. ``stream`` is the one that it is put on, if there is more than one."""

    kernel: str
    names: tuple[str, ...]
    allocations: tuple[str | None, ...]
    stream: str


@dataclass
class Wrapper:
    """The memory that the function ``call`` of a module uses. An allocation is named by the first name that it has.

    ``sizes`` are the bytes of those of uint8, ``leftover`` the workspaces that are not freed.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    launches: list[WrapperLaunch] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)


def wrapper_of(module: str) -> Wrapper:
    """Reads the text of ``call``, line by line."""
    wrapper, alive = Wrapper(), dict[str, str]()
    streams: list[tuple[int, str]] = []
    for text in module[max(module.find("def call("), 0) :].splitlines()[1:]:
        line, indent = text.strip(), len(text) - len(text.lstrip())
        if line.startswith("return "):
            break
        while line and streams and indent <= streams[-1][0]:
            streams.pop()
        if match := _STREAM.match(line):
            streams.append((indent, match[1]))
        elif match := _ANY_ALLOCATED.match(line):
            alive[match[1]] = match[1]
            if sized := _ALLOCATED.match(line):
                wrapper.sizes[match[1]] = int(sized[2])
        elif (match := _ALIAS.match(line)) and match[2] in alive:
            alive[match[1]] = alive[match[2]]
            alive.pop(match[3], None)
        elif match := _DELETED.match(line):
            alive.pop(match[1], None)
        elif match := _LAUNCH.match(line):
            names = tuple(name.strip() for name in match[2].split(",") if re.fullmatch(r"\s*[a-z_]\w*\s*", name))
            where = streams[-1][1] if streams else ""
            wrapper.launches.append(WrapperLaunch(match[1], names, tuple(map(alive.get, names)), where))
    wrapper.leftover = [name for name in alive if name.startswith("workspace")]
    return wrapper


def _workspaces(launch: WrapperLaunch) -> list[str | None]:
    pairs = zip(launch.names, launch.allocations, strict=True)
    return [allocation for name, allocation in pairs if name.startswith("workspace")]


def check_workspaces(module: str, *, launches: int, programs: int, descriptors: int) -> list[Verdict]:
    """Of ``launches`` kernels of a template each gets one workspace. All get the same allocation, which has room for
    the ``descriptors`` of each of the ``programs``, is none of their other arguments, and is freed."""
    wrapper = wrapper_of(module)
    templates = [launch for launch in wrapper.launches if launch.kernel.startswith("triton_tem_")]
    used = [_workspaces(launch) for launch in templates]
    shared = {allocation for workspaces in used for allocation in workspaces}
    size = programs * descriptors * DESCRIPTOR_BYTES
    sizes = [wrapper.sizes.get(str(allocation)) for allocation in shared]
    twice = [
        launch.kernel
        for launch, workspaces in zip(templates, used, strict=True)
        if any(launch.allocations.count(allocation) > 1 for allocation in _known(workspaces))
    ]
    return [
        Verdict("launches", len(templates) == launches, f"{len(templates)} of templates, {launches} required"),
        Verdict("one each", all(len(workspaces) == 1 for workspaces in used), f"{used}"),
        Verdict("alive", None not in shared, f"{used}: each must be allocated and not deleted"),
        Verdict("reused", len(shared) == 1, f"{len(shared)} allocations, 1 required"),
        Verdict("size", sizes == [size], f"{sizes} bytes, {size} required"),
        Verdict("apart", not twice, f"{', '.join(twice) or 'no kernel'} gets its workspace as another argument"),
        Verdict("freed", not wrapper.leftover, ", ".join(wrapper.leftover) or "all"),
    ]


def check_streams(module: str, streams: Sequence[str]) -> list[Verdict]:
    """Checks that kernels run on these ``streams``, and that no kernel on another stream is given what one of them may
    write. Waits between streams are not looked for."""
    wrapper = wrapper_of(module)
    used = list(dict.fromkeys(launch.stream for launch in wrapper.launches))
    users: dict[str, set[str]] = {}
    for launch in wrapper.launches:
        for allocation in _known(launch.allocations):
            users.setdefault(allocation, set()).add(launch.stream)
    shared = [f"{allocation}: {', '.join(sorted(names))}" for allocation, names in users.items() if len(names) > 1]
    return [
        Verdict("streams", used == list(streams), f"{used}, {list(streams)} required"),
        Verdict("not shared", not shared, f"shared between streams: {'; '.join(shared) or 'nothing'}"),
    ]


def _known(allocations: Iterable[str | None]) -> list[str]:
    return [allocation for allocation in allocations if allocation is not None]


#: The buffer that a computed operand of the first product is.
_OPERAND = "buf0"


def _strides_read(source: str) -> tuple[int, ...]:
    """Returns the strides of the rows and the columns of a template's first operand, by the index of its load."""
    index = re.search(r"xindex = (.*)\n *a = tl\.load\(A \+", source)
    factors = [re.search(rf"(?:(\d+)\*)?\b{name}\b", index[1] if index else "") for name in ("idx_m", "idx_n")]
    return tuple(int(factor[1] or 1) for factor in factors if factor is not None)


def check_layout(generated: Generated, *, strides: Sequence[int], library: bool, epilogue: bool) -> list[Verdict]:
    """``Decision.LAYOUTS_ARE_WATCHED``: the layout of the computed operand is fixed once, and so it is allocated. It is
    what the template reads, which has the epilogue in it, or a ``library``'s kernel reads it and the epilogue follows.
    """
    module, required = generated.modules[-1], tuple(strides)
    notes = [note for note in generated.notes if note["buffer"] == _OPERAND]
    changes = [note["strides"] for note in notes if note["flexible"]]
    allocated = re.search(rf"{_OPERAND} = empty_strided_cuda\(\([\d, ]+\), \((\d+), (\d+)\)", module)
    at = tuple(map(int, allocated.groups())) if allocated else None
    read = [_strides_read(kernel.source) for kernel in generated.kernels if kernel.kind == "template"]
    names = [name for name in launched(module) if not name.startswith("triton_tem_")]
    calls, steps = extern_calls(module), 2 if library and epilogue else 1
    return [
        Verdict("fixed once", changes == [required], f"{changes}, once {required} required"),
        Verdict("not changed", {note["strides"] for note in notes} <= {required}, f"{notes}"),
        Verdict("allocated", at == required, f"{at}, {required} required"),
        Verdict("read", read == ([] if library else [required]), f"{read} by templates, {required} required"),
        Verdict("library", calls == (["mm"] if library else []), f"{calls}"),
        Verdict("steps", len(names) == steps, f"{', '.join(names)}: {steps} in addition to the product required"),
    ]
