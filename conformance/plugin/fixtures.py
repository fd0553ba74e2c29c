"""The fixtures of the suites' tests. What needs torch is imported when the first test asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.judging.case_recorder import CaseRecorder
from conformance.plugin.options import settings

if TYPE_CHECKING:
    from conformance.judging.conform import CaseRun
    from conformance.judging.harness import Harness
    from conformance.judging.inductor_judge import Inductor

RECORDER = pytest.StashKey[CaseRecorder]()
#: The run's folder, and the name of this process in it.
RUN_FOLDER = pytest.StashKey[tuple[Path, str]]()


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> CaseRecorder:
    """Returns the recorder of this case. Only tests below a suites directory have one."""
    if RECORDER not in request.node.stash:
        raise pytest.UsageError(f"{request.node.nodeid} is no case of the conformance suites: it is not recorded")
    case_recorder: CaseRecorder = request.node.stash[RECORDER]
    return case_recorder


@pytest.fixture(scope="session")
def harness(pytestconfig: pytest.Config) -> Iterator[Harness]:
    """Yields the :class:`~conformance.judging.harness.Harness` that all cases of this process share."""
    import torch

    from conformance.judging.harness import Harness

    torch.set_num_threads(1)  # the workers share the cores among themselves
    shared = Harness(settings(pytestconfig), *pytestconfig.stash[RUN_FOLDER])
    yield shared
    shared.pool.close()


@pytest.fixture
def conform(harness: Harness, recorder: CaseRecorder) -> Iterator[Callable[..., CaseRun]]:
    """:func:`conformance.judging.conform.conform` for this case: ``conform(kernel, problem, config=..., target=...,
    **variant fields)``. If the case fails, a script that shows it is written at its end, where that was asked for."""
    from conformance.judging.conform import conform

    if harness.settings.reproducers is None:
        yield functools.partial(conform, harness, recorder)
        return
    from conformance.judging.case_reproducers import Reproducers

    reproducers = Reproducers(recorder, harness.settings, harness.settings.reproducers)
    yield functools.partial(conform, harness, recorder, reproducers=reproducers)
    reproducers.write()


@pytest.fixture
def inductor(harness: Harness, recorder: CaseRecorder, request: pytest.FixtureRequest) -> Inductor:
    """Returns the :class:`~conformance.judging.inductor_judge.Inductor` of this case. A case whose target lacks what
    the test needs ends as not applicable."""
    from conformance.cases.generated_cases import needs_of
    from conformance.judging.inductor_judge import Inductor

    judge = Inductor(harness, recorder)
    needs = needs_of(request.function)
    if needs:
        judge.require(request.node.callspec.params["target"], *needs)
    return judge
