"""Hooks of each process that runs cases: they write one record for each case, whatever happens to it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import pytest

from conformance.exception_text import printable, raised_by_kernel, text_of, with_first_error, words_of
from conformance.execution.compile.carried_kernels import backend_hashes
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.judging.settings import Settings
from conformance.machine import device_state, left_threads, process_exit
from conformance.machine.device_state import device_fault
from conformance.machine.environment_faults import fault_of_error, fault_of_text
from conformance.machine.open_files import KeptFiles
from conformance.machine.process_state import ProcessState, also_called
from conformance.machine.versions import imported_versions
from conformance.plugin import case_ids, record_files
from conformance.plugin.case_reports import RAISED
from conformance.plugin.collection_watch import ends_the_run, left_changed
from conformance.plugin.fixtures import RECORDER
from conformance.plugin.record_files import RecordFile, process_file, stacks_file
from conformance.plugin.run_signals import Signals, WorkerSignals
from conformance.plugin.watchdog import Watchdog
from conformance.records import (
    FAILING,
    LINE_LIMIT,
    CaseRecord,
    CompileFailure,
    ConformanceFailure,
    Fault,
    Status,
    Verdict,
)
from conformance.reporting.text import log_safe
from conformance.user_files.run_options import DEFAULT_SEED

also_called(CaseRecorder, "verdict add set conclude record keep_artefacts objection judged")


class TypedSkip(CaseEnded, pytest.skip.Exception):  # type: ignore[name-defined]  # pytest names no public class
    """pytest's skip for a case that ended with ``status`` for a typed ``reason``.

    The recorder raises it itself: pytest then knows the skip of a fixture, too, and tears that fixture down.
    """


def status_of(error: BaseException) -> tuple[Status, str, Fault | None]:
    """The status that an exception means for its case, its diagnosis, and the fault of the machine if that is to
    blame."""
    if isinstance(error, ConformanceFailure):
        return Status.FAIL, words_of(error), None
    if isinstance(error, CompileFailure) and getattr(error, "status", None) in FAILING:
        return error.status, words_of(error), error.fault if isinstance(error.fault, Fault) else None
    text = with_first_error(error)
    if cause := raised_by_kernel(error):
        return Status.OOM if device_state.ran_out(error) else Status.FAIL, f"{text}\nCAUSE {cause}", None
    return Status.OOM if device_state.ran_out(error) else Status.FAIL, text, fault_of_error(error)


def fault_of_checks(verdicts: Sequence[Verdict]) -> Fault | None:
    """Returns the fault of the machine that each of the failed ``verdicts`` reports, such as compilations that met a
    full disk; None if one of them reports none."""
    faults = [fault_of_text(verdict.text) for verdict in verdicts if not verdict.passed]
    return faults[0] if faults and all(faults) else None


def fault_without_wrong_results(fault: Fault | None, verdicts: Sequence[Verdict]) -> Fault | None:
    """Returns ``fault`` of the machine, or None if one of the case's ``verdicts`` failed for another reason. A wrong
    result stays one, whatever becomes of the machine afterwards."""
    if fault is None or all(verdict.passed for verdict in verdicts):
        return fault
    return fault if fault_of_checks(verdicts) is not None else None


@contextlib.contextmanager
def environment_restored() -> Iterator[None]:
    """Takes back what the block changes in the environment. There Inductor names an assembler for Triton. Later
    compilations would take it, but launches of this process would not, because its Triton has already looked up its own
    assembler's version."""
    variables = os.environ._data  # type: ignore[attr-defined]  # as bytes: decoding takes longer than a short case
    before = dict(variables)
    try:
        yield
    finally:
        for name in {**before, **variables} if variables != before else ():
            if name not in before:
                os.environ.pop(os.fsdecode(name), None)
            elif variables.get(name) != before[name]:
                os.environ[os.fsdecode(name)] = os.fsdecode(before[name])


#: Name under which a record lists what its case had changed of its process.
RESTORED = "restored"
#: Name under which a worker reports the hashes of the compilers that it loaded.
BACKEND_HASHES = "conformance_backend_hashes"


