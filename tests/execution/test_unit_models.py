"""A device whose sums are emulated: other bits within the bound fail where its unit is proven, and are said elsewhere.

The executor computes with the model itself in the order that a fault gives, so the bound sees nothing.
"""

import dataclasses

import pytest
import torch

from conformance import targets
from conformance.execution.trial import fill_groups
from conformance.execution.trial.fill_groups import Kept
from conformance.execution.trial.trial import trial
from conformance.families import unit_verdict
from conformance.families.gemm.problem import addmm, bmm, mm, scaled_mm
from conformance.families.unit_verdict import operand_name, unit_results
from conformance.heuristics.configs import Config
from conformance.inputs.fills import applicable_fills, fills
from conformance.kernels import catalogue
from conformance.kernels.kernel import Variant
from conformance.kernels.launch import Ran
from conformance.numerics import measured_units
from conformance.numerics.rounding import round_to
from conformance.numerics.sum_order import SumOrder
from conformance.records import ExecutorName

HOPPER, ADA = targets.find("sm_90"), targets.find("sm_89")
CONFIG = Config(64, 64, 32, 2, 4)
BOUNDED = ("randn", "hot")


@pytest.fixture(autouse=True)
def _no_groups_are_left(monkeypatch):
    monkeypatch.setattr(fill_groups, "GROUPS", Kept(1 << 20, lambda group: group.size))
    monkeypatch.setattr(fill_groups, "FILLS", Kept(1 << 20, lambda fill: fill.nbytes))


class EmulatedDevice:
    """Sums as the unit of the plan's target does, in ``order`` (None: the kernel's), over operands that ``change`` has
    changed; picks one of the allowed results for each element in turn."""

    name = ExecutorName.DEVICE
    on_device = True
    device = torch.device("cpu")

    def __init__(self, kernel, plan, order=None, change=None):
        self.kernel, self.plan = kernel, plan
        self.order = order or kernel.order(plan)
        self.change = change or (lambda inputs: inputs)

    def run(self, launch, programs=None, *, observe=False):
        problem = self.plan.problem
        keys = {operand.name: f"{operand.name}_ptr" for operand in problem.operands}
        inputs = {name: launch.arguments[key].reshape(problem.operand(name).shape) for name, key in keys.items()}
        unit = measured_units.known_unit(self.plan.target, self.order.instruction, operand_name(problem)).unit
        values = unit_results(problem.dense, self.order, unit, self.change(inputs))
        choices = torch.stack(values)
        pick = torch.arange(values[0].numel()).reshape(1, *values[0].shape) % len(values)
        out = round_to(choices.gather(0, pick)[0].double(), problem.output_dtype, overflow="saturate")
        launch.arguments["c_ptr"].copy_(out)
        return Ran(self.name, launch.grid, None, 0.0)


def judged(problem, target=HOPPER, variant=None, config=CONFIG, compare=False, kernel=None, names=BOUNDED, **fault):
    kernel = catalogue.get(kernel or problem.op)
    plan = kernel.plan(problem, config, target, variant or Variant())
    return trial(kernel, plan, EmulatedDevice(kernel, plan, **fault), names=names, compare=compare)


def verdict(result, fill):
    return next(v for v in result.verdicts if v.check == f"numerics/{fill}")


MM = mm(72, 80, 200, "fp16", out_dtype="fp32")
WHOLE = mm(72, 80, 192, "fp16", out_dtype="fp32")
FP8 = scaled_mm(72, 80, 320, "e4m3", out_dtype="fp32")
RIGHT = [
    MM,
    mm(72, 80, 200, "bf16"),
    mm(72, 80, 100, "fp32", precision="tf32"),
    addmm(72, 80, 100, "fp16", alpha=0.3, beta=0.7),
    bmm(40, 48, 64, "fp16"),
    FP8,
    scaled_mm(72, 80, 320, "e5m2", fast_accum=True),
]


