"""The GPUs and cores of this machine, who gets which, and locks on one device. Starts no CUDA and imports no torch.

A kernel that shares the device with other workers takes longer, and has only the memory that they leave. Two locks
settle who may use it. Every user holds the first, shared or alone. It is on the device's own node, which the processes
of all users of this machine open. The second is a turnstile before it: processes that wait to be alone hold it
together, so that no other of this user comes in. Once the device is empty, they are alone one after another: to empty
it takes longer than to time a kernel. A third lock is held by the case that needs much memory. The system releases the
locks of a process that dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import math
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: Below this lie the folders in which the drivers list their GPUs.
ROOT = Path("/")
#: More processes than this on one GPU only add contexts: its time is already shared out.
WORKERS_PER_GPU = 16


@dataclass(frozen=True)
class Gpus:
    """``entries`` of the environment variable that makes GPUs visible, one per GPU; ``names`` and ``driver`` as far as
    they could be found without starting the GPU's runtime. The driver lists ``listed`` GPUs, hidden ones included."""

    variable: str = "CUDA_VISIBLE_DEVICES"
    entries: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    driver: str | None = None
    listed: int = 0


def find_gpus(most: int | None = None) -> Gpus:
    """The GPUs to use: those visible, or ``most`` of them (believed even where none is found). Raises ValueError if
    ``most`` is negative or more than a visible-devices list that is already set holds."""
    if most is not None and most < 0:
        raise ValueError(f"--gpus {most}: a number of GPUs, 0 or more, is required")
    gpus = _nvidia_gpus()
    amd = 0 if gpus.entries else len(_amd_gpus())
    if amd:
        gpus = Gpus("HIP_VISIBLE_DEVICES", tuple(map(str, range(amd))))
    listed = len(gpus.entries)
    if most == 0 or (most is None and not gpus.entries):
        return Gpus(gpus.variable, listed=listed)
    visible = _preset(gpus.variable)
    if visible is not None:
        if most is not None and most > len(visible):
            raise ValueError(
                f"--gpus {most}: {gpus.variable} shows {len(visible)} ({','.join(visible)}); "
                "ask for at most that many or set it to more"
            )
        entries = visible
    elif gpus.entries and most is not None and most > len(gpus.entries):
        raise ValueError(f"--gpus {most}: this machine has {len(gpus.entries)}")
    else:
        entries = tuple(map(str, range(len(gpus.entries) if most is None else most)))
    if not entries:  # hidden: what is not used is not the device of this run
        return Gpus(gpus.variable, listed=listed)
    return Gpus(gpus.variable, entries[:most], gpus.names, gpus.driver, listed)


def lacking(gpus: Gpus) -> str:
    """Returns the reason why there is no GPU to use, when :func:`find_gpus` gave none."""
    if not gpus.listed:
        return "no GPU was found: neither NVIDIA's driver (nvidia-smi, /dev, /proc) nor AMD's (amdkfd) lists one"
    shown = os.environ.get(gpus.variable)
    many = f"{gpus.listed} GPU{'s' * (gpus.listed > 1)}"
    return f"the driver lists {many}, and {gpus.variable}={shown!r} hides them: unset it, or name the GPUs to use"


def unusable(gpus: Gpus, torch_version: str, built_for: str) -> str:
    """Says that torch cannot use the GPUs that the driver lists, with both facts and what to do. ``built_for`` is what
    torch was built for, such as "CUDA 13.0"; empty for a build without a GPU's runtime."""
    vendor = "AMD" if gpus.variable.startswith("HIP") else "NVIDIA"
    facts = ", ".join(filter(None, [*dict.fromkeys(gpus.names), f"driver {gpus.driver}" if gpus.driver else ""]))
    listed = f"the driver lists {gpus.listed} {vendor} GPU{'s' * (gpus.listed > 1)}{f' ({facts})' if facts else ''}"
    how = f"is built for {built_for}" if built_for else "is built without CUDA and ROCm"
    platform = "ROCm" if vendor == "AMD" else "CUDA"
    mend = (
        f"install a torch for {platform}" if platform not in built_for else f"install a driver that knows {built_for}"
    )
    return (
        f"{listed}, and torch {torch_version} {how} and can use none of them: {mend}, or give --no-gpu to run in "
        "Triton's interpreter"
    )


def _preset(variable: str) -> tuple[str, ...] | None:
    """The list that ``variable`` holds, cut at its first negative entry as the runtime does; None if it is unset."""
    text = os.environ.get(variable)
    if text is None:
        return None
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    hidden = next((i for i, entry in enumerate(entries) if entry.startswith("-")), len(entries))
    return tuple(entries[:hidden])


