"""A trial sees what an executor does wrong, whatever the kernel: grid, memory, unwritten elements, repeatability."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
import torch

from conformance import targets
from conformance.execution.trial.trial import PLAUSIBLE_INTEGERS, trial
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import conv2d
from conformance.families.family import family_of
from conformance.families.gemm.problem import addmm, bmm, int_mm, mm
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import Config, FlexConfig, FlexDecodeConfig
from conformance.inputs.fills import applicable_fills
from conformance.kernels import catalogue
from conformance.kernels.launch import Ran
from conformance.problems import Layout
from conformance.records import ExecutorName

KERNEL = catalogue.get("mm")
PROBLEM = mm(40, 24, 33, "fp16", layout_a=Layout(pad=3), layout_out=Layout(pad=5))
CONFIG = Config(16, 16, 16, 1, 4)
PLAN = KERNEL.plan(PROBLEM, CONFIG, targets.find("sm_90"))


class TorchExecutor:
    """Computes the product with torch; ``fault`` may then spoil the result, an operand or the observation."""

    name = ExecutorName.INTERPRETER
    on_device = False
    device = torch.device("cpu")

    def __init__(self, fault=None):
        self.fault = fault
        self.runs = 0

    def run(self, launch, programs=None, *, observe=False):
        self.runs += 1
        a, b, out = (launch.arguments[name] for name in ("a_ptr", "b_ptr", "c_ptr"))
        self.before = out[7, 5].clone()
        exact = a.double() @ b.double()
        out.copy_(exact.float().half())
        if self.fault is not None:
            self.fault(self, a, out)
        return Ran(self.name, (1,) if self.fault is wrong_grid else launch.grid, None, 0.0)


def wrong_grid(executor, a, out):
    pass


def neighbour_overwritten(executor, a, out):
    out.as_strided((1,), (1,), out.storage_offset() + out.shape[1]).fill_(1.0)


def operand_overwritten(executor, a, out):
    a[3, 4] += 1


def element_not_written(executor, a, out):
    out[7, 5] = executor.before


def another_result_each_time(executor, a, out):
    if executor.runs % 2:
        out[0, 0] = torch.nextafter(out[0, 0].float(), torch.tensor(1e9)).half() + 1


def one_element_off(executor, a, out):
    out[1, 2] += 1


def failed(executor):
    return {verdict.check.split("/")[0] for verdict in trial(KERNEL, PLAN, executor).verdicts if not verdict.passed}


def test_a_right_result_raises_no_alarm():
    executor = TorchExecutor()
    assert failed(executor) == set()
    assert executor.runs == 2 * 6, "six fills, two poisons"


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (wrong_grid, {"grid"}),
        (neighbour_overwritten, {"memory"}),
        (operand_overwritten, {"memory"}),
        (one_element_off, {"numerics"}),
        (element_not_written, {"numerics", "repeat"}),
        (another_result_each_time, {"numerics", "repeat"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_fault_is_seen(fault, seen):
    assert failed(TorchExecutor(fault)) >= seen


class Watched(TorchExecutor):
    """Sees each access, as the interpreter does, and notes the rules of each run."""

    def __init__(self, fault=None):
        super().__init__(fault)
        self.patterns = []

    @contextlib.contextmanager
    def watching(self, operands, **rules):
        if "footprints" in rules:  # asked for a diagnosis
            yield None
        else:
            self.patterns.append(rules["plausible"])
            yield SimpleNamespace(strays={})


def test_where_each_access_is_watched_the_first_fill_alone_runs_twice():
    executor = Watched()
    judged = trial(KERNEL, PLAN, executor)
    first, second = PLAUSIBLE_INTEGERS
    assert executor.patterns == [first, second, *[second, first] * 2, second], "six fills, whose poison takes turns"
    (text,) = [verdict.text for verdict in judged.verdicts if verdict.check == "memory"]
    assert (judged.passed, text) == (True, "operands and surroundings untouched in 7 runs")


def test_parts_of_a_case_run_as_the_whole_does():
    executor = Watched()
    names = list(applicable_fills(PROBLEM, KERNEL.contract(PLAN, executor.name)))
    for number, name in enumerate(names):
        trial(KERNEL, PLAN, executor, names=(name,), place_in_case=number)
    whole = Watched()
    trial(KERNEL, PLAN, whole)
    assert executor.patterns == whole.patterns


@pytest.mark.parametrize("fault", [neighbour_overwritten, operand_overwritten, one_element_off, element_not_written])
def test_a_fault_of_a_fill_that_runs_once_is_seen(fault):
    def later(executor, a, out):
        if executor.runs == 4:  # the third fill
            fault(executor, a, out)

    wrong = [verdict.check for verdict in trial(KERNEL, PLAN, Watched(later)).verdicts if not verdict.passed]
    assert [check.split("/")[-1] for check in wrong] == ["wide-B"]


def test_only_the_fills_that_were_asked_for():
    judged = trial(KERNEL, PLAN, TorchExecutor(), names=("randn",))
    assert [verdict.check for verdict in judged.verdicts] == ["numerics/randn", "memory", "grid"]
    assert set(judged.outputs) == {"randn"}


def test_a_trial_in_which_no_fill_ran_says_why():
    judged = trial(KERNEL, PLAN, TorchExecutor(), names=("wide-scales",))
    assert not judged.passed
    assert judged.verdicts[-1].text == (
        f"no fill ran: of the fills of {PROBLEM.id} (transparent, wide-A, wide-B, randn, hot, special) "
        "none is among wide-scales"
    )


def test_a_misspelt_fill_is_an_error():
    with pytest.raises(ValueError, match=r"\['rndn', 'wideA'\] are unknown for mm-40x24x33.*: use transparent"):
        trial(KERNEL, PLAN, TorchExecutor(), names=("transparent", "rndn", "wideA"))


@pytest.mark.parametrize(("names", "complete"), [(None, True), (("randn",), False)])
def test_a_trial_says_whether_every_fill_was_judged_and_over_how_many_tiles(names, complete):
    judged = trial(KERNEL, PLAN, TorchExecutor(), names=names)
    assert judged.complete is complete
    assert judged.tiles == (3, 2)


def test_the_fills_that_a_problem_has_are_complete():
    """int_mm has two of its family's fills, a product whose alpha is no power of two has no exact ones."""
    for problem, names in (
        (int_mm(40, 24, 33), ("transparent", "wide-A")),
        (addmm(40, 24, 33, alpha=0.3), ("wide-A", "randn", "special")),
    ):
        kernel = catalogue.get(problem.op)
        plan = kernel.plan(problem, Config(16, 16, 32, 1, 4), targets.find("sm_90"))
        contract = kernel.contract(plan, ExecutorName.INTERPRETER)
        assert applicable_fills(problem, contract) == names
        assert applicable_fills(problem, contract, ["wide-A"]) == tuple(n for n in names if n == "wide-A")


