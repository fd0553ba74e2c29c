"""Isolated environments of stacks: packages laid over the environment of this command, which is never changed.

An environment is a folder of the cache. Its ``site`` holds the packages, which PYTHONPATH puts before all others, and
its ``triton-cache`` what was compiled with them. It is built next to its place and moved there whole, so an environment
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
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import conformance
from conformance.gate.stacks.pip_commands import (
    Package,
    PipError,
    Say,
    announcement,
    brought,
    build_of,
    captured,
    install,
    installed,
    planned,
    reported,
    short_of,
    triton_of,
)
from conformance.gate.stacks.stack_file import WITH_DEPENDENCIES, Stack, StackError
from conformance.machine.kept_answers import file_digest


@dataclass(frozen=True)
class Environment:
    """``folder``: its place in the cache; ``variables``: what its processes have in addition to the variables of this
    one."""

    stack: Stack
    folder: Path
    variables: dict[str, str]

    def environ(self) -> dict[str, str]:
        """Returns the whole environment of its processes."""
        return {**os.environ, **self.variables, **dict(self.stack.variables)}

    def command(self, *arguments: str) -> list[str]:
        """Returns a ``conformance`` command in this environment."""
        return [sys.executable, "-m", "conformance.cli", *arguments]


@dataclass(frozen=True)
class ResolvedStack:
    """A stack and the steps that install it. ``stack`` has its title, ``folder`` is its place in the cache, ``steps``
    are the arguments of pip's commands. ``packages`` are what these fetch: none if the environment is there."""

    stack: Stack
    folder: Path
    steps: tuple[tuple[str, ...], ...] = ()
    packages: tuple[Package, ...] = ()


def resolve(stack: Stack, cache: Path, has_gpu: bool, say: Say) -> ResolvedStack:
    """Returns the packages that the environment of ``stack`` below ``cache`` installs, found without fetching them.
    ``say`` gets lines that announce what is fetched: how much, and what differs from the environment of this command.
    Without a GPU here, the CPU build of torch is taken if an index has it. Triton is then the one that the other build
    brings. Raises :class:`StackError` for packages that cannot be had, and for a disk that cannot hold them."""
    folder = cache.resolve() / "stacks" / _key(stack, has_gpu)  # its processes run in another directory
    steps = _steps(stack)
    if not steps:
        return ResolvedStack(stack, folder)
    if (folder / "stack.json").exists():
        return ResolvedStack(_with_what_it_brings(stack, folder), folder)
    here, written = installed(), _written(stack)
    try:
        packages = _packages(steps, cache, say)
        if packages and not has_gpu:
            steps, packages = _for_cpu(stack, steps, packages, written, cache, say)
    except PipError as error:
        raise StackError(f"stack {stack.name!r} cannot be installed: {error}") from None
    cache.mkdir(parents=True, exist_ok=True)
    if why := short_of(packages, cache):
        raise StackError(f"stack {stack.name!r} cannot be installed: {why}")
    for line in announcement(stack.name, packages, here, has_gpu):
        say(line)
    by_name = {package.name: package for package in packages}
    return ResolvedStack(replace(stack, brings=brought(by_name, here, written)), folder, steps, tuple(packages))


def _written(stack: Stack) -> set[str]:
    """Returns the packages that the user of ``stack`` named."""
    names = [
        *(Requirement(text).name for text in stack.packages),
        *(wheel.name.split("-")[0] for wheel in stack.wheels),
    ]
    return set(map(canonicalize_name, names))


def _with_what_it_brings(stack: Stack, folder: Path) -> Stack:
    """``stack``, whose environment lies in ``folder``, with its title."""
    return replace(stack, brings=brought(installed(folder / "site"), installed(), _written(stack)))


def resolve_all(stacks: Sequence[Stack], cache: Path, has_gpu: bool, say: Say) -> list[ResolvedStack]:
    """Returns each of ``stacks`` as :func:`resolve` finds it. Equal ones are announced once. Raises
    :class:`StackError`."""
    resolved: dict[Stack, ResolvedStack] = {}
    every = []
    for stack in stacks:
        key = replace(stack, name="", variables=())
        if key not in resolved:
            resolved[key] = resolve(stack, cache, has_gpu, say)
        every.append(replace(resolved[key], stack=replace(stack, brings=resolved[key].stack.brings)))
    return every


def prepare(stacks: Sequence[Stack], cache: Path, has_gpu: bool, say: Say) -> list[Environment]:
    """Returns the environments of ``stacks`` below ``cache``. All are resolved before one is installed. Raises
    :class:`StackError`."""
    return [build(resolved, say) for resolved in resolve_all(stacks, cache, has_gpu, say)]


def _packages(steps: Sequence[Sequence[str]], cache: Path, say: Say) -> list[Package]:
    """Returns the packages that ``steps`` install, in their order; none if there is no pip that lists them before it
    fetches."""
    packages: list[Package] = []
    for step in steps:
        entries = planned(step, cache, say)
        if entries is None:
            return []
        packages += reported(entries)
    return packages