@functools.cache
def _nvidia_gpus() -> Gpus:
    query = ["nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        nodes = [node for node in (ROOT / "dev").glob("nvidia[0-9]*") if node.name[6:].isdigit()]
        count = len(nodes) or len([*(ROOT / "proc/driver/nvidia/gpus").glob("*")])
        return Gpus(entries=tuple(map(str, range(count))))
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.count(",") == 2]
    return Gpus(
        entries=tuple(row[0] for row in rows), names=tuple(row[1] for row in rows), driver=rows[0][2] if rows else None
    )


def _amd_gpus() -> list[dict[str, str]]:
    """The properties of each GPU that the kernel's amdkfd driver lists; its nodes without SIMDs are CPUs."""
    gpus = []
    nodes = (ROOT / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    for node in sorted(nodes, key=lambda path: (len(path.parent.name), path.parent.name)):
        try:
            properties = dict(line.split(maxsplit=1) for line in node.read_text().splitlines() if " " in line)
        except OSError:
            continue  # a node of another container
        if int(properties.get("simd_count", "0")) > 0:
            gpus.append(properties)
    return gpus


def core_count() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(gpus: int, cores: int) -> int:
    """Processes for ``-n auto``: one per core without a GPU; else the same number on every GPU, at least one and at
    most :data:`WORKERS_PER_GPU`, with a core left to the controller.

    >>> worker_count(gpus=2, cores=16), worker_count(gpus=0, cores=4)
    (14, 4)
    """
    if gpus == 0:
        return max(cores, 1)
    return gpus * max(1, min(WORKERS_PER_GPU, (cores - 1) // gpus))


class GpuLeases:
    """Gives each new worker the GPU that serves the fewest living ones."""

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        self._held: dict[str, str] = {}

    def take(self, worker: str) -> str | None:
        """The entry for ``worker``, or None if there is no GPU."""
        if not self.entries:
            return None
        load = list(self._held.values())
        entry = min(self.entries, key=load.count)  # the first of equals: round robin at the start
        self._held[worker] = entry
        return entry

    def give_back(self, worker: str) -> None:
        """The worker has ended."""
        self._held.pop(worker, None)

    def withdraw(self, entry: str) -> list[str]:
        """Gives ``entry`` to no more workers, and returns those that hold it."""
        self.entries = tuple(other for other in self.entries if other != entry)
        return [worker for worker, held in self._held.items() if held == entry]


def worker_environment(gpus: Gpus, entry: str | None, interpret: bool, workers: int) -> Mapping[str, str]:
    """Environment variables of a process that runs cases, to be set before torch or triton is imported.

    ``entry`` is its GPU; ``interpret`` runs the kernels in Triton's interpreter and hides every GPU; ``workers`` share
    the cores, so that each takes only its part of them for numpy's and torch's own threads.
    """
    # Inductor would start as many processes of its own as there are cores, in every worker.
    own = {"OMP_NUM_THREADS": str(max(1, core_count() // workers)), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    variables = {name: value for name, value in own.items() if name not in os.environ}
    if interpret:
        return {**variables, "TRITON_INTERPRET": "1", gpus.variable: "-1"}
    return {**variables, gpus.variable: entry} if entry is not None else variables


#: Seconds between two tries to be let in.
TRY_SECONDS = 0.002
#: Seconds to wait for other cases to leave the device, unless told otherwise: each may compile with Inductor meanwhile.
ALONE_SECONDS = 120.0
#: Seconds to wait for a turn: less than the deadline of a case, which would not say why.
TURN_SECONDS = 240.0
#: How the message begins when a turn did not come.
HELD = "the GPU is held by another process"


class NotAlone(Exception):
    """The device was in use by others for too long."""


def device_node(variable: str, entry: str) -> Path | None:
    """Returns the node in /dev of the GPU that ``entry`` of ``variable`` makes visible; None if it is not known, as of
    a part of a GPU."""
    if variable == "CUDA_VISIBLE_DEVICES":
        minors = _nvidia_minors()
        minor = minors.get(entry, entry if not minors else "")
        return ROOT / f"dev/nvidia{minor}" if minor.isdecimal() else None
    renders = [node.get("drm_render_minor", "0") for node in _amd_gpus()]
    render = dict(enumerate(renders)).get(int(entry) if entry.isdecimal() else -1, "0")
    return ROOT / f"dev/dri/renderD{render}" if render != "0" else None


def _nvidia_minors() -> dict[str, str]:
    """The minor number of the node of each GPU, by its number in the order of their buses and by its UUID."""
    minors = {}
    folders = sorted((ROOT / "proc/driver/nvidia/gpus").glob("*/information"))
    for number, path in enumerate(folders):
        with contextlib.suppress(OSError):
            rows = [row.split(":", 1) for row in path.read_text().splitlines() if ":" in row]
            facts = {name.strip(): value.strip() for name, value in rows}
            minors[str(number)] = minors[facts.get("GPU UUID", "")] = facts.get("Device Minor", "")
    return minors


class Turns:
    """Turns on the device that is called ``name``. Processes of one user on this machine take them, and those of other
    users too if the device has the ``node``. The other locks are files in a folder below ``folder``, which is this
    user's alone."""

    def __init__(self, name: str, folder: Path | None = None, node: Path | None = None) -> None:
        safe = "".join(char if char.isalnum() or char in "-." else "_" for char in name)[:100]
        self._folder = (folder or Path(tempfile.gettempdir())) / f"triton-conformance-{os.getuid()}-locks"
        self._name = f"device-{safe}"
        self._node = node

    def _open(self, lock: str) -> IO[bytes]:
        """Returns the file of ``lock``. Raises OSError if it, or its folder, is a link or another user's."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _check(self._folder, os.lstat(self._folder), stat.S_ISDIR)
        path = self._folder / f"{self._name}.{lock}"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = open(os.open(path, flags, 0o600), "r+b", buffering=0)  # noqa: SIM115  # the caller closes it
        try:
            _check(path, os.fstat(file.fileno()), stat.S_ISREG)
        except OSError:
            file.close()
            raise
        return file

    def _open_use(self) -> IO[bytes]:
        """Returns what is locked to use the device: its node, or a file if there is none that takes locks."""
        return (_lockable(self._node) if self._node is not None else None) or self._open("use")

    @contextlib.contextmanager
    def together(self, seconds: float = TURN_SECONDS) -> Iterator[None]:
        """Uses the device together with other processes; waits while one of them is alone or about to be. Raises
        OSError after ``seconds``."""
        with self._open_use() as use:
            until = time.monotonic() + seconds
            with self._open("turnstile") as turnstile:
                self._wait(turnstile, fcntl.LOCK_EX, until, seconds)
                self._wait(use, fcntl.LOCK_SH, until, seconds)
            yield

    @contextlib.contextmanager
    def with_much_memory(self, seconds: float = TURN_SECONDS) -> Iterator[None]:
        """Waits until no other process needs much of the device's memory. To be entered before :meth:`together`.
        Raises OSError after ``seconds``."""
        with self._open("memory") as memory:
            self._wait(memory, fcntl.LOCK_EX, time.monotonic() + seconds, seconds)
            yield

    def _wait(self, lock: IO[bytes], how: int, until: float, seconds: float) -> None:
        if not _locked(lock, how, until):
            text = f"{HELD}: its lock was not free within {seconds:g} s; 'lslocks' and /proc/locks name the process"
            raise OSError(errno.EBUSY, text, os.readlink(f"/proc/self/fd/{lock.fileno()}"))

    @contextlib.contextmanager
    def alone(self, seconds: float = ALONE_SECONDS) -> Iterator[None]:
        """Uses the device alone. Raises :class:`NotAlone` if others do not leave within ``seconds``."""
        until = time.monotonic() + seconds
        with self._open_use() as use, self._open("turnstile") as turnstile:
            if not (_locked(turnstile, fcntl.LOCK_SH, until) and _locked(use, fcntl.LOCK_EX, until)):
                raise NotAlone(f"other cases used the device for {seconds:g} s without a pause")
            yield

    @contextlib.contextmanager
    def timing(self) -> Iterator[float]:
        """As :meth:`alone`, for work that keeps the device busy to its end. Gives the seconds since other such work
        ended: infinity if there was none."""
        with self.alone(), self._open("timed") as timed:
            ended = os.fstat(timed.fileno()).st_mtime if os.fstat(timed.fileno()).st_size else -math.inf
            yield time.time() - ended
            timed.write(b".")  # the first one only makes it count
            os.utime(timed.fileno())


def _check(path: Path, seen: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Raises OSError unless ``path``, of which the system says ``seen``, is of this kind and of this user alone."""
    if not is_kind(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        raise OSError(
            errno.EACCES, "a folder or plain file that only you may use is required for locks: remove it", str(path)
        )


def _lockable(node: Path) -> IO[bytes] | None:
    """Returns the device's ``node``, opened, if it is one and takes locks; None if not, as in a sandbox."""
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    file = open(descriptor, "rb", buffering=0)  # noqa: SIM115  # the caller closes it
    with contextlib.suppress(OSError):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            with contextlib.suppress(BlockingIOError):  # another process is alone: so locks work
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(file, fcntl.LOCK_UN)
            return file
    file.close()
    return None


def _locked(lock: IO[bytes], how: int, until: float) -> bool:
    """Locks ``lock`` and returns True, or False if it was not free at the moment ``until``."""
    while True:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(TRY_SECONDS)