@pytest.mark.parametrize(
    ("problem", "config", "tiles"),
    [
        (bmm(33, 16, 8, batch=5), Config(16, 16, 16, 1, 4), (3, 1)),
        (conv2d(2, 8, (5, 5), 40, 3, groups=2), Config(16, 16, 16, 1, 4), (2, 2)),
        (GroupedGemm("2d-3d", (9, 0, 17), None, 17, 11), Config(16, 16, 16, 1, 4), (3, 2)),
        (GroupedGemm("3d-2d", (9, 0, 17), 17, None, 11), Config(16, 16, 16, 1, 4), (2, 3)),
        (GroupedGemm("2d-2d", (9, 17), 17, 16, None), Config(16, 16, 16, 1, 4), (2, 1)),
        (Attention("attention", 2, 4, 40, 56, 40), FlexConfig(16, 32, 1, 4), (24, 2)),
        (Attention("attention", 2, 4, 1, 56, 40), FlexDecodeConfig(16, 1, 4), (8, 4)),
        (mm(0, 16, 8), Config(16, 16, 16, 1, 4), (0, 1)),
    ],
    ids=lambda value: getattr(value, "id", None),
)
def test_tiles_of_an_output(problem, config, tiles):
    assert family_of(problem).judged_tiles(problem, config) == tiles


def test_seed_changes_the_inputs_and_is_in_the_verdict():
    first, second = (trial(KERNEL, PLAN, TorchExecutor(), seed=seed, names=("randn",)) for seed in (1, 2))
    assert not torch.equal(first.outputs["randn"], second.outputs["randn"])
    assert "seed 2" in second.verdicts[0].text


def test_a_failing_case_says_where_it_is_wrong_and_every_case_which_numbers_it_saw():
    right, wrong = (trial(KERNEL, PLAN, TorchExecutor(fault), names=("randn",)) for fault in (None, one_element_off))
    tiles = wrong.verdicts[0].details["tiles"]
    assert tiles["wrong"] == [(0, 0, 1)]
    assert tiles["block"] == (16, 16)
    assert "tiles" not in right.verdicts[0].details
    assert set(right.digests) == {"randn"}
    assert right.digests != wrong.digests
    assert right.digests == trial(KERNEL, PLAN, TorchExecutor(), names=("randn",)).digests


class Undetermined:
    """The kernel with a contract that promises no equal bits."""

    launch = staticmethod(KERNEL.launch)

    def contract(self, plan, executor):
        return dataclasses.replace(KERNEL.contract(plan, executor), deterministic=False)


def last_bit_each_time(executor, a, out):
    """Changes the last bit of one element every other run: within every bound, but not exact."""
    if executor.runs % 2:
        pattern = out.view(torch.int16)
        pattern[3, 3] = pattern[3, 3] ^ 1


def wrong_checks(kernel, fault):
    return {verdict.check for verdict in trial(kernel, PLAN, TorchExecutor(fault)).verdicts if not verdict.passed}


def test_equal_bits_are_demanded_where_they_are_promised():
    promised, not_promised = wrong_checks(KERNEL, last_bit_each_time), wrong_checks(Undetermined(), last_bit_each_time)
    bounded = {"repeat/randn", "repeat/hot"}
    assert bounded <= promised
    assert not bounded & not_promised
    exact = {f"{check}/{fill}" for check in ("numerics", "repeat") for fill in ("transparent", "wide-A", "wide-B")}
    assert exact <= not_promised, "exact fills must agree whatever the contract"


def test_a_kernel_that_promises_no_equal_bits_must_keep_its_bounds():
    assert {"numerics/randn", "numerics/hot"} <= wrong_checks(Undetermined(), another_result_each_time)


def test_what_differs_may_be_declared():
    judged = trial(KERNEL, PLAN, TorchExecutor(last_bit_each_time), names=("randn",))
    (text,) = [verdict.text for verdict in judged.verdicts if verdict.check == "repeat/randn"]
    assert text.endswith(
        "a kernel that rounds sums in an order that nothing fixes, as unordered fp32 atomics do, must say "
        "deterministic=False in its contract"
    )


def test_digests_are_of_bits_that_are_promised():
    assert set(trial(KERNEL, PLAN, TorchExecutor()).digests) == {*FILLS, "randn", "hot", "special"}
    assert set(trial(Undetermined(), PLAN, TorchExecutor()).digests) == set(FILLS)


FILLS = ("transparent", "wide-A", "wide-B")
