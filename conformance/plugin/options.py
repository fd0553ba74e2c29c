"""The command-line options, and the settings made of them.

The options are declared in :mod:`conformance.user_files.run_options`. Each is always known as ``--conformance-<name>``.
The short ``--<name>`` exists only where the suites are selected, because another project's conftest may define a
``--seed`` or ``--target`` of its own.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from conformance.cases import known_names
from conformance.judging.settings import Settings
from conformance.machine.gpus import Gpus, find_gpus, unusable
from conformance.machine.near_names import did_you_mean
from conformance.machine.versions import unloadable
from conformance.plugin import case_ids
from conformance.plugin.case_ids import suite_of
from conformance.ray_cluster.cluster import Cluster
from conformance.shards.numbers import ShardError, ShardNumber, shard_number
from conformance.user_files.case_list import CaseListError, read_case_list
from conformance.user_files.expected_failures import ExpectedFailures, read_expected_failures, with_kernels
from conformance.user_files.run_options import (
    DEFAULT_CASE_TIMEOUT_S,
    DEFAULT_RERUNS,
    DEFAULT_SEED,
    KERNELS_MAY_BE_LOST,
    OPTIONS,
    TIERS,
)
from conformance.user_files.toml_entries import EntryError

#: The group in which packages name kernels.
OUTSIDE_KERNELS = "conformance.kernels"
MOST_REPEATS = 10_000
MOST_RERUNS = 100
LONGEST_CASE_S = 31_536_000.0  # a year; clocks of the system take no more than some
DEBUGGER_CASE_TIMEOUT_S = 86_400.0  # with --pdb a person is at work


def add_options(parser: pytest.Parser) -> None:
    """Adds the ``--conformance-`` options and the ini option that names the folders of suites."""
    group = parser.getgroup("conformance", "conformance suites")
    for option in OPTIONS:
        group.addoption(option.long, dest=option.dest, default=None, **option.attributes)
    parser.addini(
        case_ids.SUITES_INI,
        "directories whose tests are recorded as conformance cases, in addition to the package's own",
        type="paths",
        default=[],
    )


def add_short_names(parser: pytest.Parser) -> None:
    """Adds ``--tier`` and the like; again is harmless."""
    group = parser.getgroup("conformance, short names")
    if not group.options:
        for option in OPTIONS:
            if option.short:
                group.addoption(option.short, dest=option.dest, default=None, **option.attributes)


def refuse_unusable(parser: pytest.Parser, words: list[str]) -> None:
    """Raises pytest.UsageError, in one sentence, for ``words`` of the command line that pytest would refuse with its
    usage. These are unknown options and values that cannot be read."""
    try:
        unknown = parser.parse_known_and_unknown_args(words)[1]
    except pytest.UsageError as error:
        raise pytest.UsageError(str(error).partition("error: ")[2].splitlines()[0] or str(error)) from None
    if unknown:
        name = unknown[0].partition("=")[0]
        names = [option.short or option.long for option in OPTIONS]
        near = did_you_mean(name, names) if difflib.get_close_matches(name, names) else "see pytest --help"
        raise pytest.UsageError(f"{name}: there is no such option; {near}")


def check_encodable(texts: Sequence[str]) -> None:
    """Raises pytest.UsageError if one of ``texts``, paths and words of the command line, is not UTF-8: no worker can be
    told it."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise pytest.UsageError(
                f"{text!a}: workers need paths and options in UTF-8, and this is none; rename it, or give -n 0"
            ) from None


#: What the suites import, and how it is installed.
NEEDED = ("torch", "triton", "numpy", "filecheck", "expecttest", "msgspec")


def check_packages() -> None:
    """Raises pytest.UsageError if a package is missing without which no case of the package's suites is judged."""
    specs = {name: importlib.util.find_spec(name) for name in NEEDED}
    missing = [
        name for name, spec in specs.items() if spec is None or spec.origin is None
    ]  # None: a folder of its name
    if missing:
        stack = "install your vendor's build, or triton-conformance[stack]"
        advice = stack if {*missing} & {"torch", "triton"} else f"pip install {' '.join(missing)}"
        raise pytest.UsageError(f"the conformance suites need {', '.join(missing)}: {advice}")


def check_stack() -> None:
    """Raises pytest.UsageError if torch or triton is installed and broken. Imports both, so the environment must have
    been prepared."""
    broken = unloadable()
    if broken is not None:
        raise pytest.UsageError(
            f"the conformance suites need torch and triton: {broken}; install your vendor's build, or "
            "triton-conformance[stack]"
        )


