"""Judges each launch that a test makes, and makes its record. The id of a launch is the same in every run.

It begins with the test's node id and the kernel's name. Then follow the number of the launch among those of this kernel
in the test, and a digest of what Triton specialises the kernel for.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.execution.compile import kernel_figures
from conformance.execution.compile.compilation import Artefact
from conformance.execution.compile.compile_worker import artefact_of
from conformance.execution.compile.kernel_figures import near_limits, over_limits
from conformance.execution.compile.specialisation import specialisation
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.code_faults import fault_verdicts, order_verdicts, unknown_orders
from conformance.kernels.launch import Launch
from conformance.records import Check, CheckKind, ExecutorName, Reason, ReasonCode, Status, Verdict
from conformance.targets import Target
from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.layout_check import verified
from conformance.ttgir.proof import objection
from conformance.ttgir.text import TextError, parse
from conformance.watching.device_memory import DeviceMemory
from conformance.watching.device_run import Again, DeviceLost, DeviceRunner, Unguarded
from conformance.watching.launch_run import LaunchRun, LaunchRunner
from conformance.watching.not_taken import NotTaken
from conformance.watching.run_records import WatchRecords
from conformance.watching.settings import WatchSettings
from conformance.watching.torch_modes import plain


class LaunchJudge:
    """Judges launches for ``target`` and gives their records to ``records``. ``memory`` stands in for that of a device;
    None on a device. ``test`` is the node id of the test that runs; "" between tests."""

    def __init__(
        self, settings: WatchSettings, target: Target, memory: DeviceMemory | None, records: WatchRecords
    ) -> None:
        self._settings, self._target, self._memory, self._records = settings, target, memory, records
        self.test = ""
        self.launches = 0  # of this test
        self._numbers: Counter[str] = Counter()
        self._of_code: dict[str, tuple[Artefact, list[Verdict], dict[str, Any]]] = {}

    def begin(self, test: str) -> None:
        """The launches that follow are those of ``test``."""
        self.test, self.launches = test, 0
        self._numbers.clear()

    def take(
        self,
        kernel: Any,
        source: Any,
        grid: tuple[int, int, int],
        arguments: dict[str, Any],
        again: Again | None = None,
    ) -> None:
        """Judges one launch and leaves its results in the tensors. On a device ``again`` launches. Raises NotTaken if
        it cannot be run, and DeviceLost if it ends in an error of the device. Where memory stands in for a device's, a
        tensor of the CPU raises ValueError, with Triton's words."""
        with plain():
            for place, value in enumerate(arguments.values()):
                if self._memory is not None and isinstance(value, Tensor) and not self._memory.reaches(value):
                    raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")
            self._take(kernel, source, grid, arguments, again)

    def _take(
        self, kernel: Any, source: Any, grid: tuple[int, int, int], arguments: dict[str, Any], again: Again | None
    ) -> None:
        arguments = {name: self._with_memory(value) for name, value in arguments.items()}
        name = str(kernel.metadata.name)
        function = getattr(source, "fn", None)
        self.launches += 1
        number = self._numbers[name]
        self._numbers[name] += 1
        options = {key: getattr(kernel.metadata, key) for key in ("num_warps", "num_stages", "num_ctas")
                   if hasattr(kernel.metadata, key)}  # fmt: skip
        launch = Launch(function, grid, arguments, options)
        classes = _classes(launch, self._target)
        digest = hashlib.sha256(repr((sorted(classes.items()), sorted(options.items()))).encode()).hexdigest()[:8]
        case = f"{self.test or 'no test'}/{name}-{number}-{digest}"
        recorder = self._records.recorder(case)
        recorder.set(
            kernel=name,
            target=self._target,
            problem={"id": f"grid={'x'.join(map(str, grid))}", "test": self.test, "number": number,
                     "arguments": classes},
            config={"id": "-".join(f"{key}={value}" for key, value in options.items()), **options},
            observed={"grid": grid},
        )  # fmt: skip
        self._records.foresee(recorder, "pytest's process died in this launch")
        started = time.monotonic()
        lost = False
        try:
            lost = self._judge(recorder, kernel, launch, again)
        finally:
            recorder.durations["launch"] = time.monotonic() - started
        record = self._records.write(recorder)
        if lost:
            raise DeviceLost(f"{case} left the device in an error")
        if record.reason is not None and again is None:
            raise NotTaken("launch", name, f"the launch of {name} was not run: {record.reason.detail}")

    def _judge(self, recorder: CaseRecorder, kernel: Any, launch: Launch, again: Again | None) -> bool:
        """Returns True if the device was lost."""
        artefact, verdicts, observed = self._code(kernel)
        recorder.set(artefacts=artefact.stages, observed=observed)
        run = self._in_memory(artefact, launch) if again is None else self._on_device(recorder, artefact, launch, again)
        recorder.set(executor=None)
        if isinstance(run, LaunchRun):
            executor = ExecutorName.TTGIR if again is None else ExecutorName.DEVICE
            results = {"outputs": run.integers, "results": run.outputs, "run": None, executor.value: run.notes}
            recorder.set(executor=executor.value, observed={**results, "programs": run.programs})
            verdicts = [*verdicts, *run.verdicts]
        recorder.add(*verdicts)
        failed = [f"{verdict.check}: {verdict.text}" for verdict in verdicts if not verdict.passed]
        if failed:
            recorder.conclude(Status.FAIL, "\n".join(failed))
        elif isinstance(run, Reason):
            recorder.conclude(Status.NOT_RUN, reason=run)
        return isinstance(run, LaunchRun) and run.lost

    def _with_memory(self, value: Any) -> Any:
        """Returns ``value``, an argument. For an object of another class with an address, as libraries wrap tensors,
        it is a tensor from there on."""
        if self._memory is None or isinstance(value, Tensor) or not hasattr(value, "data_ptr"):
            return value
        dtype = getattr(value, "dtype", None)
        tensor = self._memory.tensor_at(value.data_ptr(), dtype if isinstance(dtype, torch.dtype) else torch.uint8)
        return value if tensor is None else tensor

    def _in_memory(self, artefact: Artefact, launch: Launch) -> LaunchRun | Reason:
        """Returns what the TTGIR showed, or why it was not run."""
        why = objection()
        if launch.function is None:
            why = "it was compiled from a file, and has no source"
        elif "ttgir" not in artefact.stages:
            why = "it has no TTGIR"
        if why:
            return Reason(ReasonCode.NO_DEVICE, "ttgir", why)
        try:
            runner = LaunchRunner(
                launch,
                artefact.text("ttgir"),
                artefact.text("llir") if "llir" in artefact.stages else "",
                elsewhere=self._memory.span if self._memory is not None else _nowhere,
                programs=self._settings.programs,
                seconds=self._settings.launch_s,
            )
            return runner.run()
        except (UnknownOperation, NotImplementedError, TextError) as error:
            return Reason(ReasonCode.NO_DEVICE, "ttgir", f"the executor of TTGIR cannot run it: {error}")

    def _on_device(
        self, recorder: CaseRecorder, artefact: Artefact, launch: Launch, again: Again
    ) -> LaunchRun | Reason:
        """Returns what the launches on the device showed, or why only the test's own was made."""
        text = artefact.text("ttgir") if "ttgir" in artefact.stages else ""
        foresee = functools.partial(self._records.foresee, recorder)
        try:
            return DeviceRunner(launch.arguments, again, text, foresee).run()
        except Unguarded as error:
            detail = f"it was launched over the test's own tensors only: {error}"
            return Reason(ReasonCode.CAPABILITY, "guarded memory", detail)

    def _code(self, kernel: Any) -> tuple[Artefact, list[Verdict], dict[str, Any]]:
        """Returns the files of ``kernel``, the verdicts about its code, and what a record keeps of it."""
        if kernel.hash not in self._of_code:
            artefact = artefact_of(kernel, self._target, kernel.hash, time.time())
            name = artefact.kernel_name
            verdicts = [*fault_verdicts(name, artefact), *order_verdicts(name, artefact)]
            excess = over_limits(artefact.resources, self._target)
            within = "; ".join(["within the target's limits", *near_limits(artefact.resources, self._target)])
            verdicts.append(Verdict(str(Check(CheckKind.RESOURCES)), not excess, "; ".join(excess) or within))
            verdicts += _of_layouts(artefact)
            observed = {
                "resources": dataclasses.asdict(artefact.resources),
                "code": kernel_figures.describe(artefact, self._target, disassemble=False),
            }
            if unknown := unknown_orders([artefact]):
                observed["order"] = {"unknown": unknown}
            self._of_code[kernel.hash] = artefact, verdicts, observed
        return self._of_code[kernel.hash]


def _nowhere(address: int) -> None:
    """No memory is known but that of the launch."""


def _of_layouts(artefact: Artefact) -> Iterable[Verdict]:
    """Returns verdicts about the layouts of the code, none where some are not known."""
    if "ttgir" not in artefact.stages:
        return []
    check = str(Check(CheckKind.EXECUTED, "layouts"))
    try:
        layouts = verified(parse(artefact.text("ttgir")))
    except TextError:
        return []
    if layouts.faults:
        return [Verdict(check, False, fault) for fault in layouts.faults[:4]]
    return [] if layouts.unknown else [Verdict(check, True, "every layout fits those that it meets")]


def _classes(launch: Launch, target: Target) -> Mapping[str, str]:
    """Returns what the kernel is specialised for, by argument."""
    try:
        return dict(specialisation(launch, target, by_name=True).arguments)
    except (TypeError, OverflowError, ValueError, AttributeError):
        return {name: type(value).__name__ for name, value in launch.arguments.items()}
