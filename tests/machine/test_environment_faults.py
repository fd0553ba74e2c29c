"""A fault of the machine is told from one of what is tested, and one of what is tested is never taken for it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sqlite3
import sys
import tempfile
from types import SimpleNamespace

import pytest

from conformance.faults import Fault, FaultClass, FaultKind, deciding
from conformance.machine import environment_faults
from conformance.machine.environment_faults import fault_of_error, fault_of_signal, fault_of_text, process_fault


def of_system(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


def caused(by: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = by
    return error


def handled(earlier: BaseException, error: BaseException) -> BaseException:
    error.__context__ = earlier
    return error


ERRORS = {
    "full disk": (of_system(errno.ENOSPC, "/x"), FaultKind.DISK_FULL),
    "quota": (of_system(errno.EDQUOT), FaultKind.DISK_FULL),
    "a cache that is a file": (of_system(errno.ENOTDIR, "/home/x/cache/ab"), FaultKind.FILES),
    "no permission": (of_system(errno.EACCES, "/cache"), FaultKind.FILES),
    "read-only": (of_system(errno.EROFS), FaultKind.FILES),
    "open files": (of_system(errno.EMFILE), FaultKind.LIMIT),
    "processes": (of_system(errno.EAGAIN), FaultKind.LIMIT),
    "threads": (RuntimeError("can't start new thread"), FaultKind.LIMIT),
    "size of a file": (of_system(errno.EFBIG), FaultKind.LIMIT),
    "wrapped": (caused(of_system(errno.ENOSPC), ValueError("the code generator failed")), FaultKind.DISK_FULL),
    "while handling": (handled(of_system(errno.ENOSPC), ValueError("no file")), FaultKind.DISK_FULL),
    "words of another program": (RuntimeError("ptxas fatal: No space left on device"), FaultKind.DISK_FULL),
    "text of an error": (RuntimeError("InductorError: [Errno 20] Not a directory: '/c/x'"), FaultKind.FILES),
    "database": (sqlite3.OperationalError("unable to open database file"), FaultKind.FILES),
    "driver too old": (RuntimeError("CUDA driver version is insufficient for CUDA runtime version"), FaultKind.DEVICE),
    "assembler killed": (RuntimeError("`ptxas` failed with error code -9"), FaultKind.KILLED),
    "assembler of a path killed": (
        RuntimeError("/opt/bin/ptxas-blackwell failed with error code -15"),
        FaultKind.KILLED,
    ),
    "open files, met at a package's file": (
        of_system(errno.EMFILE, "/v/lib/python3.12/site-packages/triton/x.py"),
        FaultKind.LIMIT,
    ),
    "command killed": (RuntimeError("Command 'x' returned non-zero exit status -9."), FaultKind.KILLED),
    "child killed": (RuntimeError("Command 'x' died with <Signals.SIGKILL: 9>."), FaultKind.KILLED),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_the_machine(name):
    error, kind = ERRORS[name]
    fault = fault_of_error(error)
    assert fault is not None
    assert (fault.fault_class, fault.kind) == (FaultClass.INFRASTRUCTURE, kind.value)
    assert ";" in fault.text, "it says what to do"


OF_THE_KERNEL = {
    "a wrong result": AssertionError("numerics/randn: 3 of 12 wrong; [Errno 28] No space left on device"),
    "a check raised while files were handled": caused(AssertionError("no [Errno 28]"), ValueError("x")),
    "a compile error": ValueError("at 3:4: no_such_name is not defined"),
    "illegal access": RuntimeError("CUDA error: an illegal memory access was encountered"),
    "device memory": RuntimeError("Triton Error [CUDA]: out of memory"),
    "segfault of ptxas": RuntimeError("`ptxas` raised SIGSEGV"),
    "abort of ptxas": RuntimeError("`ptxas` failed with error code -6"),
    "a missing file of the stack": of_system(errno.ENOENT, "/usr/lib/python3/triton/backends/nvidia/bin/ptxas"),
    "a driver's error code": RuntimeError("cuModuleLoadData failed with error code -1"),
    "an assembler without its executable bit": of_system(
        errno.EACCES, "/v/lib/python3.12/site-packages/triton/backends/nvidia/bin/ptxas"
    ),
    "an assembler of a checkout": of_system(errno.EACCES, "/src/triton/python/triton/backends/nvidia/bin/ptxas"),
    "a file of the torch that is tested": of_system(errno.EACCES, "/src/pytorch/torch/lib/libtorch.so"),
    "an assembler that wrote nothing": of_system(errno.ENOENT, f"{tempfile.gettempdir()}/tmpab12.ptx.o"),
    "a file that was looked for": handled(of_system(errno.ENOENT, "/tmp/cache/x"), ValueError("wrong type")),
    "a refusal while probing": handled(of_system(errno.EACCES, "/tmp/x"), ValueError("wrong type")),
    "memory without a limit": MemoryError(),
}


@pytest.mark.parametrize("name", OF_THE_KERNEL)
def test_errors_of_what_is_tested(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/src/pytorch/torch/__init__.py"))
    assert fault_of_error(OF_THE_KERNEL[name]) is None


def test_a_missing_folder_of_the_environment(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/gone/cache")
    for number in (errno.ENOENT, errno.EEXIST, errno.EISDIR):
        for path in ("/gone/cache", "/gone/cache/ab/x.ptx"):
            fault = fault_of_error(of_system(number, path))
            assert fault is not None
            assert path in fault.text
        assert fault_of_error(of_system(number, "/gone/cached")) is None
    assert fault_of_text("FileNotFoundError: [Errno 2] No such file or directory: '/gone/cache/ab'\nFile ...")
    assert fault_of_text("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ptxas'") is None


def test_a_missing_file_of_a_folder_that_exists_is_of_the_compilers_making(monkeypatch, tmp_path):
    """A compiler that writes nothing is at fault. A folder of the cache that was removed, or takes no file, is not."""
    cache = tmp_path / "cache"
    (cache / "ab").mkdir(parents=True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    missing = of_system(errno.ENOENT, str(cache / "ab" / "x.cubin"))
    assert fault_of_error(missing) is None
    assert fault_of_error(of_system(errno.ENOENT, str(cache / "gone" / "x.cubin"))) is not None
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert fault_of_error(missing) is not None
    monkeypatch.undo()
    gone = str(tmp_path / "gone" / "removed" / "x.o")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert fault_of_error(of_system(errno.ENOENT, gone)) is None, "compilers remove their own temporary folders"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert fault_of_error(of_system(errno.ENOENT, gone)) is not None


def test_memory_that_the_user_has_limited(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1 << 30, resource.RLIM_INFINITY))
    fault = fault_of_error(MemoryError())
    assert fault is not None
    assert fault.kind == "limit"


def test_errors_with_a_cycle_of_causes_or_without_words_end():
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    first, second = Wordless(), ValueError("x")
    first.__cause__, second.__cause__ = second, first
    assert fault_of_error(first) is None


def test_signals_from_outside_and_by_its_own_doing():
    outside = [number for number in signal.Signals if fault_of_signal(number, "the worker") is not None]
    assert {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU} <= {*outside}
    own = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGALRM}
    assert not own & {*outside}
    assert fault_of_signal(0, "x") is None
    assert fault_of_signal(1000, "x") is None


def test_a_process_that_did_not_start_has_its_reason():
    assert process_fault("the compile process did not start: exit status 1").kind == "process"
    assert process_fault("did not start: [Errno 28] No space left on device").kind == "disk-full"


def test_the_worst_class_decides():
    regression = Fault.of(FaultKind.FAILED, "x")
    full, stopped = Fault.of(FaultKind.DISK_FULL, "x"), Fault.of(FaultKind.INTERRUPTED, "x")
    assert deciding([]) is None
    assert deciding([stopped]) is FaultClass.UNFINISHED
    assert deciding([stopped, full]) is FaultClass.INFRASTRUCTURE
    assert deciding([stopped, full, regression]) is FaultClass.REGRESSION


def test_every_kind_has_a_class_and_every_fault_of_an_environment_a_remedy():
    for kind in FaultKind:
        assert kind.fault_class in FaultClass
    kinds = {*environment_faults._KINDS.values(), *environment_faults._WORDS.values(), FaultKind.KILLED}
    assert kinds <= environment_faults._REMEDIES.keys()
