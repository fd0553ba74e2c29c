"""A trial sees what an executor does wrong, whatever the kernel: grid, memory, unwritten elements, repeatability."""

import pytest
import torch

from conformance import targets
from conformance.execution.observation import Ran
from conformance.execution.trial import trial
from conformance.heuristics.configs import Config
from conformance.kernels import catalogue
from conformance.problems import Layout, mm

KERNEL = catalogue.get("mm")
PROBLEM = mm(40, 24, 33, "fp16", layout_a=Layout(pad=3), layout_out=Layout(pad=5))
PLAN = KERNEL.plan(PROBLEM, Config(16, 16, 16, 1, 4), targets.find("sm_90"))


class TorchExecutor:
    """Computes the product with torch; ``fault`` may then spoil the result, an operand or the observation."""

    name = "interpreter"
    device = torch.device("cpu")

    def __init__(self, fault=None):
        self.fault = fault
        self.runs = 0

    def run(self, launch, programs=None):
        self.runs += 1
        a, b, out = (launch.arguments[name] for name in ("a_ptr", "b_ptr", "c_ptr"))
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
        (another_result_each_time, {"numerics", "repeat"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_fault_is_seen(fault, seen):
    assert failed(TorchExecutor(fault)) >= seen


def test_an_element_that_is_not_written_is_seen():
    class Forgetful(TorchExecutor):
        def run(self, launch, programs=None):
            self.before = launch.arguments["c_ptr"][7, 5].clone()
            return super().run(launch, programs)

    assert {"numerics", "repeat"} <= failed(Forgetful(element_not_written))


def test_only_the_fills_that_were_asked_for():
    judged = trial(KERNEL, PLAN, TorchExecutor(), names=("randn",))
    assert [verdict.check for verdict in judged.verdicts] == ["numerics/randn", "memory", "grid"]
    assert set(judged.outputs) == {"randn"}


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
