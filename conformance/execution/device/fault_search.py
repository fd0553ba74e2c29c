"""Finds the operand outside which a launch reads or writes: runs it again in another process, with one operand at an
edge at a time.

A fault costs the process its device, and the driver does not tell the address. So a new process makes the launch with
every operand in guarded memory, which has room around it. Then it puts one operand after another at an unmapped page,
until the fault is there again. The work is bounded: each fill once, and two launches for each operand.

The process that has the device for it may lose the device at no cost to others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from conformance.execution.compile.compilation import GRACE_SECONDS, fork_server
from conformance.execution.compile.fork_server import ForkedProcess
from conformance.execution.device.page_edges import Edge, NoEdge, slack, workspace_operand
from conformance.execution.trial.fill_groups import fills_for
from conformance.execution.trial.trial import fills_at_edges, place
from conformance.inputs.fills import applicable_fills
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Kernel, Plan
from conformance.kernels.launch import Launch, workspaces_from
from conformance.machine.device_state import device_fault
from conformance.problems import Operand
from conformance.records import Check, CheckKind, ExecutorName, Verdict

if TYPE_CHECKING:
    from conformance.execution.device.executor import DeviceExecutor


#: Seconds within which a process must have the device.
PROCESS_DEADLINE = 180.0
#: What the process says when it has the device.
READY = "ready"


@contextlib.contextmanager
def device_process(function: str, what: str, **arguments: Any) -> Iterator[Connection]:
    """A connection to a new process that calls ``function`` ("package.module:function") with the descriptor of its end
    and ``arguments``, plain data. That function calls :func:`device_for` first. The process ends with the block.

    Raises RuntimeError that names ``what`` if it does not get the device within :data:`DEADLINE` seconds, and
    :class:`~conformance.execution.compile.fork_server.ForkServerLost` if no process can be started.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryFile() as output, ours:
        with theirs:
            process = fork_server(()).fork(function, arguments, (theirs.fileno(),), output.fileno(), dict(os.environ))
        try:
            _await_device(ours, process, output, what)
            yield ours
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _await_device(pipe: Connection, process: ForkedProcess, output: IO[bytes], what: str) -> None:
    with contextlib.suppress(EOFError, OSError):
        if pipe.poll(PROCESS_DEADLINE) and pipe.recv() == READY:
            return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)  # it writes why before it ends
    output.seek(0)
    written = output.read().decode(errors="replace").strip()
    raise RuntimeError(f"the process of {what} did not get the device: {written}")


def device_for(pipe: int) -> tuple[Connection, DeviceExecutor]:
    """In the new process: the connection to who asked for it, and the device."""
    import torch

    from conformance.execution.device.executor import DeviceExecutor

    asker, executor = Connection(pipe), DeviceExecutor()
    torch.accelerator.synchronize(executor.device)
    asker.send(READY)
    return asker, executor


#: Seconds without word from the process after which it is given up.
DEADLINE = 120.0
#: What the process runs.
SEARCH = "conformance.execution.device.fault_search:search"


def workspace_name(number: int) -> str:
    """Returns the name of the workspace of this number in verdicts."""
    return f"workspace {number}"


@dataclass(frozen=True)
class EdgeLaunch:
    """One launch of the search: of ``fill``, with ``operand``, or the workspace of this number, alone at ``edge``.
    Without either all of them are there, and without an edge none is. ``mapped`` bytes lie between it and the edge."""

    fill: str
    edge: Edge | None = None
    operand: str | None = None
    workspace: int | None = None
    mapped: int = 0

    @property
    def subject(self) -> str | None:
        """Returns the operand or workspace that lies alone at the edge."""
        return self.operand if self.workspace is None else workspace_name(self.workspace)


@dataclass(frozen=True)
class Ended:
    """The end of the search: with the ``error`` that a launch raised, and whether it is a ``fault`` of the device."""

    error: str = ""
    fault: bool = False


@dataclass(frozen=True)
class DeviceFault:
    """The known facts of a launch that cost its process the device; ``named``: ``verdict`` tells the cause."""

    verdict: Verdict
    named: bool


def fault_of(kernel: Kernel | None, plan: Plan, names: Sequence[str] | None, seed: int, error: str) -> DeviceFault:
    """Repeats the launch of ``plan`` in another process and returns the fault that it finds. It ended in the ``error``
    of the device while the fills ``names`` (None: all) ran. Nothing is asked of the device of this process. Without a
    ``kernel`` of the catalogue no operand is named."""
    first_line = error.split("\n", 1)[0]
    if kernel is None:
        return _unnamed(first_line, "no other process has this compiled function")
    fills = applicable_fills(plan.problem, kernel.contract(plan, ExecutorName.DEVICE), names)
    try:
        seen, last = _searched(plan, fills, seed)
    except (RuntimeError, OSError, EOFError) as failure:
        return _unnamed(first_line, f"the search for the operand failed: {failure}")
    if not seen or last is None:
        return _unnamed(first_line, "the same launches in a process of their own had no fault")
    return DeviceFault(_verdict(plan, last, first_line), named=last.subject is not None or last.edge is None)


