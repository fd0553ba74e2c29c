"""The pytest plugin of ``conformance watch``: judges the launches of a suite, and records each test and launch.

Without a GPU it lets the suite believe in one.

The command loads it with ``-p`` before the suite's own conftest files, so that these see the device, too.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import targets
from conformance.machine.device_state import device_fault
from conformance.machine.gpus import find_gpus
from conformance.machine.versions import machine_stack
from conformance.records import Reason, ReasonCode, Status
from conformance.watching import accelerator
from conformance.watching.compiled_functions import CompiledFunctions
from conformance.watching.device_driver import DeviceLaunches, untimed_inductor, watching_device
from conformance.watching.device_memory import DeviceMemory
from conformance.watching.launch_judge import LaunchJudge
from conformance.watching.not_taken import NotTaken
from conformance.watching.registered_kernels import DeviceKernels
from conformance.watching.run_records import WatchRecords
from conformance.watching.settings import LOST_DEVICE, WatchSettings
from conformance.watching.torch_cuda import answering
from conformance.watching.torch_modes import DeviceFunctions, DeviceOperations, also_in_backward
from conformance.watching.triton_driver import StandInDriver, driving

#: Lines of a failed test's report that its record keeps.
REPORT_LINES = 40
#: Modules whose exceptions say that a kernel did not compile.
_COMPILER = ("triton.compiler.errors", "triton.runtime.errors")


class Watch:
    """Watches the tests of one process."""

    def __init__(self, settings: WatchSettings, worker: str) -> None:
        target = targets.find("device" if settings.device else settings.target)
        stack = machine_stack(find_gpus())
        self._records = WatchRecords(Path(settings.folder), worker, target.id, dict(stack))
        self._settings, self._target = settings, target
        self._memory = None if settings.device else DeviceMemory()
        self._judge = LaunchJudge(settings, target, self._memory, self._records)
        self._compiled: CompiledFunctions | None = None
        self._entered = contextlib.ExitStack()
        self._driving = contextlib.ExitStack()  # never left: Triton asks its driver also when the process ends
        self._reports: dict[str, dict[str, pytest.TestReport]] = {}
        self._not_taken: dict[str, NotTaken] = {}
        self._failures: dict[str, Status] = {}  # of tests that did not fail by themselves

    def enter(self) -> None:
        """Takes the launches from here on. Without a GPU torch and Triton see a device, too."""
        if self._memory is None:
            self._entered.enter_context(watching_device(DeviceLaunches(self._judge.take), self._settings.configs))
            self._entered.enter_context(untimed_inductor())
            return
        driver = StandInDriver(self._target, self._judge.take)
        self._compiled = CompiledFunctions(self._target, self._memory, driver)
        functions, kernels = DeviceFunctions(self._memory), DeviceKernels()
        self._entered.enter_context(kernels.noting())
        self._entered.enter_context(answering(self._target))
        accelerator.prepare()
        self._driving.enter_context(driving(driver, self._settings.configs))
        self._entered.enter_context(also_in_backward(functions))
        self._entered.enter_context(self._compiled.installed())
        self._entered.enter_context(DeviceOperations(self._memory, kernels, functions))
        self._entered.enter_context(functions)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out the tests that an earlier process of this run has done. Each worker of xdist leaves out the same
        ones, also one that takes the place of another."""
        if not self._settings.done:
            return
        done = set(Path(self._settings.done).read_text().splitlines())
        if again := [item for item in items if item.nodeid in done]:
            items[:] = [item for item in items if item.nodeid not in done]
            config.hook.pytest_deselected(items=again)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._judge.begin(nodeid)
        self._records.begin_test(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Gives each test the same random numbers in every run, before its fixtures draw some."""
        random.seed(0)
        np.random.seed(0)
        torch.random.manual_seed(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        error = call.excinfo.value if call.excinfo is not None else None
        if isinstance(error, NotTaken):
            self._not_taken.setdefault(item.nodeid, error)
        if error is not None and type(error).__module__.startswith(_COMPILER):
            self._failures.setdefault(item.nodeid, Status.COMPILE_ERROR)
        report = yield
        if isinstance(error, NotTaken):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"conformance watch: {error.why}")
        self._reports.setdefault(item.nodeid, {})[str(report.when)] = report
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        reports = self._reports.pop(nodeid, {})
        if not reports:
            return
        recorder = self._records.recorder(nodeid)
        recorder.set(observed={"launches": self._judge.launches})
        if self._compiled is not None and self._compiled.notes:
            recorder.set(observed={"not compiled": list(self._compiled.notes)})
            self._compiled.notes.clear()
        recorder.durations.update({when: report.duration for when, report in reports.items()})
        worst = next((one for one in reports.values() if one.failed), None)
        skipped = next((one for one in reports.values() if one.skipped), None)
        not_taken = self._not_taken.pop(nodeid, None)
        if worst is not None:
            text = "\n".join(str(worst.longreprtext).splitlines()[-REPORT_LINES:])
            crash = getattr(worst.longrepr, "reprcrash", None)
            message = str(getattr(crash, "message", "") or "no message").splitlines()[0]
            recorder.verdict("test", False, f"the test failed in its {worst.when}: {message}")
            recorder.conclude(self._failures.pop(nodeid, Status.FAIL), text)
        elif not_taken is not None:
            reason = Reason(ReasonCode.NO_DEVICE, f"{not_taken.kind} {not_taken.subject}", not_taken.why)
            recorder.conclude(Status.NOT_RUN, reason=reason)
        elif skipped is not None and not hasattr(skipped, "wasxfail"):
            why = skipped.longrepr[2] if isinstance(skipped.longrepr, tuple) else str(skipped.longrepr)
            recorder.conclude(Status.NOT_APPLICABLE, reason=Reason(ReasonCode.CAPABILITY, "skip", str(why)))
        elif skipped is not None:
            recorder.verdict("test", True, "the test failed as its mark xfail says")
        else:
            launches = self._judge.launches
            recorder.verdict("test", True, f"the test passed, with {launches} launches" if launches else
                             "the test passed, and made no launch")  # fmt: skip
        recorder.outcome = "failed" if worst is not None else "skipped" if skipped is not None else "passed"
        self._records.write(recorder)
        self._judge.begin("")
        if self._settings.device and worst is not None and device_fault() is not None:
            self._records.close()
            sys.stdout.flush()
            os._exit(LOST_DEVICE)  # every later test would fail, too

    def pytest_unconfigure(self) -> None:
        self._entered.close()
        self._records.close()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    settings = WatchSettings.of_environment()
    if settings is None:
        raise pytest.UsageError("conformance.watching.plugin is loaded by 'conformance watch': run that")
    # xdist gives the options of a worker no name yet; each process has files of its own
    watch = Watch(settings, f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}")
    early_config.pluginmanager.register(watch, "conformance-watch")
    watch.enter()
