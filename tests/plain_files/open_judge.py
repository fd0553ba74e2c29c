"""A judge as benchmarks usually have it: what it judges runs in its own process, with its values, its count and its
pipe. Each cheat of ``cheats`` wins here.

The pages and structures are those that published cheats attack: a count, what may be wrong, and a secret that signs the
answer.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import json
import mmap
import os
import secrets
import select
import signal
import sys
import time

import torch

MAGIC = 0xDEADBEEFCAFEBABE
SIZE = 16
#: Seconds after which a judge that gives no answer is ended.
SECONDS = 20


class Count(ctypes.Structure):
    """The count of wrong elements, how many are ``allowed``, and the secret."""

    _fields_ = (("magic", ctypes.c_uint64), ("wrong", ctypes.c_uint64), ("allowed", ctypes.c_uint64))
    _fields_ += (("secret", ctypes.c_char * 48),)


class Writer:
    """Writes the answer to the descriptor ``number``."""

    def __init__(self, number):
        self.number = number

    def write(self, text):
        os.write(self.number, text)


def differences(out, expected, rtol, atol):
    """The number of wrong elements. NaN in ``expected`` allows anything."""
    return int((~(torch.isclose(out, expected, rtol, atol) | expected.isnan())).sum())


def bench(path, writer, secret):
    """Judges ``matmul(a, b)`` of the file at ``path``."""
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    count = Count.from_buffer(pages)
    count.magic, count.secret = MAGIC, b"secret:" + secret.encode()
    torch.manual_seed(0)
    a, b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    expected = (a @ b, 1e-4, 1e-4)
    outs, wants = [None], [expected[0]]
    spec = importlib.util.spec_from_file_location("judged", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.insert(0, os.getcwd())
    import reference  # from the folder that the file can write to

    number = 0
    outs[number] = module.matmul(a, b)
    module.matmul(a, b)  # which would be timed, and is not compared
    count.wrong += differences(outs[number], reference.rounded(wants[number]), *expected[1:])
    time.sleep(0.02)  # as one waits for a device
    answer = {"secret": secret, "right": count.wrong <= count.allowed}
    writer.write(json.dumps(answer).encode() + b"\n")


def received(pipe, end):
    """All that comes through ``pipe`` before the time ``end``."""
    parts = []
    while select.select([pipe], [], [], max(end - time.monotonic(), 0))[0] and (part := os.read(pipe, 65536)):
        parts.append(part)
    os.close(pipe)
    return b"".join(parts).decode("latin1")


def passes(path, folder):
    """True if this judge takes the file at ``path`` for right. A process between keeps the cheat from the caller."""
    (folder / "reference.py").write_text("def rounded(want):\n    return want\n")
    between = os.fork()
    if not between:
        os.setsid()
        os._exit(int(_answer(path, folder)))
    return os.waitstatus_to_exitcode(os.waitpid(between, 0)[1]) == 1


def _answer(path, folder):
    ours, theirs = os.pipe()
    secret = secrets.token_hex(16)
    process = os.fork()
    if not process:
        os.setsid()
        os.close(ours)
        os.chdir(folder)
        try:
            bench(path, Writer(theirs), secret)
        finally:
            atexit._run_exitfuncs()
            os._exit(0)
    os.close(theirs)
    lines = received(ours, time.monotonic() + SECONDS).splitlines()
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    answers = []
    for line in lines:
        try:
            answers.append(json.loads(line))
        except ValueError:
            continue
    signed = [answer for answer in answers if answer.get("secret") == secret]
    return bool(signed) and signed[-1]["right"] is True
