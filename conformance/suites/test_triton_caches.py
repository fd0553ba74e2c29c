"""Triton's own cache of compiled kernels: damaged, exchanged and half-written entries, and several writers at once.

Triton checks no file that it takes. What it does with each damage is kept in the record; the harness must name the
cache, and not the compiler.
"""

import pytest

from conformance import targets
from conformance.execution.compile.cache_faults import DAMAGES
from conformance.execution.compile.compilation import Task
from conformance.judging.harness import record
from conformance.records import Status

NOTHING = pytest.mark.proves_at_most("nothing", "what Triton's cache keeps is judged, and no kernel is run")


def _planted(harness, recorder, function, argument):
    """Has a compile process plant faults, for the first target whose compiler is installed."""
    compiled = {target.id for target in targets.compile_targets()}
    target = next((target for target in harness.targets if target.id in compiled), harness.targets[0])
    recorder.set(target=target)
    task = Task(f"conformance.execution.compile.cache_faults:{function}", argument, target)
    result = harness.pool.submit(task).result()
    if result.status is not Status.PASS:
        raise result.failure()
    recorder.set(observed={"triton": result.value.triton})
    record(recorder, result.value.verdicts)


@NOTHING
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damaged_entry(harness, recorder, damage):
    """Each file of an entry in turn is damaged. Triton compiles the kernel again, or the harness names the cache.
    Triton's tests have an entry without a file, and none with another content."""
    _planted(harness, recorder, "damaged", damage)


@NOTHING
@pytest.mark.parametrize("killed", [False, True], ids=["all", "killed"])
def test_writers_at_once(harness, recorder, killed):
    """Several processes compile one kernel into an empty cache, and some are killed meanwhile. Then Triton has the
    right kernel. Triton's tests have one writer."""
    _planted(harness, recorder, "written_at_once", killed)