@dataclass(frozen=True)
class CaseProcess:
    """A process that runs cases: the run's ``folder``, the process's ``name`` in it, its GPU, and the versions of the
    stack. Only the process that the user started has the ``terminal`` and ``end_of_run``. The latter is called with the
    record of the case that ends the process early. ``signals`` are the process's own: the caller installs them.
    ``guarded``: see :class:`~conformance.plugin.watchdog.Watchdog`."""

    folder: Path
    name: str
    gpu: str | None
    stack: dict[str, Any]
    terminal: TextIO | None = None
    end_of_run: Callable[[CaseRecord], None] | None = None
    signals: Signals = field(default_factory=WorkerSignals)
    guarded: bool = False


def end_fork(process: int) -> None:
    """Ends this process if it is not the ``process`` that ran a suite's code, but a fork that has returned from it. It
    would go on as a second pytest."""
    if os.getpid() != process:
        os.write(2, b"conformance: a forked process returned from the code of a suite, and was ended\n")
        os._exit(1)


class ItemRecording:
    """Hooks of a process that runs cases: each case is watched, and its record is written."""

    def __init__(self, settings: Settings, process: CaseProcess, case_ids: case_ids.CaseIds) -> None:
        self.settings = settings
        self.process = process
        self.case_ids = case_ids
        self.file = RecordFile(process.folder, process.name)
        self._watchdog: Watchdog | None = None
        self._options = _options(settings)
        self._current: tuple[pytest.Item, CaseRecorder] | None = None
        self._foreseen_size = 0  # bytes of the record of the current case, so far
        self._state = ProcessState(needed=True)  # when the current case began
        self._restored: dict[str, None] = {}  # what the current case had changed of its process, in order
        self._spoiled = ""  # what it has left changed, and cannot be restored
        self._changed_for_ever = ""  # the first case that did so, and what
        self._process_id = os.getpid()
        self._unreported = ""  # why the report of the current case could not be made
        self._kept_files: KeptFiles | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        process = self.process
        stacks = stacks_file(process.folder, process.name)
        try:
            process_file(process.folder, process.name).write_text(str(os.getpid()))
            self._kept_files = KeptFiles()
            files = [file(process.folder, process.name) for file in (record_files.journal_file, record_files.part_file)]
            self._watchdog = Watchdog(
                *(self.settings.case_timeout_s, stacks, process.terminal, self._end),
                guarded=process.guarded,
                evidence=files if process.terminal is not None else (),
            )
        except OSError as error:
            pytest.exit(cannot_write(process.folder, error))
        if process.end_of_run is None:
            process.signals.install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """An import of a suite may hold the interpreter's lock as well as a case."""
        if self._watchdog is not None and self.process.guarded:
            self._watchdog.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Reads the functions of pytest before the first case: while cases are collected, pytest changes its classes,
        and so may plugins."""
        self._tools = ProcessState.of_tools()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        if self.process.end_of_run is None:
            self.process.signals.restore()
        self.file.close()
        output = getattr(self._session.config, "workeroutput", None)  # None in a run without workers
        if output is not None:
            output[BACKEND_HASHES] = backend_hashes()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        case = self.case_ids(item.nodeid)
        if case is None:
            return (yield)
        recorder = CaseRecorder(
            case,
            case_ids.suite_of(case),
            self.process.folder,
            worker=self.process.name,
            gpu=self.process.gpu,
            tier=self.settings.tier,
            seed=self.settings.seed,
            stack=self.process.stack,
            repro=self._repro(case),
        )
        recorder.ending = TypedSkip
        recorder.on_change = lambda: self._foresee(recorder)
        item.stash[RECORDER] = recorder
        self._current, self._restored, self._unreported, self._spoiled = (item, recorder), {}, "", ""
        self._state = ProcessState(needed=True)
        threads = left_threads.running()
        self.process.signals.raise_received()
        self._foresee(recorder)
        assert self._watchdog is not None  # the session has started
        with self._watchdog.watching(recorder):
            try:
                result = yield
            except pytest.exit.Exception as error:  # in a process without workers, where it ends the run
                self._write(case, recorder, f"ended the run with pytest.exit: {words_of(error)}")
                raise
            except Exception as error:  # of pytest itself; a worker ends by that
                if self.process.end_of_run is None or not self._restore(self._tools):
                    raise
                self._unreported = f"the case has changed functions of pytest, which then failed: {text_of(error)}"
                self._session._setupstate.teardown_exact(nextitem)
                result = True
            self._unreported = self._unreported or "".join(process_exit.REFUSED[:1])
            process_exit.REFUSED.clear()
            if self._kept_files is not None and self._kept_files.needed():
                self._spoil("left so many files open that its process can open no more")
            self.process.signals.raise_received()  # a signal ended the run: that says nothing of this case
            unseen = recorder.status is Status.PASS and not recorder.phases >= {"setup", "teardown"}
            fault = device_fault()
            if fault is not None and (recorder.fault_named or _LEFT in recorder.diagnosis):  # the failure says so
                with contextlib.suppress(OSError):
                    recorder.keep_artefacts()
                self._watchdog.finish(recorder)
            elif fault is not None:
                recorder.fault = fault_of_text(fault)
                self._watchdog.finish(recorder, Status.CRASH, _with_fault(recorder.diagnosis, fault))
            self._restore(self._state)
            if recorder.status in FAILING:  # a case may have changed pytest, which fails at once then
                self._restore(self._tools)
            if names := left_threads.left(threads, item.path.parent):
                self._spoil(f"left threads running, which could disturb later cases: {', '.join(names)}")
                self.process.signals.suspect = f"; it may come from a thread that {case} has left"
            self._write(case, recorder, self._unreported or (_UNSEEN if unseen else ""))
            if (self._spoiled or unseen) and self.process.end_of_run is None:
                self._watchdog.finish(recorder)  # the next case gets a new process
        device_state.give_back(device_state.KEPT)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        """Restores what the function changed of its process before any other code runs."""
        recorder = self._recorder(pyfuncitem)
        if recorder is None:
            return (yield)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.close = _stay_open  # type: ignore[method-assign]  # the process needs it after the case, too
        state = ProcessState()
        try:
            result = yield
        finally:
            self._restore(state)
        if self._spoiled:
            raise RuntimeError(self._spoiled)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Has what a fixture of a suite or a conftest changes of its process restored when the fixture has ended."""
        of_tools = str(getattr(fixturedef.func, "__module__", "")).startswith(("_pytest.", "conformance.plugin."))
        if not of_tools and self._recorder(request._pyfuncitem) is not None:
            fixturedef.addfinalizer(partial(self._give_back, ProcessState()))
        return (yield)

    def _give_back(self, state: ProcessState) -> None:
        self._restore(state)
        if self._spoiled:
            raise RuntimeError(self._spoiled)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, Any]:
        with self._own_process():
            return (yield)

    @contextlib.contextmanager
    def _own_process(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._end_fork()

    def _end_fork(self) -> None:
        end_fork(self._process_id)

    def _restore(self, state: ProcessState) -> bool:
        """Restores ``state``, and notes what was changed. What cannot be restored fails the case. Returns True if
        something was restored."""
        restored, lost = state.restore()
        self._end_fork()
        self._restored |= dict.fromkeys(restored)
        if lost:
            self._spoil(left_changed(lost))
            if self._current is not None and not self._changed_for_ever:
                self._changed_for_ever = f"{self._current[1].case} {left_changed(lost)}"
        return bool(restored)

    def _spoil(self, why: str) -> None:
        """Fails the case, and has a worker end after it."""
        self._spoiled = why
        self._unreported = self._unreported or why

    def _write(self, case: str, recorder: CaseRecorder, failure: str = "") -> None:
        """Writes the record of ``case``, which failed if there is a ``failure``. If the case has spoiled its
        ``recorder``, a bare record takes its place."""
        try:
            try:
                if self._restored:
                    recorder.set(observed={RESTORED: [*self._restored]})
                if failure and failure not in recorder.diagnosis:
                    recorder.conclude(Status.FAIL, failure)
                if recorder.status not in (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN):
                    recorder.keep_artefacts()  # a failure is read later, and elsewhere
                record = replace(recorder.record(), case=case)
            except OSError:
                raise
            except Exception as error:
                text = "\n".join(filter(None, (failure, f"{_SPOILED}: {text_of(error)}")))
                record = CaseRecord(
                    case,
                    case_ids.suite_of(case),
                    Status.FAIL,
                    tier=self.settings.tier,
                    seed=self.settings.seed,
                    stack=self.process.stack,
                    worker=self.process.name,
                    gpu=self.process.gpu,
                    outcome="failed",
                    diagnosis=text,
                )
            self.file.write(record)
        except OSError as error:
            self._stop(error)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:
        recorder = self._recorder(item)
        if recorder is not None:
            for mark in item.iter_markers("proves_at_most"):
                recorder.proves_at_most(*mark.args, **mark.kwargs)
        with self._contained():
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, None]:
        with self._contained():
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        with environment_restored(), self._contained():
            yield
        recorder = self._recorder(item)
        if recorder is not None and recorder.unjudged is not None:
            recorder.not_run(recorder.unjudged)

    def lacks(self, nodeid: str) -> bool:
        """Returns True if ``nodeid`` is that of a case whose record was not written."""
        case = self.case_ids(nodeid)
        return case is not None and not self.file.has(case)

    def _recorder(self, item: pytest.Item) -> CaseRecorder | None:
        """Returns the recorder of ``item``; None if it is no case."""
        return self._current[1] if self._current is not None and self._current[0] is item else None

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        """Inside, an exception fails its case and ends nothing else. One whose own code fails is replaced, because
        pytest and other plugins print it. pytest.exit is a failure of the case if this process is a worker, whose end
        xdist could not explain. Elsewhere a person may have left a debugger with it. KeyboardInterrupt ends the run
        only if a signal caused it."""
        signals = self.process.signals
        try:
            with self._own_process():
                yield
        except TypedSkip:
            raise
        except KeyboardInterrupt as error:
            if signals.received or not signals.interrupts:
                raise
            text = "KeyboardInterrupt was raised, but no signal was received; a case cannot interrupt the run"
            raise RuntimeError(text) from error
        except pytest.exit.Exception as error:
            if self.process.end_of_run is not None:
                raise
            text = f"pytest.exit was called: {words_of(error)}; a case cannot end the run of all workers"
            raise RuntimeError(text) from printable(error)
        except BaseException as error:
            replacement = printable(error)
            if replacement is error:
                raise
            raise replacement from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, pytest.TestReport]:
        recorder = self._recorder(item)
        if recorder is None:
            return cast(pytest.TestReport, (yield))
        report: pytest.TestReport
        try:
            report = yield
        except BaseException as error:  # code of the case runs in pytest's hooks, too
            report = _report_of_failure(item, call, f"{_UNREPORTED}: {text_of(error)}")
        try:
            self._take(recorder, report, call)
        except BaseException as error:
            self._unreported = f"{_UNREPORTED}: {text_of(error)}"
            _mark_failed(report, self._unreported)
        return report

    def _take(self, recorder: CaseRecorder, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Records one phase of the case, and makes its report safe to print."""
        self.process.stack.update(imported_versions())  # the recorder's stack, too
        self._record_phase(recorder, report, call)
        recorder.phases.add(report.when)
        if self._spoiled and report.when == "call" and not report.failed:
            _fail(recorder, report, self._spoiled)
        for name in ("sections", "user_properties", "keywords"):  # a case may have added anything
            setattr(report, name, encodable(getattr(report, name)))
        if report.failed:
            safe = log_safe(encodable(report.longreprtext))
            if safe != report.longreprtext:  # terminals refuse lone surrogates, and logs run commands
                report.longrepr = safe
            report.sections = [(title, log_safe(text)) for title, text in report.sections]
            report.sections.append(("conformance: reproduce with", recorder.record().repro))
        if report.when == "call" or not report.passed:
            outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            recorder.outcome = outcome if report.when == "call" else f"{outcome} in {report.when}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        """Escapes lone surrogates, which no channel takes, in what a worker sends."""
        return encodable((yield))

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        text = str(warning_message.message)
        safe = log_safe(encodable(text))
        if safe != text:
            warning_message.message = safe

    def _record_phase(self, recorder: CaseRecorder, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Records one phase of the test: setup, call or teardown.

        A phase that broke a rule of the harness, such as a skip without a typed reason, is recorded as failed.
        """
        error = call.excinfo.value if call.excinfo is not None else None
        if isinstance(error, TypedSkip) and report.skipped:
            recorder.conclude(error.status, reason=error.reason)
        elif report.skipped or hasattr(report, "wasxfail"):
            why = getattr(report, "wasxfail", "") or (words_of(error) if error is not None else "")
            text = f"skip or xfail without a typed reason ({why}): use recorder.not_applicable or recorder.not_run"
            _fail(recorder, report, text)
        elif error is not None:
            status, text, of_machine = status_of(error)
            if not isinstance(error, (ConformanceFailure, CompileFailure)) and status is Status.FAIL:
                setattr(report, RAISED, True)
            if isinstance(error, ConformanceFailure):
                of_machine = fault_of_checks(recorder.verdicts)
            fault = None if recorder.fault_named else device_fault()
            if fault is not None:  # told to pytest now, so that an entry that expects a crash excuses this report, too
                status, text, of_machine = Status.CRASH, _with_fault(text, fault), fault_of_text(fault)
            self._record_failure(recorder, report, status, text, of_machine)
        elif report.failed:
            self._record_failure(recorder, report, Status.FAIL, report.longreprtext, None)
        if report.when == "teardown" and (report.passed or recorder.status is Status.EXPECTED_FAIL):
            self._check_end(recorder, report)

    def _record_failure(
        self, recorder: CaseRecorder, report: pytest.TestReport, status: Status, diagnosis: str, fault: Fault | None
    ) -> None:
        """Records a failure. If an entry expects it, the phase is reported as failed as expected. No entry expects a
        ``fault`` of the machine."""
        fault = fault_without_wrong_results(fault, recorder.verdicts)
        if fault is not None:
            text = f"{diagnosis}\n{fault}"
            recorder.conclude(status, text, fault=fault)
            _mark_failed(report, text)
            return
        outcome = self.settings.expected_failures.failure(recorder.record(), status, diagnosis)
        if outcome.status is not Status.EXPECTED_FAIL and (fault := recorder.cache_fault()) is not None:
            recorder.conclude(status, f"{diagnosis}\n{fault}", fault=fault)
            _mark_failed(report, f"{diagnosis}\n{fault}")
            return
        recorder.conclude(outcome.status, outcome.diagnosis, outcome.reason)
        if outcome.status is Status.EXPECTED_FAIL:
            recorder.set(observed=outcome.observed)
            mark_xfailed(report, str(outcome.reason))
        elif not report.failed:
            _mark_failed(report, outcome.diagnosis)

    def _check_end(self, recorder: CaseRecorder, report: pytest.TestReport) -> None:
        """Fails a case that has not failed, or only as expected, for one of three reasons. It judged nothing, or a
        check failed in addition to the expected ones, or it passed although an entry says that it always fails."""
        objection = recorder.objection()
        if objection is None and self._foreseen_size > LINE_LIMIT // 2:  # what is small is checked when it is written
            objection = record_files.objection(recorder.record()) or None
        if objection is not None:
            self._record_failure(recorder, report, Status.FAIL, objection, fault_of_checks(recorder.verdicts))
        elif recorder.status is Status.EXPECTED_FAIL:
            failed = [verdict for verdict in recorder.verdicts if not verdict.passed]
            others = [verdict for verdict in failed if not _is_in_diagnosis(verdict, recorder.diagnosis)]
            if others:
                text = f"check {others[0].check} failed in addition to the expected failure: {others[0].text}"
                _fail(recorder, report, text)
        elif recorder.status is Status.PASS:
            outcome = self.settings.expected_failures.success(recorder.record())
            if outcome is not None:
                recorder.conclude(outcome.status, outcome.diagnosis, outcome.reason)
                _mark_failed(report, outcome.diagnosis)

    def _foresee(self, recorder: CaseRecorder) -> None:
        stage = f" in stage {recorder.stage}" if recorder.stage else ""
        died = recorder.record(Status.CRASH, f"the process died while it ran this case{stage}")
        try:
            self._foreseen_size = self.file.foresee(died)
        except OSError as error:
            if self._restore(self._state):  # the case had lowered a limit
                self._foresee(recorder)
            else:
                self._stop(error)

    def _stop(self, error: OSError) -> None:
        """Ends the run, whose records cannot be written because of ``error``. The machine is to blame for that unless a
        case has changed the process."""
        if self._changed_for_ever and self.process.end_of_run is not None:
            self._session.shouldstop = ends_the_run(self._changed_for_ever)
        else:
            self._session.shouldstop = cannot_write(self.process.folder, error)

    def _end(self, record: CaseRecord) -> None:
        # to others the expected failures were applied
        if record.status in (Status.CRASH, Status.TIMEOUT) and record.fault is None:
            record = self.settings.expected_failures.applied(record)
        self.file.write(record)
        if self.process.end_of_run is not None:
            self.process.end_of_run(record)

    def _repro(self, case: str) -> str:
        """Returns a command line that runs this one case as it was run here."""
        return f"{_COMMAND} {shlex.quote(case)} {self._options}"


#: The diagnosis of a case whose test was run elsewhere, where its recorder is not.
_UNSEEN = (
    "no end of this test was seen here: an option or a plugin runs tests in processes of its own; leave it out. A "
    "worker of xdist that dies is replaced"
)


#: How the diagnosis begins of a case whose own code, or a plugin's, raised in a hook.
_UNREPORTED = "no report could be made of this case, because its code or a plugin's raised in a hook"
_SPOILED = "no record could be made of this case, because it has changed its recorder"
#: What a diagnosis says of a case after which its process can use the GPU no more.
_LEFT = "left its GPU unusable: "


def _with_fault(diagnosis: str, fault: str) -> str:
    return "\n".join(filter(None, (diagnosis, _LEFT + fault)))


#: How the sentence begins with which a run ends whose records cannot be written.
CANNOT_WRITE = "cannot write records to"


def cannot_write(folder: Path, error: Exception) -> str:
    """Returns the last sentence of a run whose records cannot be written."""
    return f"{CANNOT_WRITE} {folder} ({getattr(error, 'strerror', None) or error}): the run ends here"


#: Types of plain data that every channel takes.
_SENT = frozenset({type(None), bool, int, float, complex, bytes})


def encodable(value: Any) -> Any:
    """Returns ``value`` as plain data that every channel takes. Lone surrogates are escaped in its texts: they are no
    text elsewhere. What is no plain data becomes text."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if kind in _SENT:
        return value
    if kind is dict:
        return {encodable(key): encodable(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(encodable, value))
    try:
        for plain in (int, float, dict, list, tuple):
            if issubclass(kind, plain):
                return encodable(plain(value))
        return encodable(str.__str__(str(value)))
    except BaseException as error:  # the case's own code
        return text_of(error)


_COMMAND = f"python -m pytest --pyargs {case_ids.SUITES_PACKAGE} --conformance-case"


def _options(settings: Settings) -> str:
    """Returns the words of the command line that every case of a run has."""
    words = ["--conformance-tier", settings.tier]
    words += [word for target in settings.targets for word in ("--conformance-target", target)]
    if settings.seed != DEFAULT_SEED:
        words += ["--conformance-seed", str(settings.seed)]
    if settings.repeats != 1:
        words += ["--conformance-repeats", str(settings.repeats)]
    if not settings.has_gpu:
        words.append("--conformance-no-gpu")
    words += [f"--conformance-expected-failures={file}" for file in settings.expected_failure_files]
    if settings.calibration is not None:
        words.append(f"--conformance-calibration={settings.calibration}")
    return shlex.join(words)


def _is_in_diagnosis(verdict: Verdict, diagnosis: str) -> bool:
    """True if ``diagnosis`` names a failed ``verdict``: by its text, or by its check if it has none."""
    return (verdict.text or str(verdict.check)) in diagnosis


def _fail(recorder: CaseRecorder, report: pytest.TestReport, text: str) -> None:
    recorder.conclude(Status.FAIL, text)
    _mark_failed(report, text)


def _mark_failed(report: pytest.TestReport, text: str) -> None:
    report.outcome = "failed"
    report.longrepr = log_safe(encodable(text))  # pytest prints it as it is
    if hasattr(report, "wasxfail"):
        del report.wasxfail


def _stay_open() -> None:
    """Stands for the method that closes a standard stream."""


def _report_of_failure(item: pytest.Item, call: pytest.CallInfo[None], text: str) -> pytest.TestReport:
    """Returns the report of a phase that failed with ``text``."""
    return pytest.TestReport(
        str(item.nodeid),
        item.location,
        {},
        "failed",
        log_safe(encodable(text)),
        cast(Literal["setup", "call", "teardown"], call.when),
        duration=call.duration,
        start=call.start,
        stop=call.stop,
    )


def mark_xfailed(report: pytest.TestReport, why: str) -> None:
    """Reports a phase as failed as expected, as pytest does for an xfail."""
    report.outcome = "skipped"
    report.wasxfail = why
