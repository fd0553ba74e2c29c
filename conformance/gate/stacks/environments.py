"""Isolated environments of stacks: packages laid over the environment of this command, which is never changed.

An environment is a folder of the cache. Its ``site`` holds the packages, which PYTHONPATH puts before all others, and
its ``triton-cache`` what was compiled with them. It is built beside its place and moved there whole, so an environment
that exists is complete. Its name is a digest of the stack, with the content of wheels, and of the interpreter.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import conformance
from conformance.gate.stacks.stack_file import WITH_DEPENDENCIES, Stack, StackError

#: Seconds that pip may take for one stack: a torch with its CUDA libraries is several gigabytes.
INSTALL_SECONDS = 3600


@dataclass(frozen=True)
class Environment:
    """``folder``: its place in the cache; ``variables``: what its processes have beside the variables of this one."""

    stack: Stack
    folder: Path
    variables: dict[str, str]

    def environ(self) -> dict[str, str]:
        """The whole environment of its processes."""
        return {**os.environ, **self.variables, **dict(self.stack.variables)}

    def command(self, *arguments: str) -> list[str]:
        """A ``conformance`` command in this environment."""
        return [sys.executable, "-m", "conformance.cli", *arguments]


def default_cache() -> Path:
    """Where environments and runs are kept unless told otherwise: below XDG_CACHE_HOME, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "triton-conformance"


def build(stack: Stack, cache: Path) -> Environment:
    """The environment of ``stack`` below ``cache``, built unless it is there. Raises :class:`StackError`."""
    folder = cache.resolve() / "stacks" / _key(stack)  # its processes run in another directory
    if not (folder / "stack.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
            built = Path(scratch) / "built"
            (built / "site").mkdir(parents=True)
            _install(stack, built)
            (built / "stack.json").write_text(json.dumps(_described(stack), indent=2) + "\n", encoding="utf-8")
            try:
                built.rename(folder)
            except OSError:
                if not (folder / "stack.json").exists():  # else another process was faster
                    raise
    return Environment(stack, folder, _variables(stack, folder))


def _described(stack: Stack) -> dict[str, object]:
    return {
        "packages": stack.packages,
        "wheels": [(wheel.name, file_digest(wheel)) for wheel in stack.wheels],
        "sites": [(str(site), folder_digest(site)) for site in stack.sites],  # in their order: the first has its way
        "ptxas": file_digest(stack.ptxas) if isinstance(stack.ptxas, Path) else stack.ptxas,
        "python": f"{sys.executable} {platform.python_version()}",
        "below": {name: _version(name) for name in ("torch", "triton", "numpy")},
    }


def _key(stack: Stack) -> str:
    return hashlib.sha256(json.dumps(_described(stack), sort_keys=True).encode()).hexdigest()[:16]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def file_digest(path: Path) -> str:
    """The SHA-256 of the file's content, in hexadecimal."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def folder_digest(folder: Path) -> str:
    """A digest of the names, sizes and times of the files in ``folder``. Reading them all would take minutes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            facts = path.stat()
            digest.update(f"{path.relative_to(folder)}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _variables(stack: Stack, folder: Path) -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH")
    below = [os.path.abspath(path) for path in inherited.split(os.pathsep)] if inherited else []
    package = str(Path(conformance.__path__[0]).parent)
    path = [*map(str, stack.sites), str(folder / "site"), package, *below]
    variables = {"PYTHONPATH": os.pathsep.join(path), "TRITON_CACHE_DIR": str(folder / "triton-cache")}
    if stack.ptxas is not None:
        ptxas = stack.ptxas if isinstance(stack.ptxas, Path) else _installed_ptxas(folder, stack.ptxas)
        variables |= {"TRITON_PTXAS_PATH": str(ptxas), "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas)}
    return variables


def _install(stack: Stack, folder: Path) -> None:
    site = str(folder / "site")
    with_dependencies = [text for text in stack.packages if Requirement(text).name in WITH_DEPENDENCIES]
    without = [text for text in stack.packages if text not in with_dependencies]
    if with_dependencies:
        _pip(["--target", site, *with_dependencies], stack)
    if without or stack.wheels:  # after torch, whose Triton they replace
        _pip(["--target", site, "--upgrade", "--no-deps", *without, *map(str, stack.wheels)], stack)
    if isinstance(stack.ptxas, str):
        _pip(["--target", str(folder / "nvcc"), "--no-deps", compiler_wheel(stack.ptxas)], stack)
        ptxas = _installed_ptxas(folder, stack.ptxas)
        ptxas.chmod(0o755)  # pip keeps no permissions of what it unpacks into a folder
        _check_ptxas(ptxas)
    elif stack.ptxas is not None:
        _check_ptxas(stack.ptxas)


def compiler_wheel(version: str) -> str:
    """The requirement for CUDA's compiler: up to CUDA 12 the major version is in the package's name."""
    major = int(version.split(".")[0])
    name = "nvidia-cuda-nvcc" if major >= 13 else f"nvidia-cuda-nvcc-cu{major}"
    return f"{name}=={version}" if version.count(".") == 2 else f"{name}=={version}.*"


def _installed_ptxas(folder: Path, version: str) -> Path:
    paths = sorted((folder / "nvcc").rglob("bin/ptxas"))
    if not paths:
        raise StackError(f"ptxas=={version}: the wheel {compiler_wheel(version)} holds no bin/ptxas")
    return paths[0]


def _check_ptxas(ptxas: Path) -> None:
    try:
        done = _run([str(ptxas), "--version"], 60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{ptxas} cannot be run: {error}") from None
    if done.returncode or "ptxas" not in done.stdout:
        raise StackError(f"{ptxas} is no ptxas: {(done.stdout + done.stderr).strip()[:200]!r}")


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)


def _pip(arguments: Sequence[str], stack: Stack) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        done = _run(command, INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise StackError(f"stack {stack.name!r}: {' '.join(command)} took more than {INSTALL_SECONDS} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        if errors and "No matching distribution found" in errors[-1]:
            errors = errors[:1]  # it names the versions that there are
        why = "\n".join(errors[-5:]).removeprefix("ERROR: ") or f"exit status {done.returncode}"
        raise StackError(f"stack {stack.name!r} could not be installed: {why}\nthe command was: {' '.join(command)}")
