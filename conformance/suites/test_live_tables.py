"""The config tables of the installed torch's own heuristics: each can be read, and a run holds its rows.

Two runs with different torch show by them which configs came, went or changed. PyTorch has no test of its tables.
"""

import functools

import pytest

from conformance.cases.config_space import torch_tables
from conformance.execution.compile.compilation import Task
from conformance.heuristics.base import BASE
from conformance.heuristics.lookup import CPU, CUDA, XPU
from conformance.heuristics.rocm import ROCM
from conformance.inductor.compile.provider import PRELOADED
from conformance.inductor.tables import live
from conformance.inductor.topics import live_tables as checks
from conformance.judging.harness import record
from conformance.kernels.catalogue import own_kernels
from conformance.records import Reason, ReasonCode, Status

#: Kind of device -> the names of its devices, and the tables here that it is compared with.
GROUPS = {
    "cuda": (["cuda"], CUDA),
    "rocm": (["rocm:*"], ROCM),
    "xpu": (["xpu"], XPU),
    "cpu": (["cpu"], CPU),
    "others": (["any", "mtia"], BASE),
}


def _read_by(pool, target):
    """Returns the tables that a process of the pool reads, which has imported Inductor already."""
    task = Task("conformance.inductor.tables.read:read_in_child", live.amd_archs(), target, PRELOADED)
    result = pool.submit(task).result()
    if result.status is not Status.PASS:
        raise result.failure()
    return result.value


@pytest.fixture(scope="module")
def devices(harness):
    """The tables of all devices, for the cases of this module."""
    return live.live_devices(functools.partial(_read_by, harness.pool, harness.targets[0]))


@pytest.mark.slow(4)
@pytest.mark.parametrize("group", list(GROUPS))
@pytest.mark.proves_at_most("nothing", "torch's config tables are judged, and no kernel is run")
def test_tables(recorder, devices, group):
    """Every table is read. Rows that are not those of July 2025 are told and no fault."""
    names, seeds = GROUPS[group]
    of_group = checks.of_group(devices, names)
    verdicts, observed = checks.check_tables(of_group, seeds, torch_tables(own_kernels().values()))
    recorder.set(observed=observed)
    record(recorder, verdicts)
    if all(verdict.passed for verdict in verdicts) and not any(device.tables for device in of_group.values()):
        detail = f"the installed torch has no config tables for {group}: take a torch that has them"
        recorder.not_run(Reason(ReasonCode.CAPABILITY, "config tables", detail))
