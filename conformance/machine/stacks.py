"""Writes the stacks of this process when another one asks for them.

It does so also while native code holds the interpreter's lock. The one that asks measures the time: a timer of this
process would go on while all of them are stopped.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from typing import TextIO

#: The signal by which another process asks. One that does not answer it is ended by it.
ASK = int(signal.SIGRTMAX) - 7
#: Seconds that the answer may take.
ANSWER_S = 1.0
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def answer_in(file: TextIO) -> None:
    """Has :data:`ASK` write the stacks to ``file``, which must stay open."""
    faulthandler.register(ASK, file=file, all_threads=True, chain=False)


def end_with_parent() -> None:
    """Has the system kill this process when its parent ends: a process that is stuck does not see that."""
    library, parent = ctypes.CDLL(None), os.getppid()
    if hasattr(library, "prctl"):
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
