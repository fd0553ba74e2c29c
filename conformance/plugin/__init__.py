"""The pytest plugin: it turns tests of the suites into recorded cases. It does nothing for other tests.

The entry point has this module's name, so that a checkout's conftest and an install load one plugin, not two.
Modules here import torch and triton only after the environment has been prepared.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.execution.compile.fork_server import RUN_VARIABLE
from conformance.gate.runs.run_environment import environment
from conformance.judging.settings import Settings
from conformance.machine import overdue, process_exit, stacks
from conformance.machine.entry_point_loading import VARIABLE as LEFT_OUT_VARIABLE
from conformance.machine.environment_faults import fault_of_error
from conformance.machine.gpus import Gpus, core_count, lacking, worker_count, worker_environment
from conformance.machine.open_files import too_few_files
from conformance.machine.thread_limit import too_few_threads
from conformance.machine.versions import machine_stack
from conformance.plugin import (
    case_ids,
    fixtures,
    keyword_filter,
    options,
    parametrisation,
    ray_workers,
    refused_options,
)
from conformance.plugin.case_hooks import CaseProcess, ItemRecording, encodable, end_fork
from conformance.plugin.case_ids import CaseIds, is_active
from conformance.plugin.case_reports import CaseReports, GuardedOutput, open_closed_streams
from conformance.plugin.collection_watch import CollectionWatch
from conformance.plugin.compile_stage import CannotCut, RunStage, kernels_of
from conformance.plugin.filters import NEIGHBOURS, Collecting
from conformance.plugin.fixtures import recorder
from conformance.plugin.fresh_pytest import FreshPytest
from conformance.plugin.outside import Outside, load_packages, remember
from conformance.plugin.progress import RunProgress
from conformance.plugin.record_files import breakage_file, refusal_file, stacks_file
from conformance.plugin.reruns import Reruns
from conformance.plugin.resuming import Resume, begins_again
from conformance.plugin.run_faults import INFRASTRUCTURE, MACHINE_ENDED, MachineErrors
from conformance.plugin.session_hooks import JUNIT_FILE, SessionRun, new_folder, own_stderr
from conformance.plugin.sharding import Sharding, ShardListing
from conformance.plugin.shared_collection import SharedCollection
from conformance.plugin.shared_teardown import LeaderDeadline, SharedTeardown
from conformance.plugin.suspect_gpus import SuspectGpus
from conformance.plugin.worker_end import WorkerEnd
from conformance.plugin.worker_imports import INDUCTOR_IMPORT, INDUCTOR_SUITES, WorkerImports
from conformance.plugin.worker_warnings import WorkerWarnings
from conformance.user_files.run_options import joined

__all__ = ["recorder"]  # a fixture is known by being here

_OUTPUT = pytest.StashKey[GuardedOutput]()
#: Seconds in which plugins and conftest files must be imported; the options are not read yet.
IMPORTS_S = 300.0
#: Variables with the name of the user, from which pytest makes the name of its temporary folder.
USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
#: Replacing a worker is how a crash or a hang costs one case only, so xdist's default limit is not ours.
WORKER_RESTARTS = 100_000


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, Any, Any]:
    _begin_anew(early_config)
    if "stdout" in open_closed_streams():
        _guarded_output(early_config).error = OSError(errno.EBADF, "the standard output is closed")
    _guarded_output(early_config)  # before capturing begins, so that its cleanup comes after the end of that
    suites = case_ids.early_selects_suites(early_config)
    if suites:
        options.add_short_names(parser)
        refused_options.check_debug_file(getattr(early_config.known_args_namespace, "debug", None))
        if (
            "PYTEST_XDIST_WORKER" not in os.environ
        ):  # a conftest may keep what it finds in os for the end of the process
            early_config.add_cleanup(process_exit.refuse("the run"))
    process = os.getpid()
    try:
        with overdue.deadline("the import of plugins and conftest files", IMPORTS_S) if suites else nullcontext():
            result = yield
    except overdue.Overdue as error:
        raise pytest.UsageError(str(error)) from None
    finally:
        if suites:
            end_fork(process)
    if suites:
        options.refuse_unusable(parser, args)
    return result


def _guarded_output(config: pytest.Config) -> GuardedOutput:
    """The guard of this run's streams; a new one where the plugin was loaded by a checkout that is not installed."""
    if _OUTPUT not in config.stash:
        config.stash[_OUTPUT] = GuardedOutput()
        config.add_cleanup(config.stash[_OUTPUT].settle)
    return config.stash[_OUTPUT]


