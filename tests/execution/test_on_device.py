"""On an accelerator: the observed grid is the profiler's, and the device judges as the CPU does."""

import functools
from dataclasses import fields

import pytest
import torch

from conformance import targets
from conformance.execution.device import fault_search
from conformance.execution.device.fault_search import EdgeSearch, device_for, fault_of
from conformance.execution.trial.fill_groups import fills_at_once, group_of
from conformance.execution.trial.repeated_trials import second_stream, stressed
from conformance.execution.trial.trial import place, trial
from conformance.inputs import fills as fills_module
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable
from conformance.numerics.rounding import bits
from tests.execution.sample_kernels import sum_by_atomics
from tests.planted import cases, table
from tests.planted.cases import Edit, Fault
from tests.planted.planted_kernels import planted
from tests.planted.test_unmasked_reads import masked_loads

pytestmark = pytest.mark.skipif(not table.has_device(), reason="runs kernels on an accelerator, and there is none")


@pytest.fixture(scope="module")
def executor():
    from conformance.execution.device.executor import DeviceExecutor

    return DeviceExecutor()


def example(name):
    """A plan of the kernel's example, with the first of its configs that the device takes."""
    kernel, target = catalogue.get(name), targets.devices()[0]
    for config in kernel.configs:
        try:
            problem = kernel.example(kernel.dtype_names()[0], config)
            return kernel, kernel.plan(problem, config, target, kernel.example_variant())
        except NotApplicable:
            continue
    pytest.skip(f"{name} has no example for {target.id}")


@pytest.mark.parametrize("name", catalogue.catalogue())
def test_the_observed_grid_is_the_profilers(executor, name, monkeypatch):
    kernel, plan = example(name)
    (fill, *_) = fills_module.fills(plan.problem, kernel.contract(plan, executor.name))
    views = {key: tensor.view for key, tensor in place(plan.problem, fill.inputs, 0, executor.device).items()}
    executor.run(kernel.launch(plan, views))
    assert executor._capture is not None or torch.version.hip, "the driver captures no launch"
    captured = executor.run(kernel.launch(plan, views), observe=True)
    monkeypatch.setitem(executor.__dict__, "_capture", None)
    profiled = executor.run(kernel.launch(plan, views), observe=True)
    assert captured.grid == profiled.grid == plan.grid


@pytest.mark.parametrize("name", catalogue.catalogue())
def test_the_device_judges_as_the_cpu_does(executor, name):
    kernel, plan = example(name)
    assert fills_at_once(plan.problem)
    judged = trial(kernel, plan, executor, compare=True)
    assert judged.passed, judged.verdicts
    assert not judged.at_edges.startswith("none") or torch.version.hip, judged.at_edges
    if judged.model is not None and judged.model.unit.proven:
        counts = [verdict.details.get("other_bits") for verdict in judged.verdicts if verdict.check.endswith("/randn")]
        assert counts == [0]


@pytest.mark.parametrize("name", catalogue.catalogue())
def test_limits_that_the_device_computes_are_the_cpus(executor, name):
    kernel, plan = example(name)
    contract = kernel.contract(plan, executor.name)
    chosen = fills_module.fills(plan.problem, contract)
    there, here = (
        group_of(plan.problem, contract, chosen, torch.device(device)) for device in (executor.device, "cpu")
    )
    for output, limits in here.limits.items():
        for one, other in zip(tensors_of(there.limits[output]), tensors_of(limits), strict=True):
            assert one.device.type != "cpu"
            assert torch.equal(bits(one.cpu()), bits(other))


def tensors_of(limits):
    """Every tensor of the limits; a bool as a number."""
    parts = [] if limits.interval is None else [getattr(limits.interval, f.name) for f in fields(limits.interval)]
    tensors = [tensor for tensor in (limits.exact, limits.bounded, limits.right, *parts) if tensor is not None]
    return [tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor for tensor in tensors]


#: By number: the beginning of the name of a masked load, and what takes the place of the load (None: the load without
#: its mask). Then follow the case, and the operand and the edge that must be named.
BESIDE = [
    ("tiles.py: tl.load(a_tile, mask=a_mask & inside", None, cases.MM, "a", "end"),
    ("tiles.py: tl.load(b_tile, mask=b_mask & inside", None, cases.MM, "b", "end"),
    ("tiles.py: tl.load(bias,", None, cases.ADDMM, "bias", "end"),
    ("tiles.py: tl.load(scale_a_ptr", None, cases.SCALED, "scale_a", "end"),
    ("tiles.py: tl.load(scale_b_ptr", None, cases.SCALED, "scale_b", "end"),
    ("tiles.py: tl.load(scale_a_ptr", ("scale_a_ptr +", "scale_a_ptr - 16 +"), cases.SCALED, "scale_a", "begin"),
]


def fault_planted(number):
    """The fault of this number in :data:`BESIDE`."""
    name, change, case, *_ = BESIDE[number]
    (load,) = [load for load in masked_loads() if load.name.startswith(name)]
    new = load.new if change is None else load.old.replace(*change)
    return Fault(f"beside_{number}", Edit(f"device/{load.file}", load.old, new, load.count), case)


#: Made when this file is imported, so that a name which no load has fails on a machine without a device, too.
PLANTED = [fault_planted(number) for number in range(len(BESIDE))]


def search_planted(pipe, *, seed):
    """Runs in the process of the search: it looks for the fault that has the seed's number."""
    asker, device = device_for(pipe)
    plan, fills = asker.recv()
    with planted(PLANTED[seed]) as kernel:
        fault_search.get = lambda name: kernel
        asker.send(EdgeSearch(device, plan, fills, 0).run(asker.send))


@pytest.mark.parametrize("number", range(len(BESIDE)))
def test_a_read_beside_an_operand_is_named(monkeypatch, number):
    *_, case, operand, edge = BESIDE[number]
    monkeypatch.setattr(fault_search, "SEARCH", f"{__name__}:search_planted")
    kernel = catalogue.get(case.kernel)
    plan = kernel.plan(case.problem, case.config, targets.devices()[0], case.variant, unchecked=True)
    fault = fault_of(kernel, plan, None, number, "illegal memory access")
    assert fault.named, fault.verdict.text
    assert fault.verdict.details == {"operand": operand, "edge": edge}


def test_unordered_sums_beside_other_work_differ(executor):
    """Atomics in fp32 that no order is given to; sums of integers agree."""
    torch.manual_seed(0)
    values = torch.randn(2000, 128, device=executor.device)
    total = torch.zeros(1, device=executor.device)

    def add(terms):
        total.zero_()
        sum_by_atomics[(terms.shape[0],)](terms, total, terms.shape[1])

    for terms, agree in ((values, False), (values.round(), True)):
        with second_stream(executor.device, 0) as beside:
            verdict = stressed(functools.partial(add, terms), {"total": total}, beside)
        assert verdict.passed == agree, verdict.text
