"""Options of pytest's plugins with which a run would leave wrong records, or none."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

#: Options that have another plugin run a failed case again, by the name under which pytest keeps each. Those of
#: pytest-rerunfailures, pytest-retry and flaky.
RERUNNING = {
    "reruns": "--reruns",
    "force_reruns": "--force-reruns",
    "retries": "--retries",
    "force_flaky": "--force-flaky",
}


def check_debug_file(file: str | None) -> None:
    """Raises pytest.UsageError if pytest would end with a traceback because it cannot write the file of ``--debug``."""
    if not file:
        return
    try:
        if os.path.exists(file) and not os.path.isfile(file):
            raise OSError("it is no regular file")
        open(file, "ab").close()
    except OSError as error:
        raise pytest.UsageError(f"--debug {file}: it cannot be written: {error}") from None


def check(config: pytest.Config) -> None:
    """Raises pytest.UsageError for an option that a run cannot have, and says what to give in its place."""
    option = config.option
    if getattr(option, "looponfail", False):
        raise pytest.UsageError("-f, --looponfail runs the suites again and again, and a run ends: leave it out")
    if getattr(option, "forked", False):
        raise pytest.UsageError(
            "--forked runs each test in a process of its own, where it leaves no record: leave it out; every worker of "
            "xdist that dies costs one case and is replaced"
        )
    if getattr(option, "setuponly", False):
        raise pytest.UsageError(
            "--setup-only judges no case: give --setup-plan, which prints the same and runs nothing"
        )
    for name, word in RERUNNING.items():
        if getattr(option, name, None) or _ini(config, name) not in (None, "", "0", 0):
            raise pytest.UsageError(
                f"{word} would print that a case passed which has failed once: leave it out; --conformance-reruns N "
                "judges a failed case N times more"
            )
    count = getattr(option, "count", None)
    if isinstance(count, int) and count > 1:
        raise pytest.UsageError(
            f"--count {count} would give each case {count} ids that no baseline has: leave it out; --repeats {count} "
            "judges each launch so often"
        )
    if config.pluginmanager.is_blocked("reports") and getattr(option, "numprocesses", 0) != 0:
        raise pytest.UsageError("-p no:reports takes from workers how they report a case: leave it out, or give -n 0")
    _check_log_file(getattr(option, "log_file", None))
    _check_ray(option)
    if getattr(option, "tx", None) and option.dist == "no" and getattr(option, "numprocesses", None) is None:
        raise pytest.UsageError("--tx starts no worker without --dist=load: give both, or -n alone")
    for specification in getattr(option, "tx", None) or ():
        _check_specification(str(specification))


def _check_log_file(file: str | None) -> None:
    """Raises pytest.UsageError if pytest would end with a traceback because it cannot make the folder of its log."""
    if not file:
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"--log-file {file}: its folder cannot be made: {error}") from None


def _check_specification(given: str) -> None:
    """Raises pytest.UsageError if xdist would end the run with a traceback because it cannot read ``--tx``."""
    from execnet import XSpec  # here, as a run without workers needs none

    number, times, one = given.partition("*")
    try:
        XSpec(f"execmodel=main_thread_only//{one if times and number.isdigit() else given}")
    except (ValueError, AttributeError) as error:
        raise pytest.UsageError(f"--tx {given}: {error}; such as 2*popen//python=python3.11 is required") from None


def _check_ray(option: Any) -> None:
    """Raises pytest.UsageError for an option that contradicts ``--ray``, or that needs it."""
    if option.conformance_ray is None:
        if option.conformance_device_class is not None:
            raise pytest.UsageError(
                f"--device-class {option.conformance_device_class} chooses nodes of a Ray cluster: give --ray, too"
            )
        return
    reasons = {
        "-n 0": (getattr(option, "numprocesses", None) == 0, "runs the cases in this process"),
        "--pdb": (getattr(option, "usepdb", False), "needs the cases in this process"),
        "--trace": (getattr(option, "trace", False), "needs the cases in this process"),
        "-s": (getattr(option, "capture", "") == "no", "shows what the cases of this process print"),
        "--tx": (bool(getattr(option, "tx", None)), "starts workers without Ray"),
        "--gpus": (bool(option.conformance_gpus), "counts GPUs of this machine; -n N starts N workers"),
        "--reproducers": (option.conformance_reproducers is not None, "writes scripts on the nodes"),
    }
    for word, (given, why) in reasons.items():
        if given:
            raise pytest.UsageError(f"{word} contradicts --ray: it {why}; give one of them")


def _ini(config: pytest.Config, name: str) -> Any:
    """Returns a setting of the project's file; None if no plugin knows it."""
    with contextlib.suppress(ValueError):
        return config.getini(name)
    return None
