"""A captured launch: its grid is read from the driver, the graph runs, and whatever cannot be captured has not run."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from conformance.execution.device import executor as device_module
from conformance.execution.device.executor import DeviceExecutor
from conformance.execution.device.grid_capture import FUNCTIONS, KERNEL_NODE, CaptureError, GridCapture
from conformance.kernels.launch import Launch

MEMSET_NODE = 2


class Driver:
    """A driver that captured ``nodes``, pairs of a kind and a grid, of the kernel ``name``; ``fails`` names a function
    that returns an error. ``called`` lists what was called."""

    def __init__(self, nodes=((KERNEL_NODE, (5, 3, 2)),), name="copy", fails=None):
        self.nodes, self.name, self.fails, self.called = nodes, name, fails, []

    def __getattr__(self, function):
        if function not in (*FUNCTIONS, "cuFuncGetName"):
            raise AttributeError(function)

        def call(*arguments):
            self.called.append(function)
            return 900 if function == self.fails else getattr(self, f"_{function}", lambda *_: 0)(*arguments)

        return call

    def _cuStreamEndCapture(self, stream, graph):
        graph._obj.value = 77
        return 0

    def _cuGraphGetNodes(self, graph, nodes, count):
        count._obj.value = len(self.nodes)
        if nodes is not None:
            nodes[:] = range(1, len(self.nodes) + 1)
        return 0

    def _cuGraphNodeGetType(self, node, kind):
        kind._obj.value = self.nodes[node.value - 1][0]
        return 0

    def _cuGraphKernelNodeGetParams(self, node, parameters):
        parameters._obj.func = 9
        parameters._obj.grid = (ctypes.c_uint * 3)(*self.nodes[node.value - 1][1])
        return 0

    def _cuFuncGetName(self, name, function):
        name._obj.value = self.name.encode()
        return 0


@pytest.fixture(autouse=True)
def _streams(monkeypatch):
    """Streams where there is no GPU."""
    stream = SimpleNamespace(cuda_stream=11)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(cuda_stream=12))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda side: torch.no_grad())


def captured(driver, launch=lambda: "compiled"):
    return GridCapture(torch.device("cuda", 0), driver).run("copy", launch)


def test_the_grid_is_the_drivers_and_the_graph_runs():
    driver = Driver()
    assert captured(driver) == ("compiled", (5, 3, 2))
    order = [function for function in driver.called if function.startswith(("cuStream", "cuGraphLaunch"))]
    assert order == ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphLaunch"]
    assert driver.called[-2:] == ["cuGraphExecDestroy", "cuGraphDestroy"]


def test_what_is_not_a_kernel_has_no_grid():
    assert captured(Driver(((MEMSET_NODE, ()), (KERNEL_NODE, (7, 1, 1)))))[1] == (7, 1, 1)


@pytest.mark.parametrize(
    ("driver", "text"),
    [
        (Driver(((KERNEL_NODE, (5, 1, 1)),) * 2), r"\['copy', 'copy'\], copy alone"),
        (Driver(()), r"kernels \[\], copy alone"),
        (Driver(name="other"), r"\['other'\], copy alone"),
        *((Driver(fails=name), f"{name} gave the driver's error 900") for name in FUNCTIONS[:2]),
        *((Driver(fails=name), f"{name} gave the driver's error 900") for name in FUNCTIONS[3:-1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_one_kernel_is_not_run(driver, text):
    with pytest.raises(CaptureError, match=text):
        captured(driver)
    assert "cuGraphLaunch" not in driver.called or driver.fails == "cuGraphLaunch"


def test_a_launch_that_fails_ends_the_capture():
    def launch():
        raise RuntimeError("no such kernel")

    driver = Driver()
    with pytest.raises(CaptureError, match="cannot be captured: no such kernel"):
        captured(driver, launch)
    assert driver.called == ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphDestroy"]


def test_a_driver_that_lacks_a_function_captures_nothing():
    with pytest.raises(CaptureError, match="cuGraphLaunch"):
        GridCapture(torch.device("cuda", 0), SimpleNamespace(**dict.fromkeys(FUNCTIONS[:-2])))


@pytest.fixture
def executor(monkeypatch):
    """An executor whose device is pretended, with a profiler that sees a grid of its own."""
    executor = object.__new__(DeviceExecutor)
    executor.device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: None)
    monkeypatch.setattr(DeviceExecutor, "_profile", lambda self: torch.no_grad())
    event = {"name": "copy", "args": {"grid": [4, 1, 1]}}
    monkeypatch.setattr(device_module, "kernel_events", lambda profiler: [event])
    return executor


class Function:
    """Stands for a jitted function; ``launched`` counts."""

    fn = SimpleNamespace(__name__="copy")
    launched = 0

    def __getitem__(self, grid):
        def launch(**arguments):
            self.launched += 1
            return "compiled"

        return launch


@pytest.mark.parametrize(
    ("driver", "grid", "launches"), [(Driver(), (5, 3), 1), (Driver(fails="cuGraphInstantiateWithFlags"), (4, 1), 2)]
)
def test_the_profiler_observes_what_cannot_be_captured(executor, driver, grid, launches):
    executor.__dict__["_capture"] = GridCapture(executor.device, driver)
    function = Function()
    ran = executor.run(Launch(function, (4, 1), {}), observe=True)
    assert (ran.grid, ran.compiled, function.launched) == (grid, "compiled", launches)


def test_the_profiler_observes_where_there_is_no_such_driver(executor, monkeypatch):
    def refuse(device):
        raise CaptureError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(device_module, "GridCapture", refuse)
    assert executor.run(Launch(Function(), (4, 1), {}), observe=True).grid == (4, 1)
