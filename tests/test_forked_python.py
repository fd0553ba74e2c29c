"""A forked Python ends, writes and reads as a new one, and a new one takes its place where a fork would differ."""

from __future__ import annotations

import marshal
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import forked_python

PREFIX = "import os, sys\n"


def both(*words, **options):
    """Exit status, output and errors of an interpreter, which are also those of a fork."""
    ends = []
    for python in (forked_python.REAL, forked_python.executable()):
        done = subprocess.run([python, *words], capture_output=True, text=True, check=False, timeout=60, **options)
        ends.append((done.returncode, done.stdout, done.stderr))
    assert ends[0][:2] == ends[1][:2]
    assert ends[0][2].splitlines()[-1:] == ends[1][2].splitlines()[-1:]
    return ends[1]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("print(sys.argv, os.getcwd(), os.environ['ANY'], sys.stdin.read())", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a reason')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("os.abort()", -signal.SIGABRT),
        ("import atexit; atexit.register(print, 'at the end')", 0),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('last'))).start()", 0),
        ("print('triton' in sys.modules, __name__)", 0),
        ("os.write(int(sys.argv[1]), b'x'); print(sorted(map(int, os.listdir('/proc/self/fd')))[:3])", 0),
    ],
)
def test_a_fork_ends_as_an_interpreter_does(tmp_path, code, status):
    with open(tmp_path / "file", "wb") as file:
        words = ("-c", PREFIX + code, str(file.fileno()))
        environment = {**os.environ, "ANY": "a value", "PYTHONPATH": ""}
        ended = both(*words, cwd=tmp_path, env=environment, input="given", pass_fds=(file.fileno(),))
    assert ended[0] == status


def test_a_module_and_a_script(tmp_path):
    text = f"{PREFIX}import helper\nprint(helper.__file__, __name__, sys.argv, sys.path[0])\n"
    (tmp_path / "script.py").write_text(text)
    (tmp_path / "helper.py").write_text("")
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert both("script.py", "--word", cwd=tmp_path)[0] == 0
    assert both("-m", "script", "--word", cwd=tmp_path)[0] == 0
    assert both("-mscript", cwd="/", env=path)[0] == 0


def test_a_signal_reaches_the_fork_and_its_end_that_of_whoever_asked():
    code = "import sys, time; print('ready', flush=True); time.sleep(60)"
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen([forked_python.executable(), "-c", code], stdout=subprocess.PIPE) as asked:
            assert asked.stdout.readline() == b"ready\n"
            asked.send_signal(number)
            assert asked.wait(20) == -number


def test_the_folder_goes_with_a_process_that_is_killed():
    code = "from tests.forked_python import executable; print(executable(), flush=True); input()"
    with subprocess.Popen([forked_python.REAL, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asked:
        script = asked.stdout.readline().decode().strip()
        assert os.path.exists(script)
        asked.kill()
    end = time.monotonic() + 20
    while os.path.exists(os.path.dirname(script)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.path.exists(os.path.dirname(script))


def test_a_fork_ends_with_whoever_asked(tmp_path):
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); print(flush=True)"
    with subprocess.Popen(
        [forked_python.executable(), "-c", f"{code}; time.sleep(60)"], stdout=subprocess.PIPE
    ) as asked:
        asked.stdout.readline()
        asked.kill()
    pid, end = int((tmp_path / "pid").read_text()), time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("words", [("-I", "-c"), ("-X", "utf8", "-c")])
def test_what_a_fork_cannot_do_an_interpreter_does(words):
    assert both(*words, "import sys; print(sys.flags, 'torch' in sys.modules)")[0] == 0


@pytest.mark.parametrize(
    ("name", "variables"),
    [("torch", {}), ("conformance", {}), ("other", {"PYTHONHASHSEED": "3"}), ("sitecustomize", {})],
)
def test_what_an_interpreter_reads_at_its_start_is_not_forked(tmp_path, name, variables):
    file = tmp_path / (f"{name}.py" if name == "sitecustomize" else f"{name}/__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('at the start')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), **variables}
    code = f"import sys, {name}; print({name}.__file__, hash('a') if {bool(variables)} else 0)"
    assert both("-c", code, env=environment)[0] == 0


def test_the_server_outlives_those_that_are_killed_while_they_ask():
    script = forked_python.executable()
    address = "\0" + re.search(r"forked-python-\d+-[\w-]+", Path(script).read_text()).group()
    request = {"words": ["-c", ""], "environment": {}, "folder": "/", "numbers": [], "unbuffered": False}
    for asks in (False, True, False, True):
        with tempfile.TemporaryFile(buffering=0) as file, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
            file.write(marshal.dumps(request))
            asker.connect(address)
            if asks:
                socket.send_fds(asker, [b"fork"], [file.fileno()])
    assert subprocess.check_output([script, "-c", "print('still there')"], text=True) == "still there\n"


def test_a_test_asks_for_it(forked):
    code = "import sys; print(sys.executable, 'torch' in sys.modules)"
    assert subprocess.check_output([forked, "-c", code], text=True).split() == [sys.executable, "True"]
