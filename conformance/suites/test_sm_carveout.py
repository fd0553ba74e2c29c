"""Persistent kernels leave the SMs free that torch's carveout reserves, and compute the same bits on any number."""

import pytest
import torch

from conformance.cases.scenarios import named, scenario, where
from conformance.kernels import carveout
from conformance.numerics.rounding import bits

#: Fills that this suite judges, on a device and in the interpreter: the carveout changes which program computes a tile,
#: not how.
FILLS = {True: ("transparent", "randn"), False: ("randn",)}

#: SMs to assume without a device: more than the largest fixed carveout, few enough to be interpreted.
ASSUMED_SMS = 30


@scenario(
    where(persistent=True),
    reserve=[None, 0, 27, "all-but-one", "all"],
    configs=2,
    quick=named("mm_blackwell_ws"),
)
def test_grid_leaves_reserved_sms(conform, harness, recorder, kernel, target, dtype, config, reserve):
    """The grid that ran is min(SMs - carveout, tiles), one program at least, and its bits are those of the grid without
    a carveout."""
    sms = target.limits.multiprocessors if harness.settings.has_gpu else ASSUMED_SMS
    side = 2
    while side * side < sms + 3:
        side += 1
    depth = config.block_k + 16 if harness.settings.has_gpu else config.block_k
    problem = kernel.problem(dtype, side * config.block_m, side * config.block_n, depth)
    fills = FILLS[harness.settings.has_gpu]
    count = {"all-but-one": sms - 1, "all": sms}.get(reserve, reserve)
    before = carveout.current()
    with carveout.reserved(None):
        plain = conform(kernel, problem, config=config, target=target, sms=sms, fills=fills)
    with carveout.reserved(count):
        run = conform(kernel, problem, config=config, target=target, sms=sms, fills=fills)
    expected = (min(max(sms - (count or 0), 1), side * side),)
    planned = run.plan.grid == expected
    how = "" if planned else ", as conformance.kernels.carveout.available_sms(plan) says"
    recorder.verdict(
        "grid planned", planned, f"planned {run.plan.grid}, {expected} is required: SMs less the reserve{how}"
    )
    recorder.verdict("grid ran", run.trial.grid == expected, f"{run.trial.grid} ran, {expected} is required")
    for name, out in run.trial.outputs.items():
        same = torch.equal(bits(out), bits(plain.trial.outputs[name]))
        recorder.verdict(f"same bits/{name}", same, f"grid {run.trial.grid} and {plain.trial.grid}")
    recorder.verdict("restored", carveout.current() == before, f"carveout {carveout.current()}, {before} before")


@scenario(where(persistent=True), reserve=[None, "all-but-two"], configs=1, quick=named("mm_persistent"))
def test_grid_has_no_more_programs_than_tiles(conform, harness, recorder, kernel, target, dtype, config, reserve):
    """With more SMs than tiles there is a program for each tile, and no other; with fewer, one for each SM."""
    sms = target.limits.multiprocessors if harness.settings.has_gpu else ASSUMED_SMS
    problem = kernel.problem(dtype, 3 * config.block_m, config.block_n, config.block_k)
    with carveout.reserved(None if reserve is None else sms - 2):
        run = conform(kernel, problem, config=config, target=target, sms=sms, fills=("randn",))
    expected = (3,) if reserve is None else (2,)
    recorder.verdict("grid planned", run.plan.grid == expected, f"planned {run.plan.grid}, {expected} is required")
    recorder.verdict("grid ran", run.trial.grid == expected, f"{run.trial.grid} ran, {expected} is required")


def _fail_inside(recorder):
    recorder.verdict("set", carveout.current() == 27, f"carveout {carveout.current()}")
    raise ZeroDivisionError


@pytest.mark.parametrize("outer", [None, 5])
@pytest.mark.proves_at_most("nothing", "a setting is judged, and no kernel is run")
def test_carveout_is_restored_after_a_failure(recorder, outer):
    """The global setting is restored, also after an error inside."""
    with carveout.reserved(outer):
        with pytest.raises(ZeroDivisionError), carveout.reserved(27):
            _fail_inside(recorder)
        recorder.verdict("restored", carveout.current() == (outer or 0), f"carveout {carveout.current()}")
