"""A Python that starts in milliseconds: a server that has imported torch and pytest forks it.

:func:`executable` returns the path of a script that takes the place of ``sys.executable`` in a test whose subject is
not the start of Python. The script sends its arguments, environment, folder and descriptors to the server, forwards
signals, and ends as the fork ends. A fork has imported the rooms of this package that need no Triton. It has read what
a run keeps of files that do not change. It has not imported triton, which reads its environment. The script starts the
interpreter itself where a fork would differ: see ``_CLIENT``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

#: What the server imports: what takes long, and reads no variable that tests set.
PRELOADED = ("numpy", "torch", "sympy", "pytest", "pluggy", "execnet", "msgspec", "rich.progress")
PRELOADED += ("rich.console", "rich.table", "packaging.version", "importlib.metadata", "concurrent.futures", "runpy")
PRELOADED += ("pdb", "sqlite3", "tomllib", "unittest", "xml.etree.ElementTree", "numpy.random", "numpy.ma", "secrets")
PRELOADED += ("numpy.typing",)
#: Rooms of this package that do not import triton. One is a plugin of pytest, which rewrites the asserts of what it
#: imports.
ROOMS = ("commands", "gate", "heuristics", "inputs", "machine", "numerics", "plugin", "reporting", "user_files")
#: Imports xdist, which keeps the search path that it finds.
LEFT_OUT = "conformance.plugin.share_scheduling"
ROOT = Path(__file__).resolve().parents[1]

#: The interpreter itself runs what needs its options, other values of its own variables, or other modules at its start.
_CLIENT = """#!{python} -IS
import os, sys
words = {words} + sys.argv[1:]
unbuffered = words[:1] == ["-u"]
words = words[unbuffered:]
if words and words[0][:2] == "-m" != words[0]:
    words[:1] = ["-m", words[0][2:]]
passed_on = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
variables = {{name: value for name, value in os.environ.items() if name.startswith("PYTHON") and name not in passed_on}}
paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
others = ("torch", "numpy", "pytest", "sitecustomize.py")
others = any(os.path.exists(f"{{path}}/{{name}}") for path in paths if path for name in others)
if words[:1] in (["-c"], ["-m"]):
    paths.append(os.getcwd())
packages = {{os.path.realpath(f"{{path}}/conformance") for path in paths if os.path.exists(f"{{path}}/conformance")}}
others = others or not packages <= {{{package!r}}}
if not words or (words[0][0] == "-" and words[0] not in ("-c", "-m")) or variables != {variables} or others:
    os.execv({python!r}, [{python!r}, *["-u"] * unbuffered, *words])
