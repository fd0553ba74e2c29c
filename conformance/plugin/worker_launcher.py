"""Run by xdist in place of a worker's interpreter: a server forks the worker, so that imports are paid once for all.

The server belongs to the workers of one run. The run starts it early, or else the first worker does. If that fails, the
worker is an interpreter of its own.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # not this folder: its modules have common names

from conformance.execution.compile.fork_server import ForkServer, ForkServerLost  # noqa: E402

#: What each worker of the suites imports. Not this package: pytest rewrites its asserts when a worker imports it.
PRELOADED = ("numpy", "torch", "triton", "pytest")

#: The environment of the server's imports. Some of Inductor's ask how many devices there are, and a process that has
#: asked the driver cannot fork one that uses the device; NVML may be asked. Inductor's pool would start with an import.
SERVER_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCH_WARM_POOL": "0"}


def main(arguments: Sequence[str]) -> int:
    """Starts a worker and ends as it does. The ``arguments`` are names of modules that the server imports, too, and
    those of an interpreter, which end with "-c" and code. Without the latter it starts the server only."""
    first = next((number for number, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    modules, interpreter = arguments[:first], arguments[first:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides how its workers end
    environment = dict(os.environ)
    try:
        server = ForkServer({**environment, **SERVER_ENVIRONMENT}, (*PRELOADED, *modules), shared=True)
        if not interpreter:
            server.start()
            return 0
        interpret = "conformance.execution.compile.fork_server:interpret"
        worker = server.fork(interpret, {"code": interpreter[-1]}, (0, 1), 2, environment)
    except ForkServerLost:
        os.execv(sys.executable, [sys.executable, *interpreter])
    code = worker.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
