"""Plants faults, runs them through two ordinary runs of pytest, and returns what became of each.

The second run has what would disturb the first. A worker is killed at its start, a device does not end, and the cache
that the first run has filled is damaged.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path

from conformance.gate.evidence.selftest_result import FaultResult, SelftestResult
from conformance.machine.gpus import Gpus, core_count, lacking
from conformance.machine.kept_answers import code_digest
from conformance.machine.versions import machine_stack
from conformance.records import Reason, ReasonCode, RecordError, read_records, read_run
from conformance.selftest.faults import FAULTS, PlantedFault
from conformance.selftest.judge import SeenRun, by_kernel, judged
from conformance.selftest.planting import FOLDER, KILLS, MARK, PACKAGE, SLOWNESS, innocent, plant

#: Seconds that a case of each run may take. An innocent one takes a few on a busy machine. In the first run other
#: processes look for the operand of an illegal access; in the second one a case does not end.
FIRST_CASE_S, SECOND_CASE_S = 60.0, 20.0
#: Processes that may wait for each core before deadlines grow with them, and how much they may grow.
PER_CORE, LONGEST = 4.0, 6.0
#: Seconds after which a run is ended.
RUN_S = 900.0
#: Seconds in which a run that is told to end must have ended.
ENDING_S = 15.0
#: Workers of a run, at least and at most.
LEAST_WORKERS, MOST_WORKERS = 2, 4
#: Exit statuses of pytest with which a run has come to its end, and that of a run that cannot begin.
ENDED, REFUSED = (0, 1), 4
#: Where the kernels are compiled for if there is no GPU, by the backend of Triton that must be there.
TARGETS = {"nvidia": "sm_90", "amd": "gfx942"}
#: One case of each kernel.
CASES = "order=row.row and static=False and not tma_store=True and not descriptors=host and not flatten=True"
#: Folders of installed packages, which Python finds by itself.
_INSTALLED = ("site-packages", "dist-packages")
#: Variables of a user that could change the runs.
_REMOVED = (
    "PYTEST_ADDOPTS",
    "PYTEST_PLUGINS",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "TRITON_INTERPRET",
    "TRITON_CACHE_DIR",
)


class CannotRun(Exception):
    """A run cannot begin, as without torch; the message says why."""


@dataclass
class Selftest:
    """A self-test of ``faults`` with ``gpus``, which leaves its files in ``folder``. ``planted_as`` returns what is
    planted in the place of a fault: tests leave a fault out by it. ``say`` is called with a line for the user."""

    faults: Sequence[PlantedFault]
    gpus: Gpus
    folder: Path
    planted_as: Callable[[PlantedFault], PlantedFault] = lambda fault: fault
    say: Callable[[str], None] = print

    def run(self) -> SelftestResult:
        """Plants the faults and returns the result. Raises NotPlantable if the kernels have changed, and
        :class:`CannotRun`."""
        started, before = datetime.now(timezone.utc), time.monotonic()
        here = [fault for fault in self.faults if self.gpus.entries or not fault.device]
        results = {fault.name: self._not_run(fault) for fault in self.faults if fault not in here}
        if here:
            with tempfile.TemporaryDirectory(prefix="conformance-selftest-") as folder:
                results |= self._planted(Path(folder), here)
        return SelftestResult(
            schema=1,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - before, 1),
            code_sha256=code_digest(),
            stack=machine_stack(self.gpus),
            device=", ".join(sorted({*self.gpus.names})) or ("a GPU" if self.gpus.entries else ""),
            faults=tuple(results[fault.name] for fault in self.faults),
            left_out=tuple(fault.name for fault in FAULTS if fault not in self.faults),
        )

    def _not_run(self, fault: PlantedFault) -> FaultResult:
        unwanted = self.gpus.listed and self.gpus.variable not in os.environ
        why = "--no-gpu was given" if unwanted else lacking(self.gpus)
        reason = Reason(ReasonCode.NO_DEVICE, "device", f"a GPU is required: {why}")
        return FaultResult(fault.name, fault.planted, fault.expected, not_run=str(reason))

    def _planted(self, folder: Path, faults: Sequence[PlantedFault]) -> dict[str, FaultResult]:
        """Returns the results of ``faults``, which are planted in ``folder``."""
        planted = [self.planted_as(fault) for fault in faults]
        plant(folder, planted)
        first = [fault for fault in faults if not fault.second_run]
        second = [fault for fault in faults if fault.second_run]
        filled = [fault for fault in planted if "damage_cache" in fault.run]
        results = {}
        if first or filled:
            seen = self._seen(folder, "run-1", faults, [*first, *filled], FIRST_CASE_S)
            results = {fault.name: judged(fault, seen, _neighbours(faults, fault)) for fault in first}
        for fault in filled:
            damage(folder / "cache", fault.entry, folder / PACKAGE / f"{MARK}damage_cache")
        if second:
            kills = {KILLS: "1"} if any("kill_replacement" in fault.run for fault in planted) else {}
            seen = self._seen(folder, "run-2", faults, second, SECOND_CASE_S, kills)
            results |= {fault.name: judged(fault, seen, _neighbours(faults, fault)) for fault in second}
        return results

    def _seen(
        self,
        folder: Path,
        name: str,
        faults: Sequence[PlantedFault],
        chosen: Sequence[PlantedFault],
        case_s: float,
        variables: Mapping[str, str] | None = None,
    ) -> SeenRun:
        """Runs the kernels of ``chosen`` and their neighbours, ``case_s`` seconds each at most, with further
        ``variables`` of the environment. Returns what the run left."""
        kernels = [kernel for fault in chosen for kernel in (fault.planted_kernel, *_neighbours(faults, fault))]
        run, output = self.folder / name, self.folder / f"{name}.txt"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.say(f"{name}: {len(chosen)} faults among {len(set(kernels))} kernels; what it prints is in {output}")
        (folder / "pytest.ini").write_text("[pytest]\n")
        chosen_kernels = [word for kernel in dict.fromkeys(kernels) for word in ("--kernel", kernel)]
        command = [sys.executable, "-m", "pytest", *self._words(folder, run, case_s), *chosen_kernels]
        problems: tuple[str, ...] = ()
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**self._environment(folder), **(variables or {})},
            )
            try:
                code = process.wait(RUN_S)
                if code == REFUSED:
                    raise CannotRun(f"{name} cannot begin: {_last_line(output)}; see {output}")
                if code not in ENDED:
                    problems = (f"{name} ended with exit status {code}: see {output}",)
            except subprocess.TimeoutExpired:
                problems = (f"{name} did not end within {RUN_S:g} s and was killed: see {output}",)
            finally:
                _end(process)
        marks = {path.name.removeprefix(MARK) for path in (folder / PACKAGE).glob(f"{MARK}*")}
        try:
            records, info = read_records(run), read_run(run)
        except (OSError, RecordError) as error:
            return SeenRun({}, marks, (*problems, f"{name} left no records that can be read: {error}"))
        problems = (*problems, *records.problems, *info.problems)
        return SeenRun(by_kernel(records.records), marks, tuple(f"{name}: {problem}" for problem in problems))

    def _words(self, folder: Path, run: Path, case_s: float) -> list[str]:
        without = [] if self.gpus.entries else ["--no-gpu", "--target", _target()]
        return [
            *("-p", "conformance.plugin", "-p", "conformance.selftest.run_plugin", "-p", "no:cacheprovider"),
            *("-c", str(folder / "pytest.ini"), "--rootdir", str(folder), "--pyargs", "conformance.suites"),
            *("--suite", "transposition", "--tier", "full", "--ttgir", "never", "-k", CASES),
            *(
                "-n",
                str(max(LEAST_WORKERS, min(MOST_WORKERS, core_count()))),
                "--case-timeout",
                f"{case_s * slowness():.0f}",
            ),
            *(f"--run-dir={run.resolve()}", "--conformance-reruns=0", *without),
        ]

    def _environment(self, folder: Path) -> dict[str, str]:
        package = Path(__file__).resolve().parents[2]
        checkout = [] if package.name in _INSTALLED else [str(package)]
        paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep), *checkout]
        environment = {name: value for name, value in os.environ.items() if name not in _REMOVED}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TRITON_CACHE_DIR": str(folder / "cache")}
        return {**environment, FOLDER: str(folder / PACKAGE), SLOWNESS: f"{slowness():.2f}"}


def slowness() -> float:
    """Returns the factor of the deadlines: 1, or more on a machine on which many processes wait for each core."""
    return min(max(1.0, os.getloadavg()[0] / (core_count() * PER_CORE)), LONGEST)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a run that has not ended: in order, if it does so in :data:`ENDING_S` seconds."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
        process.kill()
        process.wait()


def _neighbours(faults: Sequence[PlantedFault], fault: PlantedFault) -> list[str]:
    """Returns the innocent kernels that :func:`plant` put before and after that of ``fault``."""
    place = list(faults).index(fault)
    return [innocent(place), innocent(place + 1)]


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")


def _target() -> str:
    """Returns what is compiled for where there is no GPU."""
    triton = find_spec("triton")
    places = (triton.submodule_search_locations if triton else None) or []
    there = [
        target for name, target in TARGETS.items() for place in places if (Path(place) / "backends" / name).is_dir()
    ]
    return there[0] if there else TARGETS["nvidia"]


def damage(cache: Path, kernel: str, mark: Path) -> None:
    """Cuts each file of ``kernel`` in Triton's ``cache`` to half its length, and leaves the ``mark`` if there was
    one."""
    for file in cache.rglob(f"{kernel}.*"):
        content = file.read_bytes()
        if content:
            file.write_bytes(content[: len(content) // 2])
            mark.touch()