def _for_cpu(
    stack: Stack,
    steps: tuple[tuple[str, ...], ...],
    packages: list[Package],
    written: set[str],
    cache: Path,
    say: Say,
) -> tuple[tuple[tuple[str, ...], ...], list[Package]]:
    """``steps`` and their ``packages`` with the CPU build of torch, if the torch is another build, the user named none,
    and an index has it. A CPU build brings no Triton, so the one that the other build brings is added."""
    torch = next((package for package in packages if package.name == "torch"), None)
    if torch is None or not _names_no_build(stack) or build_of(torch) == "CPU build":
        return steps, packages
    version = torch.version.partition("+")[0]
    (name,) = (text for text in stack.packages if canonicalize_name(Requirement(text).name) == "torch")
    of_cpu = tuple(tuple(f"torch=={version}+cpu" if word == name else word for word in step) for step in steps)
    triton = triton_of(packages)
    if triton is not None and triton.name not in written:
        of_cpu = (*of_cpu, ("--upgrade", "--no-deps", f"{triton.name}=={triton.version}"))
    try:
        return of_cpu, _packages(of_cpu, cache, say)
    except PipError as error:
        say(f"{stack.name}: torch {version} has no CPU build here: {error}".splitlines()[0])
        return steps, packages


def _names_no_build(stack: Stack) -> bool:
    """Returns True if ``stack`` names a torch without its build, which torch==2.14.1+cpu has."""
    versions = (text.partition("==")[2] for text in stack.packages if Requirement(text).name == "torch")
    return any("+" not in version for version in versions)


def build(resolved: ResolvedStack, say: Say) -> Environment:
    """The environment of ``resolved``, installed unless it is there; ``say`` gets a line for each package that is
    fetched. Raises :class:`StackError`."""
    stack, folder = resolved.stack, resolved.folder
    if not (folder / "stack.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
            built = Path(scratch) / "built"
            (built / "site").mkdir(parents=True)
            _install(resolved, built, say)
            (built / "stack.json").write_text(json.dumps(_described(stack), indent=2) + "\n", encoding="utf-8")
            try:
                built.rename(folder)
            except OSError:
                if not (folder / "stack.json").exists():  # else another process was faster
                    raise
        if not resolved.packages and resolved.steps:  # no pip said before what it brings
            stack = _with_what_it_brings(stack, folder)
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


def _key(stack: Stack, has_gpu: bool) -> str:
    described = _described(stack)
    if not has_gpu and _names_no_build(stack):
        described["torch"] = "its CPU build, if there is one"
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def folder_digest(folder: Path) -> str:
    """A digest of the names, sizes and times of the files in ``folder``. Reading them all would take minutes."""
    lines, root = [], os.path.join(folder, "")
    for place, folders, files in os.walk(root):  # a Path for each of torch's files takes five times as long
        folders[:] = [name for name in folders if name != "__pycache__"]
        for path in (os.path.join(place, name) for name in files):
            if os.path.isfile(path):
                facts = os.stat(path)
                lines.append(f"{path.removeprefix(root)}\0{facts.st_size}\0{facts.st_mtime_ns}\n")
    return hashlib.sha256("".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


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


def _steps(stack: Stack) -> tuple[tuple[str, ...], ...]:
    """Returns the arguments of pip's commands that install ``stack``, without the folders that they install to."""
    with_dependencies = tuple(text for text in stack.packages if Requirement(text).name in WITH_DEPENDENCIES)
    without = tuple(text for text in stack.packages if text not in with_dependencies)
    steps = [with_dependencies] if with_dependencies else []
    if without or stack.wheels:  # after torch, whose Triton they replace
        steps.append(("--upgrade", "--no-deps", *without, *map(str, stack.wheels)))
    if isinstance(stack.ptxas, str):
        steps.append(("--no-deps", compiler_wheel(stack.ptxas)))
    return tuple(steps)


def _install(resolved: ResolvedStack, folder: Path, say: Say) -> None:
    stack = resolved.stack
    compiler = ("--no-deps", compiler_wheel(stack.ptxas)) if isinstance(stack.ptxas, str) else None
    for step in resolved.steps:
        try:
            install(["--target", str(folder / ("nvcc" if step == compiler else "site")), *step], say)
        except PipError as error:
            raise StackError(f"stack {stack.name!r} could not be installed: {error}") from None
    if isinstance(stack.ptxas, str):
        ptxas = _installed_ptxas(folder, stack.ptxas)
        ptxas.chmod(0o755)  # pip keeps no permissions of what it unpacks into a folder
        _check_ptxas(ptxas)
    elif stack.ptxas is not None:
        _check_ptxas(stack.ptxas)


def compiler_wheel(version: str) -> str:
    """The requirement for CUDA's compiler: up to CUDA 12 the major version is in the package's name.

    >>> compiler_wheel("12.9"), compiler_wheel("13.0")
    ('nvidia-cuda-nvcc-cu12==12.9.*', 'nvidia-cuda-nvcc==13.0.*')
    """
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
        done = captured([str(ptxas), "--version"], timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{ptxas} cannot be run: {error}") from None
    if done.returncode or "ptxas" not in done.stdout:
        raise StackError(f"{ptxas} is no ptxas: {(done.stdout + done.stderr).strip()[:200]!r}")
