"""The readers of what users and strangers give take or refuse fuzzed inputs, and nothing else; the fuzzer sees it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.forked_python import executable

#: Readers that do what they must not, and what the fuzzer says of each.
BAD = {
    "runs-input": ("exec(path.read_bytes())", "compiles b'print(1 + 1)'"),
    "starts-process": ("subprocess.run(['true'])", "subprocess.Popen"),
    "writes-elsewhere": ("open('/dev/null', 'w').close()", "writes '/dev/null'"),
    "removes-elsewhere": (
        "contextlib.suppress(OSError).__enter__(); os.path.exists('/x') or os.mkdir('/proc/x')",
        "os.mkdir",
    ),
    "loads-pickle": ("pickle.loads(pickle.dumps(Reader))", "pickle.find_class"),
    "raises": ("{}['missing']", "KeyError: 'missing'"),
    "says-nothing": ("raise RecordError('')", "RecordError without a word"),
    "hangs": ("time.sleep(60)", "no answer after 1 s"),
    "takes-another": ("return 'another'", "taken with other content"),
    "good": ("return 'right'", ""),
    "refuses": ("raise RecordError('line 1: a number is required')", ""),
}
PROGRAM = """
import contextlib, json, os, pickle, signal, subprocess, sys, tempfile, time
from pathlib import Path
from tests import fuzzed_inputs
from tests.fuzzed_inputs import RecordError, Reader, Watched, tried
fuzzed_inputs.LIMIT_S = 1
signal.signal(signal.SIGALRM, fuzzed_inputs._too_long)
folder = Path(tempfile.mkdtemp())
watched, endings = Watched(folder), {}
for name, body in json.loads(sys.argv[1]).items():
    exec(f"def read(path):\\n    {body}")
    reader = Reader("file", b"", read, (RecordError,), signed=True)
    endings[name] = tried(reader, b"print(1 + 1)", folder, watched, "right")
print(json.dumps(endings))
"""


@pytest.fixture(scope="module")
def endings() -> dict[str, list[str]]:
    bodies = json.dumps({name: body for name, (body, _) in BAD.items()})
    done = subprocess.run([executable(), "-c", PROGRAM, bodies], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", BAD)
def test_the_fuzzer_sees_what_a_reader_must_not_do(endings, name):
    ending, text = endings[name]
    assert (ending == "fault") == bool(BAD[name][1])
    assert BAD[name][1] in text


def test_fuzzed_inputs_are_taken_or_refused(forked):
    command = [sys.executable, "-m", "tests.fuzzed_inputs", "--count", "400", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "400 inputs, 0 faults"
