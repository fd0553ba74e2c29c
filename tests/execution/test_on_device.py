"""On an accelerator: the observed grid is the profiler's, and the device judges as the CPU does."""

from dataclasses import fields

import pytest
import torch

from conformance import targets
from conformance.execution.fill_groups import fills_at_once, group_of
from conformance.execution.trial import place, trial
from conformance.inputs import fills as fills_module
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable
from conformance.numerics.rounding import bits
from tests.planted import table

pytestmark = pytest.mark.skipif(not table.has_device(), reason="runs kernels on an accelerator, and there is none")


@pytest.fixture(scope="module")
def executor():
    from conformance.execution.device import DeviceExecutor

    return DeviceExecutor()


def example(name):
    """A plan of the kernel's example, with the first of its configs that the device takes."""
    kernel, target = catalogue.get(name), targets.devices()[0]
    for config in kernel.configs:
        try:
            problem = kernel.example(kernel.dtypes[0], config)
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
    if judged.model is not None and judged.model.known.proven:
        counts = [verdict.details.get("other_bits") for verdict in judged.verdicts if "/randn" in verdict.check]
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
    tensors = [limits.exact, limits.bounded, *([] if limits.wanted is None else [limits.wanted]), *parts]
    return [tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor for tensor in tensors]