def _unnamed(error: str, why: str) -> DeviceFault:
    text = f"{error}, in guarded memory or with operands at unmapped pages; no operand is named: {why}"
    return DeviceFault(Verdict(str(Check(CheckKind.MEMORY)), False, text, {"operand": None}), named=False)


def _verdict(plan: Plan, last: EdgeLaunch, error: str) -> Verdict:
    check = str(Check(CheckKind.MEMORY, last.fill))
    if last.edge is None:
        text = f"{error}: an address far from every operand, which all lie in guarded memory"
        return Verdict(check, False, text, {"operand": None})
    where = last.edge.value
    if last.subject is None:
        text = f"{error}: only with every operand at an unmapped page {where}, with no operand alone there"
        return Verdict(check, False, text, {"operand": None, "edge": last.edge.name.lower()})
    text = (
        f"{error}: the kernel reads or writes {where} of {last.subject!r}, more than {last.mapped} bytes from it. With "
        "that alone at an unmapped page it faults, with everything in guarded memory it does not"
    )
    return Verdict(check, False, text, {"operand": last.subject, "edge": last.edge.name.lower()})


def _searched(plan: Plan, fills: Sequence[str], seed: int) -> tuple[bool, EdgeLaunch | None]:
    """Returns True if a launch in a new process has a fault, and the last launch that it began."""
    last: EdgeLaunch | None = None
    with device_process(SEARCH, "the search for an operand", seed=seed) as process:
        process.send((plan, tuple(fills)))
        while True:
            try:
                if not process.poll(DEADLINE):
                    return True, last
                answer: Any = process.recv()
            except (EOFError, OSError):
                return True, last
            if isinstance(answer, Ended):
                if answer.error and not answer.fault:
                    raise RuntimeError(answer.error)
                return answer.fault, last
            last = answer


def search(pipe: int, *, seed: int) -> None:
    """The main function of the process: receives a plan and the names of its fills, and reports each launch that it
    begins."""
    asker, executor = device_for(pipe)
    plan, fills = asker.recv()
    asker.send(EdgeSearch(executor, plan, fills, seed).run(asker.send))


def launches(
    plan: Plan, fills: Sequence[str], at_edges: Mapping[Edge, str], workspaces: Sequence[Operand]
) -> Iterator[EdgeLaunch]:
    """The launches of a search in their order; ``at_edges`` are the fills whose operands were at the edges. After the
    first one ``workspaces`` has those of a launch."""
    yield from (EdgeLaunch(fill) for fill in at_edges.values())
    for operand in plan.problem.tensors:
        yield from (
            EdgeLaunch(fill, edge, operand.name, mapped=slack(operand, edge)) for edge, fill in at_edges.items()
        )
    for number, workspace in enumerate(workspaces):
        for edge, fill in at_edges.items():
            yield EdgeLaunch(fill, edge, workspace=number, mapped=slack(workspace, edge))
    yield from (EdgeLaunch(fill) for fill in fills if fill not in at_edges.values())
    yield from (EdgeLaunch(fill, edge) for edge, fill in at_edges.items())


class EdgeSearch:
    """The launches of ``plan`` over the ``fills`` of these names and ``seed``, on ``executor``."""

    def __init__(self, executor: DeviceExecutor, plan: Plan, fills: Sequence[str], seed: int) -> None:
        self._executor, self._plan, self._kernel = executor, plan, get(plan.kernel)
        contract = self._kernel.contract(plan, executor.name)
        self._fills = {fill.name: fill for fill in fills_for(plan.problem, contract, seed, fills)}
        self._workspaces: list[Operand] = []

    def run(self, begin: Callable[[EdgeLaunch], None]) -> Ended:
        """Launches until the device has an error, each after a call of ``begin``; how that ends."""
        names = list(self._fills)
        at_edges = {edge: names[number] for number, edge in fills_at_edges(list(self._fills.values())).items()}
        for placed in launches(self._plan, names, at_edges, self._workspaces):
            try:
                launch = self._launch(placed)
                begin(placed)
                self._executor.run(launch)
            except NoEdge:
                continue
            except Exception as error:  # whatever the device makes of it
                return Ended(f"{type(error).__name__}: {error}", device_fault() is not None)
        return Ended()

    def _launch(self, placed: EdgeLaunch) -> Launch:
        """Raises NoEdge if nothing can lie where it is to be."""
        problem, device, edges = self._plan.problem, self._executor.device, self._executor.page_edges
        inputs = {name: values.to(device) for name, values in self._fills[placed.fill].inputs.items()}
        views = {name: one.view for name, one in place(problem, inputs, 0, device).items()}
        if placed.edge is not None:
            if isinstance(edges, NoEdge):
                raise edges
            at_edge = edges.views(problem, views, placed.edge)
            views |= {name: view for name, view in at_edge.items() if placed.subject in (None, name)}
        workspaces: list[Operand] = []

        def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            name = workspace_name(len(workspaces))
            workspaces.append(workspace_operand(shape, dtype))
            if placed.edge is None or isinstance(edges, NoEdge) or placed.subject not in (None, name):
                return torch.empty(shape, dtype=dtype, device=device)
            return edges.workspace(shape, dtype, placed.edge)

        with workspaces_from(allocate):
            launch = self._kernel.launch(self._plan, views)
        self._workspaces[:] = self._workspaces or workspaces
        return launch
