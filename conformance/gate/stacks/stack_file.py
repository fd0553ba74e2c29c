"""Stacks under test, as users name them: what differs from the environment that this command runs in.

A stack is written as items with spaces or commas between them. An item is

* ``triton==3.9.0``, ``torch==2.14.1`` or another pinned package, such as ``numpy==2.3.5``,
* the path of a wheel,
* ``site=/path/to/folder``: packages that lie in a folder, such as a vendor's build,
* ``ptxas==12.9.86`` (or ``ptxas==12.9``, the newest of that release), from the CUDA compiler's wheel,
* ``ptxas=/path/to/ptxas``,
* ``preview=fp-fusion-off``: a change that the makers have announced, set by variables (:data:`PREVIEWS`), or
* ``current``, alone: the environment as it is.

``stacks.toml`` describes several. Each has a table ``[stack.NAME]`` with ``use`` and, optionally, ``env`` (variables of
its processes). Above them stands ``compare``: "previous" (each with the one before it) or the name of the stack that
the others are compared with.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from conformance.machine.near_names import did_you_mean
from conformance.records import plain_file

CURRENT = "current"
#: Announced changes, and the variables that make them today. Without fp fusion a product and the sum that takes it are
#: rounded one after the other. Triton 3.10 announces that as its default; 3.7 to 3.9 read the variable.
PREVIEWS: Mapping[str, Mapping[str, str]] = {"fp-fusion-off": {"TRITON_DEFAULT_FP_FUSION": "0"}}
PREVIOUS = "previous"

#: Packages that a stack may name though they are not installed, and ptxas, which is a part of CUDA's compiler.
COMPONENTS = ("torch", "triton", "ptxas", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu")
#: Components that no stack can change, and what to do instead.
FIXED = {
    "python": "start the gate with that Python",
    "driver": "run on a machine that has it, and compare the two runs",
    "gpu": "run on a machine that has it, and compare the two runs",
    "cuda": "write ptxas==VERSION for its compiler, or a torch that is built for it",
}

#: Packages that bring what they need: a torch is built for its Triton and its CUDA libraries.
WITH_DEPENDENCIES = ("torch",)


#: Beginnings of the names of variables by which the system's loader, Python and pytest load other code. What ``use``
#: names is part of a run's digest and of its records. What these load is in neither, so two runs of different code
#: would be taken for one. PYTHONPATH lays the stack's own packages over this environment.
_LOADERS = ("LD_", "DYLD_", "GLIBC_TUNABLES", "PYTHON", "PYTEST_")
#: Those of them that load nothing.
_HARMLESS = ("PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONMALLOC")


class StackError(ValueError):
    """A stack cannot be used; the message says what was given, what is required and what to do."""


@dataclass(frozen=True)
class Stack:
    """The differences of a stack from the environment of this command. ``name`` is the user's; ``packages`` are
    requirements with exact versions, ``wheels`` files, ``sites`` folders of packages, ``ptxas`` a version or a file,
    ``variables`` the environment variables of its processes. ``brings`` is what else it changes, known once it was
    resolved, such as "triton 3.8.0"."""

    name: str
    packages: tuple[str, ...] = ()
    wheels: tuple[Path, ...] = ()
    sites: tuple[Path, ...] = ()
    ptxas: str | Path | None = None
    variables: tuple[tuple[str, str], ...] = ()
    brings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name, and what the stack brings, such as "torch==2.14.1 (brings triton 3.8.0)"."""
        return f"{self.name} (brings {', '.join(self.brings)})" if self.brings else self.name


def parse(text: str, name: str | None = None) -> Stack:
    """Returns the stack that ``text`` describes, called ``name`` or by its text. Raises :class:`StackError`.

    >>> stack = parse("triton==3.9.0 ptxas==13.0")
    >>> stack.packages, stack.ptxas
    (('triton==3.9.0',), '13.0')
    """
    items = [item for item in re.split(r"[\s,]+", text.strip()) if item]
    if not items:
        raise StackError("an empty stack: write what differs, such as 'triton==3.9.0', or 'current'")
    if items == [CURRENT]:
        return Stack(name or CURRENT)
    packages: dict[str, str] = {}
    wheels: list[Path] = []
    sites: list[Path] = []
    ptxas: str | Path | None = None
    variables: dict[str, str] = {}
    for item in items:
        if item.startswith("ptxas="):
            if ptxas is not None:
                raise StackError(f"stack {text!r}: ptxas is given twice")
            ptxas = _ptxas(item)
        elif item.startswith("preview="):
            variables |= _preview(item.removeprefix("preview="))
        elif item.startswith("site="):
            sites.append(_folder(item.removeprefix("site=")))
        elif item.endswith(".whl"):
            wheels.append(_file(item, "a wheel"))
        else:
            requirement = _pinned(item, text)
            package = canonicalize_name(requirement.name)
            if package in packages:
                raise StackError(f"stack {text!r}: {package} is given twice")
            packages[package] = f"{package}{requirement.specifier}"
    return Stack(
        name or " ".join(items),
        tuple(packages.values()),
        tuple(wheels),
        tuple(sites),
        ptxas,
        tuple(sorted(variables.items())),
    )


def spelled(stack: Stack) -> str | None:
    """Returns a text that :func:`parse` reads as ``stack``, but for its name; None if it has variables that no preview
    sets."""
    left = dict(stack.variables)
    previews = [name for name, sets in PREVIEWS.items() if sets.items() <= left.items()]
    for name in previews:
        left = {key: value for key, value in left.items() if key not in PREVIEWS[name]}
    if left:
        return None
    ptxas = () if stack.ptxas is None else (f"ptxas={'=' if isinstance(stack.ptxas, str) else ''}{stack.ptxas}",)
    items = (*stack.packages, *map(str, stack.wheels), *(f"site={site}" for site in stack.sites), *ptxas)
    return " ".join((*items, *(f"preview={name}" for name in previews))) or CURRENT