class BrokenEnvironment(Exception):
    """The machine, and not the command line, is why the run cannot begin."""


def check_variables(environ: Mapping[str, str]) -> None:
    """Raises :class:`BrokenEnvironment` for a variable with which Triton cannot compile what a case judges."""
    if environ.get("TRITON_STORE_BINARY_ONLY", "").lower() in ("1", "on", "true", "yes", "y"):
        raise BrokenEnvironment(
            "TRITON_STORE_BINARY_ONLY is set: Triton keeps the binary alone, and cases judge every stage; unset it"
        )
    manager = environ.get("TRITON_CACHE_MANAGER", "")
    module = manager.partition(":")[0]
    try:
        missing = bool(manager) and find_spec(module) is None
    except (ImportError, ValueError):
        missing = True
    if missing:
        raise BrokenEnvironment(
            f"TRITON_CACHE_MANAGER={manager}: there is no module {module!r}; unset it, or install it"
        )


def check_gpus(chosen: Settings) -> None:
    """Raises :class:`BrokenEnvironment` if torch cannot use the GPUs of this run, or if what ``--require`` needs is not
    here. Imports torch and triton, so the environment must have been prepared."""
    if chosen.has_gpu:
        import torch

        from conformance import targets

        if targets.devices():
            return
        if not chosen.gpus.listed:
            raise pytest.UsageError(
                f"--gpus {len(chosen.gpus.entries)}: torch sees no GPU here; leave it out, or check the driver"
            )
        cuda, hip = torch.version.cuda, torch.version.hip
        built_for = f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else ""
        raise BrokenEnvironment(unusable(chosen.gpus, torch.__version__, built_for))
    if chosen.require == "interpreted":
        from conformance.execution.interpreter.executor import InterpreterExecutor, InterpreterUnsupported

        try:
            InterpreterExecutor()
        except InterpreterUnsupported as error:
            raise BrokenEnvironment(f"--require interpreted: {error.reason.detail}") from None


def check_names(config: pytest.Config, chosen: Settings, suites: Sequence[Path]) -> None:
    """Raises pytest.UsageError for a place, suite, test or target that there cannot be. Needs no torch and triton.

    ``suites``: the folders of suites, the package's own first."""
    try:
        known_names.check_places(config.args, config.invocation_params.dir, config.option.pyargs)
        known_names.check_suites(chosen.suites, suites)
        if chosen.case is not None:
            known_names.check_suites([suite_of(chosen.case)], suites, f"--conformance-case {chosen.case}: suite")
            if "::" not in chosen.case:
                raise known_names.UnknownName(
                    f"--conformance-case {chosen.case}: the id of a case is required; 'conformance list' prints them"
                )
            known_names.check_test(chosen.case, "--conformance-case")
        for case in sorted(chosen.case_list or ()):
            known_names.check_suites([suite_of(case)], suites, f"--cases {chosen.case_file}: {case}: suite")
            known_names.check_test(case, f"--cases {chosen.case_file}:")
        known_names.check_target_spelling(chosen.targets)
    except known_names.UnknownName as error:
        raise pytest.UsageError(str(error)) from None
    if chosen.compiled is not None and not chosen.compiled.is_dir():
        raise pytest.UsageError(
            f"--compiled {chosen.compiled}: there is no such folder; 'conformance precompile' makes it"
        )
    if chosen.compiled is not None and not any(chosen.compiled.iterdir()):
        raise pytest.UsageError(f"--compiled {chosen.compiled}: an empty folder; 'conformance precompile' fills it")
    if chosen.reproducers is not None and chosen.reproducers.exists() and not chosen.reproducers.is_dir():
        raise pytest.UsageError(f"--reproducers {chosen.reproducers}: a folder is required, and this is a file")


def check_names_with_stack(chosen: Settings, suites: Sequence[Path]) -> None:
    """Raises pytest.UsageError for a target or a kernel that there is not. Imports torch and triton if some are named,
    so the environment must have been prepared. Suites other than the package's may have their own kernels."""
    if chosen.targets or chosen.kernels:
        check_stack()
    try:
        known_names.check_targets(chosen.targets)
        if len(suites) == 1 and KERNELS_MAY_BE_LOST not in os.environ:
            known_names.check_kernels(chosen.kernels)
    except known_names.UnknownName as error:
        raise pytest.UsageError(str(error)) from None


