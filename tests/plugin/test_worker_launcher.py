"""Workers that a server forks: to xdist each is like an interpreter of its own, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.plugin.worker_imports import WorkerImports

LAUNCHER = Path(__file__).resolve().parents[2] / "conformance" / "plugin" / "worker_launcher.py"
#: What a worker says of its server: the parent of its parent.
SERVER = (
    "import os\nprint(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1], flush=True)\ninput()"
)


def launched(code: str, modules: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(LAUNCHER), *modules, "-u", "-c", code],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def gone(pid: int) -> bool:
    """Returns True if the process ends within some seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_worker_is_an_interpreter_that_has_imported_torch_and_triton() -> None:
    code = (
        "import os, sys\n"
        "print(sys.stdin.readline().strip(), {'torch', 'triton'} <= set(sys.modules), 'conformance' in sys.modules, "
        "__name__, sys.argv, os.environ['MINE'], flush=True)\n"
        "os.write(1, b'bytes'); os.write(2, b'error'); sys.exit(3)"
    )
    for mine in ("first", "second"):
        worker = launched(code, MINE=mine)
        output, error = worker.communicate("hello\n", timeout=120)
        assert output == f"hello True False __main__ ['-c'] {mine}\nbytes", error
        assert error == "error"
        assert worker.returncode == 3


def test_workers_of_one_run_share_a_server() -> None:
    workers = [launched(SERVER) for _ in range(2)]
    servers = [worker.stdout.readline() for worker in workers if worker.stdout is not None]
    for worker in workers:
        worker.communicate("\n", timeout=60)
    assert len(servers) == 2
    assert len(set(servers)) == 1


def test_a_server_that_was_started_early_waits_for_its_workers_and_ends_with_them(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("import os\npid = os.getpid()\nenvironment = dict(os.environ)\n")
    with_planted = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, str(LAUNCHER), "planted"], check=True, env=with_planted, timeout=60)
    time.sleep(1)  # its only asker is gone
    code = (
        "import os, sys\nplanted = sys.modules['planted']\n"
        "print(planted.pid, planted.environment['PYTORCH_NVML_BASED_CUDA_CHECK'], "
        "'PYTORCH_NVML_BASED_CUDA_CHECK' in os.environ, flush=True)\ninput()"
    )
    workers = [launched(code, ["planted"], PYTHONPATH=str(tmp_path)) for _ in range(2)]
    answers = [worker.stdout.readline().split() for worker in workers if worker.stdout is not None]
    assert answers[0] == answers[1]
    assert answers[0][1:] == ["1", "False"]
    for worker in workers:
        worker.communicate("\n", timeout=60)
    assert gone(int(answers[0][0]))


def test_workers_with_other_imports_have_another_server() -> None:
    workers = [launched(SERVER, modules) for modules in ([], ["colorsys"])]
    servers = {worker.stdout.readline() for worker in workers if worker.stdout is not None}
    for worker in workers:
        worker.communicate("\n", timeout=60)
    assert len(servers) == 2


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_worker_that_dies_ends_its_launcher(number: signal.Signals) -> None:
    worker = launched(f"import os\nos.kill(os.getpid(), {int(number)})")
    output, _ = worker.communicate(timeout=120)
    assert (output, worker.returncode) == ("", 128 + number)


def test_a_launcher_that_is_killed_takes_its_worker_along_and_what_that_has_started() -> None:
    worker = launched(
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(os.getpid(), child.pid, flush=True)\ntime.sleep(600)"
    )
    assert worker.stdout is not None
    pids = [int(word) for word in worker.stdout.readline().split()]
    worker.kill()
    worker.communicate(timeout=60)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_launcher_leaves_an_interrupt_to_the_run() -> None:
    worker = launched("print(input(), flush=True)")
    time.sleep(1)
    worker.send_signal(signal.SIGINT)
    output, _ = worker.communicate("still here\n", timeout=120)
    assert (output, worker.returncode) == ("still here\n", 0)


def test_without_a_server_a_worker_is_an_interpreter_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('planted')")
    worker = launched("import sys\nprint(input(), 'torch' in sys.modules)", PYTHONPATH=str(tmp_path))
    output, error = worker.communicate("hello\n", timeout=120)
    assert (output, worker.returncode) == ("hello False\n", 0), error


def test_xdist_takes_the_launcher_for_an_interpreter() -> None:
    import execnet

    specification = WorkerImports().specification
    spec = execnet.XSpec(specification)
    assert spec.popen
    assert str(LAUNCHER) in spec.python
    gateway = execnet.Group().makegateway(specification)
    try:
        assert gateway.remote_exec("import sys; channel.send('torch' in sys.modules)").receive(60)
    finally:
        gateway.exit()