def _preview(name: str) -> Mapping[str, str]:
    if name not in PREVIEWS:
        raise StackError(f"preview={name}: there is no such preview; {did_you_mean(name, list(PREVIEWS))}")
    return PREVIEWS[name]


def _pinned(item: str, text: str) -> Requirement:
    advice = (
        "write name==version, a wheel's path, site=/folder, ptxas==version, ptxas=/path, preview=name, or 'current' "
        "alone"
    )
    try:
        requirement = Requirement(item)
    except InvalidRequirement:
        raise StackError(f"stack {text!r}: {item!r} is not understood: {advice}") from None
    if requirement.name != CURRENT:
        _check_component(requirement.name, text)
    specifiers = list(requirement.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "==" and "*" not in specifiers[0].version
    if not exact or requirement.extras or requirement.marker:
        raise StackError(f"stack {text!r}: {item!r} is no exact version: {advice}")
    return requirement


def _check_component(name: str, text: str) -> None:
    """Raises :class:`StackError` for a component that no stack can change. So is a package that is neither Triton nor
    torch nor installed here: the name may be misspelt, and an index must not see it."""
    package = canonicalize_name(name)
    if package in FIXED:
        raise StackError(f"stack {text!r}: a stack cannot change {package}: {FIXED[package]}")
    installed = [canonicalize_name(each) for each in packages_installed()]
    if package not in (*COMPONENTS, *installed):
        components = [*COMPONENTS, *sorted(FIXED)]
        near = difflib.get_close_matches(package, [*components, *installed], n=1)
        advice = (
            f"did you mean {near[0]}?" if near else f"there are {', '.join(components)}, and packages installed here"
        )
        raise StackError(f"stack {text!r}: {name} is no component: {advice}")


def packages_installed() -> Iterator[str]:
    """The names of the distributions that are installed here."""
    return (name for each in metadata.distributions() if (name := each.metadata["Name"]))


def _ptxas(item: str) -> str | Path:
    if not item.startswith("ptxas=="):
        return _file(item.removeprefix("ptxas="), "ptxas (of a version: write ptxas==VERSION)")
    version = item.removeprefix("ptxas==")
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        raise StackError(f"{item!r}: a version of CUDA's compiler is required, such as ptxas==12.9 or ptxas==13.0.88")
    return version


def _file(path: str, what: str) -> Path:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise StackError(f"{path}: {what} is required, and no file is there")
    return file


def _folder(path: str) -> Path:
    folder = Path(path).expanduser().resolve()
    if not path or not folder.is_dir():
        raise StackError(f"site={path}: a folder of packages is required, and none is there")
    packages = ("*.py", "*/__init__.py", "*.dist-info")
    if not any(path for pattern in packages for path in folder.glob(pattern)):  # else the stack is the current one
        raise StackError(f"site={path}: no package lies in it: give the folder that holds the package's own folder")
    return folder


@dataclass(frozen=True)
class Matrix:
    """Stacks in the order of their file, and the pairs (baseline, candidate) that are compared."""

    stacks: tuple[Stack, ...]
    pairs: tuple[tuple[str, str], ...]


def read_matrix(file: Path) -> Matrix:
    """Returns the matrix in ``file``. Raises :class:`StackError`."""
    try:
        data = msgspec.toml.decode(plain_file(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StackError(f"{file} cannot be read as TOML: {error}") from None
    unknown = sorted(data.keys() - {"stack", "compare"})
    if unknown:
        raise StackError(f"{file}: unknown key {', '.join(unknown)}: the keys are compare and [stack.NAME]")
    tables = data.get("stack")
    if not isinstance(tables, dict) or len(tables) < 2:
        raise StackError(f"{file}: two stacks or more are required, each a table [stack.NAME]")
    stacks = tuple(_stack(file, name, table) for name, table in tables.items())
    return Matrix(stacks, _pairs(file, data.get("compare", PREVIOUS), list(tables)))


def _stack(file: Path, name: str, table: Any) -> Stack:
    if not isinstance(table, dict) or not isinstance(table.get("use"), str) or table.keys() - {"use", "env"}:
        raise StackError(f"{file}: [stack.{name}] needs the key use, a stack as text, and may have env, a table")
    variables = table.get("env", {})
    if not isinstance(variables, Mapping) or not all(isinstance(value, str) for value in variables.values()):
        raise StackError(f"{file}: [stack.{name}]: env must be a table of texts, got {variables!r}")
    odd = [key for key, value in variables.items() if not re.fullmatch(r"[A-Za-z_]\w*", key) or "\0" in value]
    if odd:
        raise StackError(
            f"{file}: [stack.{name}]: env: {odd[0]!r} cannot be set: a name of letters, digits and _ and "
            "a text without NUL are required"
        )
    loaders = [key for key in variables if key.startswith(_LOADERS) and key not in _HARMLESS]
    if loaders:
        raise StackError(
            f"{file}: [stack.{name}]: env cannot set {loaders[0]}, which can load code that no record names: write "
            "site=/folder, a wheel or ptxas=/path into use"
        )
    stack = parse(table["use"], name)
    return replace(stack, variables=tuple(sorted({**dict(stack.variables), **variables}.items())))


def _pairs(file: Path, compare: Any, names: list[str]) -> tuple[tuple[str, str], ...]:
    if compare == PREVIOUS:
        return tuple(itertools.pairwise(names))
    if compare not in names:
        raise StackError(f"{file}: compare = {compare!r}: {PREVIOUS!r} or one of {', '.join(names)} is required")
    return tuple((compare, name) for name in names if name != compare)
