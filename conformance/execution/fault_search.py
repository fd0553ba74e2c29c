"""Which operand a launch reads or writes beside: it runs again elsewhere, with one operand at an edge at a time.

A fault costs the process its device, and the driver does not tell the address. So a new process makes the launch with
every operand in guarded memory, which has room around it, then with one of them at an unmapped page, one after another,
until the fault is there again. The work is bounded: each fill once, and two launches for each operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from conformance.execution.device_process import device_for, device_process
from conformance.execution.page_edges import Edge, NoEdge, slack
from conformance.inputs.fills import applicable_fills
from conformance.kernels.kernel import Kernel, Plan
from conformance.machine.device_fault import device_fault
from conformance.records import Check, CheckKind, ExecutorName, Verdict

if TYPE_CHECKING:
    from conformance.execution.device import DeviceExecutor

#: Seconds without word from the process after which it is given up.
DEADLINE = 120.0
#: What the process runs.
SEARCH = "conformance.execution.fault_search:search"


@dataclass(frozen=True)
class Placed:
    """One launch of the search: of ``fill``, with ``operand`` alone at ``edge``. Without an operand all of them are
    there, and without an edge none is."""

    fill: str
    edge: Edge | None = None
    operand: str | None = None


@dataclass(frozen=True)
class Ended:
    """The end of the search: with the ``error`` that a launch raised, and whether it is a ``fault`` of the device."""

    error: str = ""
    fault: bool = False


@dataclass(frozen=True)
class DeviceFault:
    """What is known of a launch that cost its process the device; ``named``: ``verdict`` tells the cause."""

    verdict: Verdict
    named: bool


def fault_of(kernel: Kernel | None, plan: Plan, names: Sequence[str] | None, seed: int, error: str) -> DeviceFault:
    """What became of the launch of ``plan``, as another process finds out. It ended in the ``error`` of the device
    while the fills ``names`` (None: all) ran. Nothing is asked of the device of this process. Without a ``kernel`` of
    the catalogue no operand is named."""
    said = error.split("\n", 1)[0]
    if kernel is None:
        return _unnamed(said, "no other process has this compiled function")
    fills = applicable_fills(plan.problem, kernel.contract(plan, ExecutorName.DEVICE), names)
    try:
        seen, last = _searched(plan, fills, seed)
    except (RuntimeError, OSError, EOFError) as failure:
        return _unnamed(said, f"the search for the operand failed: {failure}")
    if not seen or last is None:
        return _unnamed(said, "the same launches in a process of their own had no fault")
    return DeviceFault(_verdict(plan, last, said), named=last.operand is not None or last.edge is None)


def _unnamed(error: str, why: str) -> DeviceFault:
    text = f"{error}, in guarded memory or with operands at unmapped pages; no operand is named: {why}"
    return DeviceFault(Verdict(str(Check(CheckKind.MEMORY)), False, text, {"operand": None}), named=False)


def _verdict(plan: Plan, last: Placed, error: str) -> Verdict:
    check = str(Check(CheckKind.MEMORY, last.fill))
    if last.edge is None:
        text = f"{error}: an address far from every operand, which all lie in guarded memory"
        return Verdict(check, False, text, {"operand": None})
    where = last.edge.value
    if last.operand is None:
        text = f"{error}: only with every operand at an unmapped page {where}, with no operand alone there"
        return Verdict(check, False, text, {"operand": None, "edge": last.edge.name.lower()})
    mapped = slack(plan.problem.operand(last.operand), last.edge)
    text = (
        f"{error}: the kernel reads or writes {where} of {last.operand!r}, more than {mapped} bytes from it. With that "
        "operand alone at an unmapped page it faults, with all in guarded memory it does not"
    )
    return Verdict(check, False, text, {"operand": last.operand, "edge": last.edge.name.lower()})


def _searched(plan: Plan, fills: Sequence[str], seed: int) -> tuple[bool, Placed | None]:
    """Whether a launch in a new process has a fault, and the last one that it began."""
    last: Placed | None = None
    with device_process(SEARCH, DEADLINE, "the search for an operand", seed=seed) as process:
        process.send((plan, tuple(fills)))
        while True:
            try:
                if not process.poll(DEADLINE):
                    return True, last
                said: Any = process.recv()
            except (EOFError, OSError):
                return True, last
            if isinstance(said, Ended):
                if said.error and not said.fault:
                    raise RuntimeError(said.error)
                return said.fault, last
            last = said


def search(pipe: int, *, seed: int) -> None:
    """What the process runs: receives a plan and the names of its fills, and says of each launch that it begins."""
    asker, executor = device_for(pipe)
    plan, fills = asker.recv()
    asker.send(_first_fault(asker, executor, plan, fills, seed))


def launches(plan: Plan, fills: Sequence[str], edge_fill: str) -> Iterator[Placed]:
    """The launches of a search in their order; ``edge_fill`` is the fill whose operands were at the edges."""
    yield Placed(edge_fill)
    for operand in plan.problem.tensors:
        for edge in Edge:
            yield Placed(edge_fill, edge, operand.name)
    yield from (Placed(fill) for fill in fills if fill != edge_fill)
    yield from (Placed(edge_fill, edge) for edge in Edge)


def _first_fault(asker: Connection, executor: DeviceExecutor, plan: Plan, names: Sequence[str], seed: int) -> Ended:
    """Launches until the device has an error; how that ends."""
    from conformance.execution.fill_groups import fills_for
    from conformance.execution.trial import edge_fill, place
    from conformance.kernels.catalogue import get

    kernel = get(plan.kernel)
    problem, contract = plan.problem, kernel.contract(plan, executor.name)
    fills = {fill.name: fill for fill in fills_for(problem, contract, seed, names)}
    edges = executor.page_edges
    chosen = list(fills)[edge_fill(list(fills.values()))]
    for placed in launches(plan, names, chosen):
        if placed.edge is not None and isinstance(edges, NoEdge):
            continue
        try:
            inputs = {name: values.to(executor.device) for name, values in fills[placed.fill].inputs.items()}
            roomy = {name: one.view for name, one in place(problem, inputs, 0, executor.device).items()}
            views = roomy
            if placed.edge is not None and not isinstance(edges, NoEdge):
                at_edge = edges.views(problem, roomy, placed.edge)
                wanted = at_edge if placed.operand is None else [placed.operand]
                views = {**roomy, **{name: at_edge[name] for name in wanted}}
            asker.send(placed)
            executor.run(kernel.launch(plan, views))
        except NoEdge:
            continue
        except Exception as error:  # whatever the device makes of it
            return Ended(f"{type(error).__name__}: {error}", device_fault() is not None)
    return Ended()