def take_calibration(config: pytest.Config) -> None:
    """Takes the arithmetic of the file of this run, until the run ends. Raises pytest.UsageError for a file that cannot
    be used, or that was measured on another class of device. Imports torch, so the environment must have been
    prepared."""
    chosen = settings(config)
    if chosen.calibration is None:
        return
    from conformance import targets
    from conformance.numerics.measured_units import (
        CalibrationError,
        forget_calibrations,
        read_calibration,
        use_calibration,
    )

    config.add_cleanup(forget_calibrations)
    try:
        use_calibration(read_calibration(chosen.calibration), targets.devices() if chosen.has_gpu else ())
    except CalibrationError as error:
        raise pytest.UsageError(f"--calibration {chosen.calibration}: {error}") from None


#: The Ray cluster of the run, which its leading process has.
CLUSTER = pytest.StashKey[Cluster]()
_SETTINGS = pytest.StashKey[Settings]()


def settings(config: pytest.Config) -> Settings:
    """The settings of this run. Raises pytest.UsageError for values that make no sense."""
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = _settings(config)
    return config.stash[_SETTINGS]


def with_packages(config: pytest.Config) -> Settings:
    """The settings of this run from now on: with what kernels of installed packages declare, such as the failures that
    they expect. Imports torch and triton if there are such kernels. Raises pytest.UsageError for a file that cannot be
    used."""
    if entry_points(group=OUTSIDE_KERNELS):
        from conformance.kernels.catalogue import declarations, outside_kernels

        files = {name: kernel.expected_failures for name, kernel in outside_kernels().items()}
        of_kernels = {name: file for name, file in files.items() if file is not None}
        chosen = settings(config)
        try:
            expected, declared = with_kernels(chosen.expected_failures, of_kernels), declarations()
        except EntryError as error:
            raise pytest.UsageError(str(error)) from None
        config.stash[_SETTINGS] = replace(chosen, expected_failures=expected, declared=declared)
    return settings(config)


def _settings(config: pytest.Config) -> Settings:
    option = config.option
    compile_only = bool(option.conformance_compile_only)
    most = 0 if option.conformance_no_gpu or compile_only else option.conformance_gpus
    if option.conformance_no_gpu and option.conformance_gpus:
        raise pytest.UsageError(f"--no-gpu contradicts --gpus {option.conformance_gpus}: give one of them")
    tier = option.conformance_tier
    if tier is not None and tier not in TIERS:
        raise pytest.UsageError(f"--tier {tier}: there is no such tier; {did_you_mean(tier, TIERS)}")
    worker = getattr(config, "workerinput", None)
    try:
        cluster = config.stash.get(CLUSTER, None)
        found = cluster.gpus if cluster is not None else None
        gpus = Gpus(**worker["conformance_gpus"]) if worker else found or find_gpus(most)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    timeout = option.conformance_case_timeout
    if timeout is not None and not 0 < timeout <= LONGEST_CASE_S:
        raise pytest.UsageError(f"--case-timeout {timeout:g}: seconds from above 0 to {LONGEST_CASE_S:g} are required")
    repeats = option.conformance_repeats
    if repeats is not None and not 1 <= repeats <= MOST_REPEATS:
        raise pytest.UsageError(f"--repeats {repeats}: a number from 1 to {MOST_REPEATS} is required")
    if repeats is not None and repeats > 1 and compile_only:
        raise pytest.UsageError(f"--repeats {repeats} contradicts --compile-only, which runs nothing: give one of them")
    reruns = DEFAULT_RERUNS if option.conformance_reruns is None else option.conformance_reruns
    if not 0 <= reruns <= MOST_RERUNS:
        raise pytest.UsageError(f"--conformance-reruns {reruns}: a number from 0 to {MOST_RERUNS} is required")
    for name in (
        "run_dir",
        "case",
        "cases",
        "calibration",
        "compiled",
        "reproducers",
        "shard",
        "durations_from",
        "resume",
        "ray",
        "device_class",
    ):
        if getattr(option, f"conformance_{name}") == "":
            raise pytest.UsageError(f"--{name.replace('_', '-')}: a value is required")
    seed = option.conformance_seed
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise pytest.UsageError(f"--seed {seed}: a number of 64 bits is required")
    workers = getattr(option, "numprocesses", None)  # a text if it is "auto", and xdist asks how many that is
    if isinstance(workers, int) and workers < 0:
        raise pytest.UsageError(f"-n {workers}: a number of workers, 0 or more, is required")
    run_dir, resume = option.conformance_run_dir, option.conformance_resume
    if run_dir and resume:
        raise pytest.UsageError(f"--resume {resume} contradicts --run-dir {run_dir}: leave --run-dir out")
    expected = tuple(option.conformance_expected_failures or ())
    case_file = config.invocation_params.dir / option.conformance_cases if option.conformance_cases else None
    return Settings(
        tier=tier or ("default" if gpus.entries else "quick"),
        targets=tuple(option.conformance_target or ()),
        kernels=tuple(option.conformance_kernel or ()),
        suites=tuple(option.conformance_suite or ()),
        seed=DEFAULT_SEED if option.conformance_seed is None else option.conformance_seed,
        run_dir=config.invocation_params.dir / run_dir if run_dir else None,
        gpus=gpus,
        case=option.conformance_case,
        case_timeout_s=timeout
        or (DEBUGGER_CASE_TIMEOUT_S if getattr(option, "usepdb", False) else DEFAULT_CASE_TIMEOUT_S * (repeats or 1)),
        expected_failure_files=expected,
        expected_failures=_expected_failures(config.invocation_params.dir, expected),
        compile_only=compile_only,
        reproducers=config.invocation_params.dir / option.conformance_reproducers
        if option.conformance_reproducers
        else None,
        compiled=config.invocation_params.dir / option.conformance_compiled if option.conformance_compiled else None,
        without_gpu=most == 0,
        configs=tuple(option.conformance_config or ()),
        case_file=case_file,
        case_list=_case_list(case_file),
        repeats=repeats or 1,
        reruns=reruns,
        calibration=_calibration(config),
        ttgir=option.conformance_ttgir or "auto",
        require=_require(config, compile_only),
        shard=_shard(config),
        resume=config.invocation_params.dir / resume if resume else None,
        ray=option.conformance_ray,
        durations_from=config.invocation_params.dir / option.conformance_durations_from
        if option.conformance_durations_from
        else None,
    )