import _signal, _socket, marshal  # what json, signal and socket import takes longer than all else here
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
server.connect({address!r})
content = os.memfd_create("request")
numbers = sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name))
numbers = [number for number in numbers if number not in (server.fileno(), content) and os.get_inheritable(number)]
request = {{"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "numbers": numbers}}
request["unbuffered"] = unbuffered or bool(os.environ.get("PYTHONUNBUFFERED"))
with open(content, "wb", closefd=False) as file:
    marshal.dump(request, file)
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (content, *numbers))
server.sendmsg([b"fork"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
pid = int(server.recv(64))
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
    if _signal.getsignal(getattr(_signal, name)) != _signal.SIG_IGN:
        _signal.signal(getattr(_signal, name), lambda number, frame: os.kill(pid, number))
code = int(server.recv(64) or {lost})
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL) if -code != _signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""
LOST = 255
#: The interpreter itself.
REAL = sys.executable


@functools.cache
def executable() -> str:
    """Returns the path of the script that takes the place of Python; its folder has one for ``conformance``, too."""
    folder = Path(tempfile.mkdtemp(prefix="forked-python-"))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = f"\0forked-python-{os.getpid()}-{folder.name}"
    listening.bind(address)
    listening.listen(64)
    passed_on = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    variables = {name: os.environ[name] for name in os.environ if name.startswith("PYTHON") and name not in passed_on}
    for name, words in (("python", []), ("conformance", ["-m", "conformance.cli"])):
        facts = {"variables": variables, "address": address, "lost": LOST, "package": str(ROOT / "conformance")}
        text = _CLIENT.format(python=REAL, words=words, **facts)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    command = [REAL, str(Path(__file__)), str(listening.fileno()), str(folder / "python")]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, env=environment, pass_fds=(listening.fileno(),), start_new_session=True
    )
    listening.close()
    atexit.register(server.communicate)
    return str(folder / "python")


def serve(listening: socket.socket, folder: str) -> tuple[dict[str, Any], list[int]]:
    """Forks for each connection, and returns in the fork, with the request and its descriptors. Ends with stdin, which
    a process closes that is killed, too, and removes ``folder`` then."""
    living: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of the process
    while True:
        waiting = select.select([0, listening, *living, *(asker for _, asker in living.values())], [], [])[0]
        if 0 in waiting:
            for pid, _ in living.values():
                os.killpg(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        for descriptor, (pid, asker) in list(living.items()):
            if descriptor in waiting:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):
                    asker.send(str(code).encode())
                os.close(descriptor)
                living.pop(descriptor)[1].close()
            elif asker in waiting:  # whoever asked was killed
                os.kill(pid, signal.SIGKILL)
        if listening in waiting:
            asker, _ = listening.accept()
            _, files, _, _ = socket.recv_fds(asker, 64, 250)
            if not files:  # its asker was killed before it sent a request
                asker.close()
                continue
            pid = os.fork()
            if pid == 0:
                os.setsid()
                with open(files[0], "rb") as file:
                    file.seek(0)
                    return marshal.load(file), files[1:]
            for file in files:
                os.close(file)
            with contextlib.suppress(OSError):  # a fork can write, and its asker be killed, before this is sent
                asker.send(str(pid).encode())
            living[os.pidfd_open(pid)] = pid, asker


def _become(request: dict[str, Any], files: list[int], script: str) -> None:
    """Gives this process the descriptors, environment, folder, arguments and search path of ``request``."""
    numbers = request["numbers"]
    above = max([*files, *numbers, 2]) + 1
    copies = [os.dup2(file, above + place, inheritable=False) for place, file in enumerate(files)]
    os.closerange(0, above)
    for number, copy in zip(numbers, copies, strict=True):
        os.dup2(copy, number)
        os.close(copy)
    streams = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))
    for name, number, mode in streams:
        buffering = 1 if number == 2 or (number in numbers and os.isatty(number)) else -1
        errors = "backslashreplace" if number == 2 else "strict"
        stream = None
        if number in numbers:
            stream = open(number, mode, buffering, "utf-8", errors, closefd=False)  # noqa: SIM115  # as long as it lives
        if stream is not None and number and request["unbuffered"]:
            stream.reconfigure(write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    installed = [path for path in sys.path[1:] if path]
    given = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*given, *installed]
    sys.executable, sys.dont_write_bytecode = script, bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


def _ended(words: list[str]) -> int:
    """Runs what Python runs with ``words``; returns the exit status. Nothing is torn down, which takes a second."""
    code = 0
    try:
        _run(words)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if ending.code is not None and not isinstance(ending.code, int):
            print(ending.code, file=sys.stderr)
    except BaseException as error:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__.tb_next.tb_next)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return code


def _run(words: list[str]) -> None:
    """Runs what Python runs with ``words``."""
    how, *rest = words
    if how == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.path.insert(0, str(Path(how).resolve().parent))
        sys.argv[:] = words
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__ = how
        exec(compile(Path(how).read_bytes(), how, "exec"), vars(main))


def _import_rooms() -> None:
    """Imports :data:`ROOMS` as pytest imports plugins. What they keep of files is read once, for all forks."""
    from _pytest.assertion import install_importhook
    from _pytest.config import get_config

    sys.path.insert(0, str(ROOT))
    hook = install_importhook(get_config())
    hook.mark_rewrite("conformance")
    for room in ROOMS:
        package = importlib.import_module(f"conformance.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != LEFT_OUT:
                importlib.import_module(module.name)
    assert not {"triton", "xdist"} & set(sys.modules)
    sys.meta_path.remove(hook)
    sys.path.remove(str(ROOT))
    from conformance.gate.runs.bill_of_materials import bill_of_materials
    from conformance.gate.runs.run_environment import environment
    from conformance.machine.versions import assembler_versions
    from conformance.user_files.case_list import matches
    from conformance.user_files.expected_failures import read_expected_failures

    bill_of_materials(None)
    environment("", "", {}, (), ())
    assembler_versions()
    for entry in read_expected_failures().entries:
        matches(entry.cases, "")


if __name__ == "__main__":
    _listening = socket.socket(fileno=int(sys.argv[1]))
    if 0 not in select.select([0, _listening], [], [])[0]:  # nothing is imported before a fork is asked for
        for name in PRELOADED:
            importlib.import_module(name)
        _import_rooms()
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False  # those of torch take longer than the end of a fork
    gc.collect()
    gc.freeze()
    _request, _files = serve(_listening, str(Path(sys.argv[2]).parent))
    _listening.detach()
    _become(_request, _files, sys.argv[2])
    os._exit(_ended(_request["words"]))