def _begin_anew(config: pytest.Config) -> None:
    """Runs pytest again with ``--run-dir=DIR`` if it has taken the DIR of ``--run-dir DIR`` for a place of tests."""
    invocation = config.invocation_params
    places = {str(path) for path in config.known_args_namespace.file_or_dir}
    separate = _joined(invocation)
    if places & {str(word) for word in invocation.args} - {str(word) for word in separate.args}:
        raise SystemExit(pytest.main(list(separate.args), plugins=invocation.plugins))


def _joined(invocation: pytest.Config.InvocationParams) -> pytest.Config.InvocationParams:
    """Returns the same with each path joined to its option, for the command line of the workers."""
    words = joined([str(word) for word in invocation.args])
    return type(invocation)(args=tuple(words), plugins=invocation.plugins, dir=invocation.dir)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    if not is_active(config):
        return None  # xdist's own answer
    return worker_count(len(options.settings(config).gpus.entries), core_count())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if not is_active(config):
        return None  # xdist's own
    from conformance.plugin.share_scheduling import LastingScheduling, ShareScheduling

    return (LastingScheduling if options.settings(config).interprets else ShareScheduling)(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Without ``-n`` one worker runs the cases, so that one that dies costs one case. ``-n 0``, a debugger and
    ``-s`` keep them in this process. What only looks needs no worker."""
    option = config.option
    if hasattr(config, "workerinput") or not is_active(config):
        return (yield)
    if not _only_looks(config):
        refused_options.check(config)
        if option.conformance_ray is not None:
            ray_workers.join_cluster(config)
    elif hasattr(option, "numprocesses"):
        option.numprocesses = 0
    here = getattr(option, "capture", "no") == "no" or any(  # without its plugin nothing is captured either
        getattr(option, name, False) for name in ("usepdb", "trace")
    )
    untold = getattr(option, "numprocesses", 0) is None and option.dist == "no" and not option.tx
    if untold and not here:
        option.numprocesses = 1
    try:
        return (yield)
    except Exception as error:
        fault = None if isinstance(error, pytest.UsageError) else fault_of_error(error)
        if fault is None:
            raise
        print(f"conformance: {MACHINE_ENDED}: {fault.text}", file=sys.__stderr__)
        return INFRASTRUCTURE


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not is_active(config):
        return
    config.addinivalue_line(
        "markers", "slow(seconds): a case takes about so long on a device, and the longest begin first"
    )
    config.addinivalue_line(
        "markers",
        "timed(when): the cases whose parameters, by their names, 'when' accepts need a device alone and come last",
    )
    config.addinivalue_line(
        "markers",
        "proves_at_most(level, why): --require asks no more of the cases of this test, such as 'nothing' if no kernel "
        "is run; without_device=True if a device proves more",
    )
    config.addinivalue_line("markers", "no_case: stands for a scenario without a case on the chosen targets")
    if hasattr(config, "workerinput"):
        _configure_worker(config, config.workerinput)
    else:
        _configure_main(config)


def _configure_main(config: pytest.Config) -> None:
    """The process that the user started: it leads the workers, or runs the cases itself if there are none."""
    workers = _workers(config)
    config.pluginmanager.register(MachineErrors(), "conformance-machine-errors")
    if text := too_few_files(workers) or too_few_threads(workers):
        pytest.exit(text, returncode=INFRASTRUCTURE)
    settings, ids = options.settings(config), CaseIds(config)
    if workers > 1 and case_ids.selects_package(config):
        imports = WorkerImports([INDUCTOR_IMPORT] if _surely_needs_inductor(config, settings) else [])
        config.option.tx = [imports.specification if spec == "popen" else spec for spec in config.option.tx]
        if settings.ray is None:
            config.pluginmanager.register(imports, "conformance-worker-imports")
    suites = case_ids.selects_package(config)
    options.check_names(config, settings, ids.suites)
    if suites:
        options.check_packages()
    if workers:
        options.check_encodable([str(config.invocation_params.dir), str(config.rootpath), *_words(config)])
        _name_user(config)
    whole, expressions = _whole(config), _expressions(config)
    keyword_filter.take(config)
    config.invocation_params = _joined(config.invocation_params)
    users_environment = dict(os.environ)
    remember(settings.gpus.variable)
    _set(config, {RUN_VARIABLE: str(os.getpid())})
    gpu = None if workers else next(iter(settings.gpus.entries), None)
    if settings.require == "device" and not settings.has_gpu:
        pytest.exit(f"--require device: {lacking(settings.gpus)}", returncode=INFRASTRUCTURE)
    try:
        if suites:
            options.check_variables(os.environ)
        _prepare_process(config, gpu, max(workers, 1), executes=not workers)
    except options.BrokenEnvironment as error:
        pytest.exit(str(error), returncode=INFRASTRUCTURE)
    left_out = load_packages() if suites else {}
    if left_out:
        _set(config, {LEFT_OUT_VARIABLE: json.dumps(left_out)})
    if suites:
        settings = options.with_packages(config)
    options.check_names_with_stack(settings, ids.suites)
    if _only_looks(config):
        if settings.shard is not None:
            planned = partial(_planned_kernels, config) if suites else None
            listing = ShardListing(Sharding(settings, ids, config.invocation_params.dir, planned))
            config.pluginmanager.register(listing, "conformance-shard-listing")
        return
    output = _guarded_output(config)
    stderr = output.guard(own_stderr())
    config.add_cleanup(stderr.close)
    folder = new_folder(settings, config.invocation_params.dir)
    progress = RunProgress(config, folder, workers, ids, output)
    stage = RunStage(settings, folder, partial(parametrisation.selection, config), progress) if suites else None
    outside = Outside(settings, partial(parametrisation.selection, config), whole, left_out) if suites else None
    kernels = None if stage is None else stage.kernels
    base = config.invocation_params.dir
    sharding = Sharding(settings, ids, base, kernels)
    words = _words(config)
    reports = CaseReports(ids, words)
    invocation = config.invocation_params
    fresh = FreshPytest(settings, [*map(str, invocation.args)], invocation.dir, users_environment)
    suspects = SuspectGpus(settings.gpus if settings.ray is None else Gpus(), users_environment)  # GPUs of this machine
    reruns = Reruns(settings, fresh, suspects, workers)
    resume = None
    if settings.resume is not None and begins_again(settings.resume):
        print("conformance: the run begins again: it had not written its environment", file=stderr, flush=True)
    elif settings.resume is not None:
        stack = machine_stack(settings.gpus)
        resume = Resume(settings, environment("", "", stack, settings.gpus.names, words, ids.suites[1:]), fresh)
        config.add_cleanup(resume.unlock)
    run = SessionRun(
        *(settings, folder, max(workers, 1), ids, stderr, progress, reports, words),
        *(stage, outside, expressions, output, reruns, resume),
        sharding=sharding,
        fresh=fresh,
        cluster=config.stash.get(options.CLUSTER, None),
    )
    config.stash[fixtures.RUN_FOLDER] = folder, "main"
    config.pluginmanager.register(run, "conformance-run")
    for name, part in run.parts.items():
        config.pluginmanager.register(part, name)
    if settings.ray is not None:
        workers_of_ray = ray_workers.RayWorkers(config, folder, ids, run.starts)
        config.pluginmanager.register(workers_of_ray, "conformance-ray-workers")
        if stage is not None:
            stage.elsewhere, stage.written = workers_of_ray.compile, workers_of_ray.give
    config.pluginmanager.register(reports, "conformance-case-reports")
    config.pluginmanager.register(progress, "conformance-progress")
    if hasattr(config.option, "xmlpath") and not config.option.xmlpath:
        config.option.xmlpath = str(run.folder / JUNIT_FILE)
    own = "" if workers else ", whose cases run in pytest's own process; see '-n 1'"
    config.add_cleanup(process_exit.refuse(f"the run{own}"))  # it asks kernels of packages, too
    if not workers:
        config.option.continue_on_collection_errors = True  # as with workers: a broken file costs no other
        process = CaseProcess(run.folder, "main", gpu, run.stack, stderr, run.abort, run.signals, guarded=True)
        config.pluginmanager.register(ItemRecording(settings, process, ids), "conformance-items")
        teardown = SharedTeardown(folder, "main", settings.case_timeout_s, ids, is_worker=False)
        config.pluginmanager.register(teardown, "conformance-shared-teardown")
    else:
        config.pluginmanager.register(LeaderDeadline(settings.case_timeout_s), "conformance-leader-deadline")


def _planned_kernels(config: pytest.Config, cases: Sequence[str]) -> Mapping[str, Sequence[str]]:
    try:
        return kernels_of(options.settings(config), parametrisation.selection(config), cases)
    except CannotCut as error:
        raise pytest.UsageError(str(error)) from None


def _name_user(config: pytest.Config) -> None:
    """Gives pytest another name of the user if this one is no UTF-8: workers are told the folder that it names."""
    for variable in USER_VARIABLES:
        name = os.environ.get(variable, "")
        if encodable(name) != name:
            _set(config, {variable: "".join(filter(str.isalnum, encodable(name)))})


def _whole(config: pytest.Config) -> bool:
    """Returns True if the user narrowed the run by kernel, target and tier alone."""
    option = config.option
    return not option.conformance_suite and option.conformance_shard is None and _whole_suites(config)


def _whole_suites(config: pytest.Config) -> bool:
    """True if the user chose no cases but by suite, kernel, target and tier."""
    option = config.option
    chosen = (option.conformance_case, option.conformance_cases, option.conformance_config)
    expressions = (option.keyword, option.markexpr, option.deselect)
    named = any("::" in argument or argument.endswith(".py") for argument in config.args)
    return not named and not any((*chosen, *expressions)) and not getattr(option, "lf", False)


def _surely_needs_inductor(config: pytest.Config, settings: Settings) -> bool:
    """True if cases about Inductor's code run on a device, as far as that is known before they are collected. Without a
    device compile processes generate that code."""
    suites = settings.suites or (INDUCTOR_SUITES,)
    decided = settings.has_gpu and not settings.kernels and _whole_suites(config)
    return decided and any(suite.startswith(INDUCTOR_SUITES) for suite in suites)


def _expressions(config: pytest.Config) -> dict[str, str] | None:
    """The words by which the user chose cases, by their options; None if the run may have no case, because none failed
    before."""
    option = config.option
    if getattr(option, "lf", False) and option.last_failed_no_failures == "none":
        return None
    cases = " ".join(argument for argument in config.args if "[" in argument)
    return {"": cases, "-k": option.keyword, "-m": option.markexpr}


def _words(config: pytest.Config) -> list[str]:
    """Returns every word of the command line, wherever it was written."""
    extra = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    return [*config.getini("addopts"), *extra, *map(str, config.invocation_params.args)]


def _configure_worker(config: pytest.Config, from_main: Mapping[str, Any]) -> None:
    """A worker of xdist; ``from_main`` is what :class:`SessionRun` told it, and learns why a worker cannot begin."""
    gpu, folder = from_main["conformance_gpu"], Path(from_main["conformance_folder"])
    try:
        _prepare_process(config, gpu, from_main["conformance_workers"], executes=True)
    except options.BrokenEnvironment as error:
        breakage_file(folder, from_main["workerid"]).write_text(str(error), encoding="utf-8")
        raise pytest.UsageError(str(error)) from None
    except pytest.UsageError as error:
        refusal_file(folder, from_main["workerid"]).write_text(str(error), encoding="utf-8")
        raise
    local = from_main["conformance_local"]
    if local:
        stacks.end_with_parent()
    process = CaseProcess(folder, from_main["workerid"], gpu, dict(from_main["conformance_stack"]), guarded=not local)
    config.stash[fixtures.RUN_FOLDER] = process.folder, process.name
    settings = options.with_packages(config) if case_ids.selects_package(config) else options.settings(config)
    recording = ItemRecording(settings, process, CaseIds(config))
    config.pluginmanager.register(recording, "conformance-items")
    config.pluginmanager.register(WorkerEnd(folder, process.name, recording.lacks), "conformance-worker-end")
    config.pluginmanager.register(WorkerWarnings(), "conformance-worker-warnings")
    teardown = SharedTeardown(folder, process.name, settings.case_timeout_s, CaseIds(config), is_worker=True)
    config.pluginmanager.register(teardown, "conformance-shared-teardown")


def _workers(config: pytest.Config) -> int:
    """Processes that xdist will start for this run; 0 without it. Sees to it that it can replace those that die."""
    mode = getattr(config.option, "dist", "no")
    if mode == "no" or not config.option.tx or _only_looks(config):
        return 0
    if mode != "load":
        raise pytest.UsageError(f"--dist={mode}: after a worker died this mode hangs or repeats cases; use --dist=load")
    if config.option.maxworkerrestart is None:
        config.option.maxworkerrestart = str(WORKER_RESTARTS)
    settings = options.settings(config)
    if config.option.maxschedchunk is None and not settings.interprets:
        # Neighbours share their fills, but the slow cases are neighbours too, and one worker would get them all. In the
        # interpreter all neighbours stay together: it computes for long what they share.
        config.option.maxschedchunk = NEIGHBOURS
    return len(config.option.tx)


def _only_looks(config: pytest.Config) -> bool:
    """True if pytest was asked to list something rather than to run."""
    names = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan", "cacheshow")
    return any(getattr(config.option, name, None) for name in names)


def _prepare_process(config: pytest.Config, gpu: str | None, workers: int, executes: bool) -> None:
    """Sets the environment before torch and triton read it, and loads what needs them. ``executes``: whether this
    process collects and runs cases; if not, it only passes the environment on."""
    settings = options.settings(config)
    overdue.LIMIT_S = settings.case_timeout_s
    interpret = not settings.has_gpu
    if executes and interpret and "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise pytest.UsageError(
            "triton was imported before the conformance plugin could choose its interpreter (no GPU was found, "
            "or --no-gpu was given). Find the conftest or plugin that imports it, or set TRITON_INTERPRET=1"
        )
    _set(config, worker_environment(settings.gpus, gpu, interpret, workers))
    if executes:
        if not hasattr(config, "workerinput"):  # a worker ends now: pytest looks for garbage five times before it does
            config.add_cleanup(gc.unfreeze)
        collecting = Collecting(settings, CaseIds(config), keyword_filter.take(config))
        config.pluginmanager.register(collecting, "conformance-collecting")
        config.pluginmanager.register(_collection_watch(config, settings), "conformance-collection-watch")
        if case_ids.selects_package(config):
            _load_judging(config)


def _collection_watch(config: pytest.Config, settings: Settings) -> CollectionWatch:
    from_main = getattr(config, "workerinput", None)
    if from_main is None:
        return CollectionWatch(settings.case_timeout_s)
    folder, worker = Path(from_main["conformance_folder"]), from_main["workerid"]
    overdue.stuck = partial(overdue.write_stacks, stacks_file(folder, worker))
    return CollectionWatch(settings.case_timeout_s, folder, worker)


def _load_judging(config: pytest.Config) -> None:
    """Registers what gives the package's suites their cases and their fixtures; torch and triton come with it."""
    options.check_stack()
    try:
        importlib.import_module("conformance.judging.inductor_judge")
    except (ImportError, OSError) as error:
        if (getattr(error, "name", None) or "").startswith("conformance"):
            raise
        raise pytest.UsageError(
            f"the conformance suites need torch and triton: {error}; install your vendor's build, or "
            "triton-conformance[stack]"
        ) from None
    options.check_gpus(options.settings(config))
    options.take_calibration(config)
    cases = parametrisation.Parametrisation()
    config.pluginmanager.register(cases, "conformance-parametrisation")
    if hasattr(config, "workerinput"):
        folder = Path(config.workerinput["conformance_folder"])
        if config.workerinput["conformance_shares"]:
            config.pluginmanager.register(SharedCollection(folder, cases), "conformance-shared-collection")
    config.pluginmanager.register(fixtures, "conformance-fixtures")


def _set(config: pytest.Config, environment: Mapping[str, str]) -> None:
    """Sets the variables of ``environment`` for as long as pytest runs."""
    for variable, value in environment.items():
        config.add_cleanup(partial(_restore, variable, os.environ.get(variable)))
        os.environ[variable] = value


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value
