"""The result of each mutant, kept in a folder by a digest of all that the answer depends on."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import conformance
from conformance.mutation.functions import DeviceFunction
from conformance.mutation.mutants import Mutant
from conformance.mutation.tier_plans import TierPlan

#: Parts of the package that no judgement of a mutant on one plan depends on. Device functions, faults, and the plans
#: that suites ask for, have digests of their own.
WITHOUT_EFFECT = (
    *("commands", "gate", "inductor", "plugin", "reporting", "reproducers", "user_files", "cli.py"),
    *("suites", "cases", "families/*examples.py", "families/draw.py", "kernels/families", "kernels/device"),
    *(f"mutation/{name}.py" for name in ("causes", "known_survivors", "names", "operators", "score", "session")),
)


class MutantOutcome(str, Enum):
    """The possible results of a mutant."""

    KILLED = "killed"
    COMPILE_ERROR = "compile-error"
    EQUIVALENT = "equivalent"
    SURVIVED = "survived"


@dataclass(frozen=True)
class Result:
    """``check`` is the check that failed, or "exception", "crash" and the like, and ``text`` what it said; ``plan`` the
    plan on which it did. ``cause`` is what the diagnosis named. ``plans`` were run, in ``seconds`` of wall time. Of one
    that is not killed ``text`` says what was proved, or why it may have survived.

    Of a survivor ``compiled`` says whether the compiler was asked. ``key`` is a digest of mutant, kernels and harness,
    ``judged_by`` one of the plan that killed, or of all plans if none did."""

    key: str
    mutant: str
    kind: str
    function: str
    outcome: MutantOutcome
    check: str = ""
    text: str = ""
    cause: str = ""
    plan: str = ""
    judged_by: str = ""
    compiled: bool = True
    plans: int = 0
    seconds: float = 0.0
    diff: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Result:
        data: dict[str, Any] = json.loads(line)
        return cls(**{**data, "outcome": MutantOutcome(data["outcome"]), "diff": tuple(data["diff"])})


@functools.cache
def harness_digest() -> str:
    """A digest of this package's source, without what cannot change a judgement, and of the versions that it runs."""
    root = Path(conformance.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not any(fnmatch(name, part) or name.startswith(f"{part}/") for part in WITHOUT_EFFECT):
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    for package in ("torch", "triton", "numpy"):
        digest.update(f"{package} {_version(package)}\n".encode())
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def plan_digest(plan: TierPlan) -> str:
    """Tells ``plan`` from others, whatever case asks for it."""
    return _digest(repr(plan.plan), repr(plan.fills))


def plans_digest(plans: Iterable[TierPlan]) -> str:
    """Tells a set of plans from others."""
    return _digest(*sorted(map(plan_digest, plans)))


def plan_key(plan: TierPlan, where: str) -> str:
    """Returns a digest of all that the judgement of the unchanged kernel on ``plan`` depends on. ``where`` names the
    executor or device."""
    return _digest(where, harness_digest(), plan_digest(plan), *(f.digest for f in plan.functions))


def mutant_key(mutant: Mutant, plans: Iterable[TierPlan], where: str) -> str:
    """Returns a digest of all that the judgement of ``mutant`` depends on, for any of ``plans``, which reach its
    function."""
    functions: dict[str, DeviceFunction] = {f.name: f for plan in plans for f in plan.functions}
    digests = [functions[name].digest for name in sorted(functions)]
    return _digest(where, harness_digest(), mutant.function.name, mutant.digest, *digests)


def still_holds(result: Result, plans: Sequence[TierPlan]) -> bool:
    """Returns True if ``result``, found under today's key, holds for ``plans``, those that reach its function now. The
    plan that killed must be among them; if none killed, ``plans`` must be the same."""
    return result.judged_by in {plans_digest(plans), *map(plan_digest, plans)}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


class Lines:
    """A file of JSON lines to which several processes append."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: str) -> None:
        """Appends ``line`` whole, whoever else does so."""
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line + "\n")

    def __iter__(self) -> Iterator[str]:
        """The whole lines; one that a killed process left unfinished is none."""
        if self.path.exists():
            yield from (line for line in self.path.read_text().split("\n")[:-1] if line.endswith("}"))
