"""The operand next to which a launch reads is named. Here pages of the host are protected; a fault ends a process."""

import dataclasses
import re
from multiprocessing.connection import Connection

import pytest
import torch

from conformance.execution.device import fault_search
from conformance.execution.device.fault_search import READY, EdgeLaunch, EdgeSearch, Ended, fault_of, launches
from conformance.execution.device.page_edges import Edge, slack, workspace_operand
from conformance.kernels.launch import workspace
from tests.execution.protected_memory import EdgeExecutor
from tests.execution.test_trial import KERNEL, PLAN, PROBLEM

ERROR = "AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ..."


def search(pipe, *, seed):
    """Runs in the process: the search over protected memory, with the fault that comes first."""
    asker = Connection(pipe)
    asker.send(READY)
    plan, fills, beside = *asker.recv(), FAULTS[seed]
    if "second" in beside:
        fault_search.get = lambda name: WithWorkspace()
    asker.send(EdgeSearch(EdgeExecutor(beside), plan, fills, seed).run(asker.send))


class WithWorkspace:
    """The kernel, whose launch also has two workspaces of five elements."""

    contract = staticmethod(KERNEL.contract)

    def launch(self, plan, tensors):
        launch = KERNEL.launch(plan, tensors)
        more = {name: workspace((5,), torch.float32, tensors["a"]) for name in ("first", "second")}
        return dataclasses.replace(launch, arguments={**launch.arguments, **more})


#: By seed, the arguments next to which a launch reads, and how far.
FAULTS = [
    {},
    {"a_ptr": 64},
    {"b_ptr": 64},
    {"c_ptr": 64},
    {"a_ptr": -64},
    {"b_ptr": 8, "a_ptr": -1},
    {"c_ptr": -(1 << 45)},
    {"second": 20},
]


@pytest.fixture(autouse=True)
def _on_host(monkeypatch):
    monkeypatch.setattr(fault_search, "SEARCH", f"{__name__}:search")
    monkeypatch.setattr(fault_search, "DEADLINE", 60.0)


def found(seed):
    return fault_of(KERNEL, PLAN, ("transparent", "randn"), seed, ERROR)


@pytest.mark.parametrize(
    ("seed", "operand", "edge"),
    [(1, "a", Edge.END), (2, "b", Edge.END), (3, "out", Edge.END), (4, "a", Edge.BEGIN), (5, "a", Edge.BEGIN)],
)
def test_the_operand_and_the_side_are_named(seed, operand, edge):
    fault = found(seed)
    assert fault.named
    fill = "transparent" if edge is Edge.END else "randn"
    assert (fault.verdict.check, fault.verdict.passed) == (f"memory/{fill}", False)
    assert fault.verdict.details == {"operand": operand, "edge": edge.name.lower()}
    start = "AcceleratorError: CUDA error: an illegal memory access was encountered: the kernel reads or writes "
    assert re.match(
        re.escape(f"{start}{edge.value} of {operand!r}, more than ") + r"\d+ bytes from it", fault.verdict.text
    )


def test_a_workspace_is_named_by_its_number():
    fault = found(7)
    assert fault.named
    assert fault.verdict.details == {"operand": "workspace 1", "edge": "end"}
    assert "behind the last element of 'workspace 1', more than 12 bytes from it" in fault.verdict.text


def test_an_address_far_from_every_operand_is_told_from_one_beside_it():
    fault = found(6)
    assert fault.named
    assert "an address far from every operand" in fault.verdict.text


def test_a_fault_that_does_not_come_again_names_nothing():
    fault = found(0)
    assert not fault.named
    assert fault.verdict.check == "memory"
    assert "the same launches in a process of their own had no fault" in fault.verdict.text


def test_an_error_that_is_no_fault_of_the_device_names_nothing(monkeypatch):
    monkeypatch.setattr(fault_search, "_searched", lambda *arguments: (_ for _ in ()).throw(RuntimeError("no device")))
    fault = found(1)
    assert not fault.named
    assert "the search for the operand failed: no device" in fault.verdict.text


def test_a_compiled_function_is_not_searched():
    fault = fault_of(None, PLAN, None, 0, ERROR)
    assert not fault.named
    assert "no other process has this compiled function" in fault.verdict.text


def test_the_work_of_a_search_is_bounded():
    workspaces = [workspace_operand((3, 5), torch.float32)]
    at_edges = {Edge.BEGIN: "wide-A", Edge.END: "transparent"}
    planned = list(launches(PLAN, ("transparent", "wide-A", "randn"), at_edges, workspaces))
    assert planned[:2] == [EdgeLaunch("wide-A"), EdgeLaunch("transparent")]
    assert EdgeLaunch("transparent", Edge.END, "a", mapped=slack(PROBLEM.operand("a"), Edge.END)) in planned
    assert EdgeLaunch("transparent", Edge.END, workspace=0, mapped=4) in planned
    assert len(planned) == 3 + 2 * len(PROBLEM.tensors) + 2 * len(workspaces) + 2


def test_a_search_ends_at_the_first_error_and_says_whether_it_is_the_devices(monkeypatch):
    class Broken(EdgeExecutor):
        def run(self, launch, programs=None, *, observe=False):
            raise RuntimeError("an illegal memory access was encountered")

    said = []
    for fault in (None, "sticky"):
        monkeypatch.setattr(fault_search, "device_fault", lambda fault=fault: fault)
        ended = EdgeSearch(Broken(), PLAN, ("transparent",), 0).run(said.append)
        assert ended == Ended("RuntimeError: an illegal memory access was encountered", fault is not None)
    assert said == [EdgeLaunch("transparent")] * 2
