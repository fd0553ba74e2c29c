"""On a device whose tensor core is proven, the bits alone show a changed order; elsewhere the faults can be planted."""

import ast

import pytest

from conformance import targets
from conformance.execution.trial.fill_groups import unit_model
from conformance.execution.trial.trial import trial
from conformance.kernels import catalogue
from tests.planted import table
from tests.planted.order_faults import FAULTS
from tests.planted.planted_kernels import edited, planted


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_can_be_planted(fault):
    for text in edited(fault).values():
        ast.parse(text)


@pytest.mark.skipif(not table.has_device(), reason="runs kernels on an accelerator, and there is none")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_only_the_bits_show_it(fault):
    from conformance.execution.device.executor import DeviceExecutor

    executor, case, target = DeviceExecutor(), fault.case, targets.devices()[0]
    kernel = catalogue.get(case.kernel)
    plan = kernel.plan(case.problem, case.config, target, case.variant)
    model = unit_model(kernel, plan, kernel.contract(plan, executor.name), executor)
    if model is None or not model.unit.proven:
        pytest.skip(f"the tensor core of {target.id} is not proven")
    right = trial(kernel, plan, executor, compare=True)
    assert right.passed, right.verdicts
    with planted(fault) as changed:
        wrong = trial(changed, plan, executor, compare=True)
    failed = [verdict for verdict in wrong.verdicts if not verdict.passed]
    assert failed
    assert all("within the bound, but with other bits" in verdict.text for verdict in failed), failed
    assert fault.cause in wrong.diagnosis
