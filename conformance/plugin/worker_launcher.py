"""Run by xdist in place of a worker's interpreter: a server forks the worker, so that imports are paid once for all.

The server belongs to the workers of one run; the first of them starts it. If that fails, the worker is an interpreter
of its own.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # not this folder: its modules have common names

from conformance.execution.fork_server import ForkServer, ForkServerLost  # noqa: E402

#: What each worker of the suites imports. Not this package: pytest rewrites its asserts when a worker imports it.
PRELOADED = ("numpy", "torch", "triton", "pytest")


def main(arguments: Sequence[str]) -> int:
    """Starts a worker with the ``arguments`` of an interpreter, which end with "-c" and code, and ends as it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides how its workers end
    environment = dict(os.environ)
    try:
        server = ForkServer(environment, PRELOADED, shared=True)
        interpret = "conformance.execution.fork_server:interpret"
        worker = server.fork(interpret, {"code": arguments[-1]}, (0, 1), 2, environment)
    except ForkServerLost:
        os.execv(sys.executable, [sys.executable, *arguments])
    code = worker.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
