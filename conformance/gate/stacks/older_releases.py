"""Finds the releases before a candidate's, and the stacks that have them instead of the candidate's.

Which component of the candidate is meant follows from what differs between the two stacks: Triton, torch or ptxas. A
torch that brings another Triton along is torch; a stack that names both is asked about Triton alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from conformance.gate.stacks.environments import compiler_wheel
from conformance.gate.stacks.stack_file import COMPONENTS, Stack, spelled

#: How many releases before the candidate's are asked.
MOST_RELEASES = 3
#: Seconds that the index may take to name the releases.
INDEX_SECONDS = 60
#: Distributions of Triton; torch for ROCm and for XPU brings its own.
_TRITONS = tuple(name for name in COMPONENTS if "triton" in name)
_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


class IndexAnswerError(Exception):
    """The package index did not say which releases there are; the message says why."""


def changed_component(stacks: tuple[Stack, Stack], versions: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str | None:
    """The component whose releases are meant: "triton", "torch" or "ptxas"; None if all three have the same versions.
    ``versions`` are those that the runs of the two ``stacks`` recorded."""
    differ = [name for name in ("triton", "torch", "ptxas") if versions[0].get(name) != versions[1].get(name)]
    if {"triton", "torch"} <= set(differ) and not any(names(stack, "triton") for stack in stacks):
        return "torch"
    return next(iter(differ), None)


def names(stack: Stack, component: str) -> bool:
    """Returns True if ``stack`` itself names ``component``, in whatever way."""
    return stack != without(stack, component)


def without(stack: Stack, component: str) -> Stack:
    """``stack`` without what it says of ``component``. Its name stays."""
    if component == "ptxas":
        return replace(stack, ptxas=None)
    return replace(
        stack,
        packages=tuple(text for text in stack.packages if not _is(Requirement(text).name, component)),
        wheels=tuple(wheel for wheel in stack.wheels if not _is(wheel.name.partition("-")[0], component)),
        sites=tuple(site for site in stack.sites if not (site / component).is_dir()),
    )


def _is(distribution: str, component: str) -> bool:
    name = canonicalize_name(distribution)
    return name in _TRITONS if component == "triton" else name == component


def with_release(stack: Stack, component: str, version: Version) -> Stack:
    """``stack`` with the release ``version`` of ``component``, whatever it says of it, called as it is written."""
    rest = without(stack, component)
    if component == "ptxas":
        older = replace(rest, ptxas=str(version))
    else:
        older = replace(rest, packages=(*rest.packages, f"{distribution(stack, component)}=={version}"))
    return replace(older, name=spelled(older) or f"{component}=={version}", brings=())


def distribution(stack: Stack, component: str) -> str:
    """Returns the name of ``component`` in the package index, as ``stack`` names it."""
    if component == "ptxas":
        return compiler_wheel(stack.ptxas).partition("==")[0] if isinstance(stack.ptxas, str) else "nvidia-cuda-nvcc"
    named = (Requirement(text).name for text in stack.packages)
    return next((name for name in named if _is(name, component)), component)


def last_releases(versions: list[Version], candidate: Version) -> list[Version]:
    """The last of ``versions`` before ``candidate`` that are no previews, in ascending order.

    >>> versions = [Version(text) for text in ("3.6.0", "3.7.0", "3.8.0rc1", "3.8.0", "3.9.0")]
    >>> [str(version) for version in last_releases(versions, Version("3.9.0"))]
    ['3.6.0', '3.7.0', '3.8.0']
    """
    before = [version for version in versions if version < Version(candidate.public) and not version.is_prerelease]
    return sorted(set(before))[-MOST_RELEASES:]


def index_versions(name: str, run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> list[Version]:
    """Returns the releases of ``name`` that pip's index has for this Python. Raises :class:`IndexAnswerError`."""
    command = [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check", "--retries", "1"]
    try:
        done = run(command, capture_output=True, text=True, errors="replace", timeout=INDEX_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise IndexAnswerError(f"pip did not name the releases of {name}: {error}") from None
    match = _VERSIONS.search(done.stdout)
    if done.returncode or match is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        why = lines[0].removeprefix("ERROR: ")[:200] if lines else f"exit status {done.returncode}"
        raise IndexAnswerError(f"pip did not name the releases of {name}: {why}")
    return sorted(version for text in match[1].split(", ") if (version := parsed_version(text)) is not None)


def kept_versions(name: str, cache: Path) -> list[Version]:
    """Returns the releases of ``name`` of which ``cache`` holds an environment with nothing else."""
    versions = set()
    for file in cache.glob("stacks/*/stack.json"):
        try:
            packages = json.loads(file.read_text(encoding="utf-8"))["packages"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if isinstance(packages, list) and len(packages) == 1 and str(packages[0]).startswith(f"{name}=="):
            version = parsed_version(str(packages[0]).partition("==")[2])
            versions |= {version} if version else set()
    return sorted(versions)


def parsed_version(text: object) -> Version | None:
    """Returns the version that ``text`` names; None if it names none."""
    try:
        return Version(str(text))
    except InvalidVersion:
        return None
