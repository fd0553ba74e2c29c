"""The environment at the start of a run: the installed wheels, the tools, the machine, the checkout and the options.

Evidence is about the stack that ran, so this is written at the start of the run and never when it is packed.
"""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

from conformance.machine.entry_point_loading import package_of
from conformance.machine.kept_answers import PACKAGE, code_digest, file_digest
from conformance.machine.versions import assemblers

ENVIRONMENT_FILE = "environment.json"
SCHEMA = 2
#: The distributions under test, each with the folder whose Python sources are compared with the wheel's hashes. Other
#: files are compared by size, headers not at all: to read the gigabytes of a build would take longer than many a run.
DISTRIBUTIONS = {"triton": "triton/", "torch": "torch/_inductor/"}
#: Entry points through which code outside this package takes part in a run.
EXTENSIONS = ("conformance.kernels", "conformance.targets", "pytest11")
MOST_ALTERED = 20  # altered files that are named

_WRITTEN_BY_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
_VARIABLES = re.compile(
    r"(TRITON|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|CUDA|CUBLAS|CUDNN|NVIDIA|HIP|ROCM|ROCR|HSA|AMD|XPU|SYCL|ZE|OMP"
    r"|MKL|PYTEST|PTXAS|NVPTX|AMDGCN|LLVM|MLIR|DISABLE|ALLOW)_\w+|USE_IR_LOC"
    r"|PYTHON(PATH|HASHSEED|OPTIMIZE)|LD_(LIBRARY_PATH|PRELOAD)"
)
_PER_TEST = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")
_SECRET = re.compile(r"TOKEN|SECRET|PASS(?!_PLUGIN)|CREDENTIAL|AUTH|(^|_)KEY($|_)", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def environment(
    run: str,
    started: str,
    stack: Mapping[str, Any],
    gpus: Sequence[str],
    options: Sequence[str],
    suites: Sequence[Path] = (),
) -> dict[str, Any]:
    """Returns the data of ``environment.json``.

    ``run``, ``started`` and ``stack`` are the values of ``run.json``, ``gpus`` the names of the GPUs. ``options`` are
    all words of pytest's command line; those of ``addopts`` and ``PYTEST_ADDOPTS`` come first. ``suites`` are the
    folders of suites outside this package.
    """
    return {
        "schema": SCHEMA,
        "run": run,
        "started": started,
        "stack": dict(stack),
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "platform": platform.platform(),
        "gpus": list(gpus),
        "distributions": {name: distribution_facts(name, folder) for name, folder in DISTRIBUTIONS.items()},
        "extensions": extensions(),
        "ptxas": assembler_facts(),
        "code": {"sha256": code_digest(), "suites": [code_digest(folder) for folder in suites]},
        "git": git_state(PACKAGE.parent),
        "options": list(options),
        "variables": variables(os.environ),
    }


def distribution_facts(name: str, sources: str) -> dict[str, Any] | None:
    """The version and the digest of an installed distribution, and which of its files are no longer the wheel's;
    None if there is no such distribution.

    ``record_sha256`` is over the wheel's own lines of RECORD (path, hash and size, sorted; a line feed after each),
    without those that an installer adds: anyone can compute it from the wheel. It is None where nothing was recorded.
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except PackageNotFoundError:
        return None
    rows, digest = _wheel_rows(distribution.read_text("RECORD") or "")
    altered = _altered(distribution, rows, sources)
    return {
        "version": distribution.version,
        "record_sha256": digest if rows else None,
        "files": len(rows),
        "altered": altered[:MOST_ALTERED],
        "altered_files": len(altered),
        "is_imported": _is_imported(distribution, name),
    }


@functools.lru_cache(maxsize=4)
def _wheel_rows(record: str) -> tuple[list[tuple[str, str, str]], str]:
    """Returns the wheel's own rows of the text of RECORD, and their digest."""
    rows = []
    for row in csv.reader(record.splitlines()):
        if len(row) != 3 or not row[1] or row[0].startswith("..") or row[0].endswith(".pyc"):
            continue
        folder, _, file = row[0].rpartition("/")
        if not (folder.endswith(".dist-info") and file in _WRITTEN_BY_INSTALLERS):
            rows.append((row[0], row[1], row[2]))
    lines = sorted(",".join(row) for row in rows)
    return rows, hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


def _altered(distribution: Distribution, rows: Iterable[tuple[str, str, str]], sources: str) -> list[str]:
    base = Path(str(distribution.locate_file("")))
    return [
        name
        for name, listed, size in rows
        if "/include/" not in name and not _is_as_listed(f"{base}/{name}", name, listed, size, sources)
    ]


def _is_as_listed(path: str, name: str, listed: str, size: str, sources: str) -> bool:
    try:
        if str(os.stat(path).st_size) != size:
            return False
        if not (name.startswith(sources) and name.endswith(".py")):
            return True
        digest = base64.urlsafe_b64encode(bytes.fromhex(file_digest(path)))
        return listed == "sha256=" + digest.decode().rstrip("=")
    except OSError:
        return False


def _is_imported(distribution: Distribution, name: str) -> bool:
    """True if ``import name`` finds this distribution's files, and not another build before it on the path."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return False
    return Path(spec.origin).resolve() == Path(str(distribution.locate_file(f"{name}/__init__.py"))).resolve()


def extensions() -> list[dict[str, str]]:
    """The entry points of :data:`EXTENSIONS` with the distribution that each comes from."""
    installed = importlib.metadata.entry_points()
    points = [
        {
            "group": group,
            "name": point.name,
            "distribution": package_of(point),
        }
        for group in EXTENSIONS
        for point in installed.select(group=group)
    ]
    unique = {tuple(entry.values()): entry for entry in points}
    return [unique[key] for key in sorted(unique)]


def assembler_facts() -> list[dict[str, str]]:
    """Name, path and sha256 of each assembler that Triton can call."""
    return [{"name": name, "path": str(path), "sha256": file_digest(path)} for name, path in assemblers().items()]


def git_state(checkout: Path) -> dict[str, Any] | None:
    """The commit of ``checkout``, whether anything in it differs from that commit and the sha256 of the difference of
    its tracked files; None if it is no checkout."""
    facts = _git(checkout, "rev-parse", "--show-toplevel", "HEAD")
    if facts is None:
        return None
    top, _, commit = facts.strip().rpartition(b"\n")
    if Path(os.fsdecode(top)).resolve() != checkout.resolve():
        return None  # installed somewhere below another project's checkout
    status = _git(checkout, "status", "--porcelain")
    diff = _git(checkout, "diff", "--binary", "HEAD") if status else status
    if status is None or diff is None:
        return None
    return {
        "commit": commit.decode(),
        "dirty": bool(status),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
    }


def _git(checkout: Path, *arguments: str) -> bytes | None:
    command = ["git", "-C", str(checkout), *arguments]
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=True, env=environ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


#: Variables that may differ between parts of one run. They choose devices, threads, plugins of pytest or cache folders.
#: PYTHONPATH may differ because the packages are compared. A variable that names a tool or a library may not.
_MAY_DIFFER = re.compile(
    r"\w+_VISIBLE_DEVICES|ZE_AFFINITY_MASK|(OMP|MKL|PYTEST|CUDA_MPS)_\w+|\w*CACHE_(DIR|PATH)|TRITON_(HOME|DUMP_DIR)|PYTHONPATH"
)


def deciding_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns those of ``variables`` that must be the same in all parts of a run and in all its shards."""
    return {name: value for name, value in variables.items() if not _MAY_DIFFER.fullmatch(name)}


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables that can change results. Apparent secrets have only their name."""
    return {
        name: "(withheld)" if _SECRET.search(name) else _USER_IN_URL.sub("(withheld)@", value)
        for name, value in sorted(environ.items())
        if _VARIABLES.fullmatch(name) and name not in _PER_TEST
    }