def _shard(config: pytest.Config) -> ShardNumber | None:
    """Returns the part of the cases that is run; None for all, and in a worker, which is told its cases. Raises
    pytest.UsageError for a number that there cannot be."""
    text = config.option.conformance_shard
    if text is None and config.option.conformance_durations_from is not None:
        raise pytest.UsageError("--durations-from says how shards are cut: give --shard, too")
    if text is None or hasattr(config, "workerinput"):
        return None
    try:
        return shard_number(text, os.environ)
    except ShardError as error:
        raise pytest.UsageError(str(error)) from None


def _require(config: pytest.Config, compile_only: bool) -> str | None:
    """Returns the level of ``--require``. Raises pytest.UsageError for an option that rules it out."""
    option = config.option
    level: str | None = option.conformance_require
    without_gpu = option.conformance_no_gpu or option.conformance_gpus == 0
    against = ""
    if level is not None and compile_only:
        against = "--compile-only, which runs nothing"
    elif level == "device" and without_gpu:
        against = "--no-gpu" if option.conformance_no_gpu else "--gpus 0"
    elif level == "executed" and without_gpu and option.conformance_ttgir == "never":
        against = "--ttgir never without a GPU"
    if against:
        raise pytest.UsageError(f"--require {level} contradicts {against}: give one of them")
    return level


def _calibration(config: pytest.Config) -> Path | None:
    """The file of ``--calibration``, which can be read; whether it is of this device only torch can say."""
    name = config.option.conformance_calibration
    if not name:
        return None
    from conformance.numerics.measured_units import CalibrationError, read_calibration

    file: Path = config.invocation_params.dir / name
    try:
        read_calibration(file)
    except CalibrationError as error:
        raise pytest.UsageError(f"--calibration {name}: {error}") from None
    return file


def _case_list(file: Path | None) -> frozenset[str] | None:
    try:
        return None if file is None else read_case_list(file)
    except CaseListError as error:
        raise pytest.UsageError(f"--cases {error}") from None


def _expected_failures(base: Path, files: tuple[str, ...]) -> ExpectedFailures:
    try:
        return read_expected_failures(base / file for file in files)
    except EntryError as error:
        raise pytest.UsageError(str(error)) from None