@pytest.mark.parametrize("compare", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("problem", RIGHT, ids=lambda problem: problem.id)
def test_a_right_kernel_raises_no_alarm_and_every_element_is_said_to_have_its_bits(problem, compare):
    result = judged(problem, compare=compare)
    assert result.passed, result.verdicts
    for name in applicable_fills(problem, result.contract, BOUNDED):
        assert verdict(result, name).details["other_bits"] == 0
        assert verdict(result, name).text.endswith("elements; all have the bits that the tensor core makes")


def reordered(change):
    """Operands with their k in the order that ``change`` makes of a range."""

    def apply(inputs):
        index = torch.tensor(change(list(range(inputs["a"].shape[1]))))
        return {**inputs, "a": inputs["a"][:, index], "b": inputs["b"][index]}

    return apply


def with_a(change):
    return lambda inputs: {**inputs, "a": change(inputs["a"])}


def lowest_bit_cleared(values):
    return (values.view(torch.int16) & ~1).view(values.dtype)


WGMMA = SumOrder("wgmma")
FAULTS = [
    (WHOLE, {"change": reordered(lambda k: k[::-1])}, "k is summed from the last to the first"),
    (
        WHOLE,
        {"change": reordered(lambda k: [i for start in range(160, -1, -32) for i in k[start : start + 32]])},
        "k is summed from the last block to the first",
    ),
    (
        WHOLE,
        {"order": dataclasses.replace(WGMMA, splits=2)},
        "K is split into 2 parts of whole blocks, whose sums are added",
    ),
    (
        WHOLE,
        {"change": reordered(lambda k: [i // 32 * 32 + (i + 16) % 32 for i in k])},
        "the halves of each block of k are exchanged",
    ),
    (
        WHOLE,
        {
            "order": dataclasses.replace(WGMMA, splits=2),
            "change": reordered(lambda k: [i for i in k if i // 32 % 2 == 0] + [i for i in k if i // 32 % 2]),
        },
        "the blocks of k go to 2 sums in turn, which are added",
    ),
    (MM, {"order": SumOrder("wgmma", 64)}, "the unit's sum is added to an fp32 sum after 64 k, not never"),
    (FP8, {"order": WGMMA}, "the unit's sum is added to an fp32 sum never, not after 32 k"),
    (FP8, {"order": SumOrder("wgmma", 128)}, "the unit's sum is added to an fp32 sum after 128 k, not after 32 k"),
    (
        addmm(72, 80, 192, "fp16", out_dtype="fp32"),
        {"change": reordered(lambda k: k[::-1])},
        "from the last to the first",
    ),
    (MM, {"change": reordered(lambda k: k[7:] + k[:7])}, None),
]


@pytest.mark.parametrize("compare", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize(("problem", "fault", "cause"), FAULTS, ids=[str(cause) for _, _, cause in FAULTS])
def test_only_the_model_sees_another_order(problem, fault, cause, compare):
    result = judged(problem, compare=compare, **fault)
    failed = [v for v in result.verdicts if not v.passed]
    assert failed
    assert all(v.check in ("numerics/randn", "numerics/hot") for v in failed)
    assert all("within the bound, but with other bits than the tensor core makes" in v.text for v in failed)
    assert all(v.details["other_bits"] == v.details["wrong"] > 0 for v in failed)
    if cause is None:
        assert "no order of k that was tried" in result.diagnosis
    else:
        assert cause in result.diagnosis.partition(" | CAUSE ")[2]


def test_a_split_that_is_missing():
    class WithoutWorkspace(EmulatedDevice):
        def run(self, launch, programs=None, *, observe=False):
            launch.arguments["c_ptr"] = launch.after[0].arguments["c_ptr"]
            return super().run(launch, programs, observe=observe)

    kernel = catalogue.get("decompose_k_mm")
    problem = mm(72, 80, 256, "fp16", out_dtype="fp32")
    plan = kernel.plan(problem, CONFIG, HOPPER, Variant(splits=2))
    assert trial(kernel, plan, WithoutWorkspace(kernel, plan), names=BOUNDED).passed
    result = trial(kernel, plan, WithoutWorkspace(kernel, plan, WGMMA), names=BOUNDED)
    assert not result.passed
    assert "K is not split, but summed as one" in result.diagnosis


def test_an_operand_that_lost_its_lowest_bit_is_seen_within_the_bound():
    """A depth at which the bound forgives it."""
    result = judged(MM, change=with_a(lowest_bit_cleared))
    assert not result.passed
    assert verdict(result, "randn").details["other_bits"] > 1000


def test_a_result_outside_the_bound_says_both():
    result = judged(MM, change=with_a(lambda a: a * 1.5))
    text = verdict(result, "randn").text
    assert "allowed" in text
    assert text.endswith("have other bits than the tensor core makes")
    assert "no order of k" not in result.diagnosis


def test_on_a_unit_that_is_not_proven_other_bits_are_said_and_fail_nothing(monkeypatch):
    problem, config = mm(72, 80, 200, "fp16", out_dtype="fp32"), Config(32, 32, 32, 2, 4)
    right = judged(problem, ADA, config=config)
    assert right.passed
    assert verdict(right, "randn").details["other_bits"] == 0
    wrong = judged(problem, ADA, config=config, change=reordered(lambda k: k[::-1]))
    assert wrong.passed
    assert verdict(wrong, "randn").details["other_bits"] > 1000
    assert "have other bits than the model of the tensor core, which is not proven" in verdict(wrong, "randn").text


@pytest.mark.parametrize("limit", ["MOST_PRODUCTS", "MOST_ELEMENTS"])
def test_a_problem_that_is_too_large_has_no_model(monkeypatch, limit):
    contract = catalogue.get("mm").contract(catalogue.get("mm").plan(MM, CONFIG, HOPPER), "device")
    assert unit_verdict.can_model(MM, contract)
    monkeypatch.setattr(unit_verdict, limit, 1000)
    assert not unit_verdict.can_model(MM, contract)


def test_what_may_leave_fp32s_range_or_is_not_finite_has_no_bits():
    kernel = catalogue.get("mm")
    plan = kernel.plan(MM, CONFIG, HOPPER)
    contract = kernel.contract(plan, "device")
    unit = measured_units.known_unit(HOPPER, "wgmma", "fp16")
    model = unit_verdict.UnitModel(MM, contract, WGMMA, unit)
    (fill,) = fills(MM, contract, 0, ("randn",))
    assert model.allowed(dataclasses.replace(fill, cache={})) is not None
    infinite = dataclasses.replace(fill, cache={}, expected=fill.expected / 0)
    assert model.allowed(infinite) is None
    large = {name: values.float() * 2.0**60 for name, values in fill.inputs.items()}
    assert model.allowed(dataclasses.replace(fill, cache={}, inputs=large)) is None


def test_the_interpreter_exact_fills_and_kernels_without_an_order_are_not_judged_by_the_model():
    kernel = catalogue.get("mm")
    plan = kernel.plan(MM, CONFIG, HOPPER)

    class Unordered:
        contract, launch = kernel.contract, kernel.launch

    device = EmulatedDevice(kernel, plan)
    names = applicable_fills(MM, kernel.contract(plan, "device"))
    ordered = trial(kernel, plan, device, names=names)
    assert "other_bits" not in verdict(ordered, "transparent").details
    assert "other_bits" not in verdict(ordered, "special").details
    assert "other_bits" not in verdict(trial(Unordered(), plan, device, names=BOUNDED), "randn").details
    device.name = ExecutorName.INTERPRETER
    assert trial(kernel, plan, device, names=BOUNDED).model is None
