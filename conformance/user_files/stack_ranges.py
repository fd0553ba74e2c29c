"""Ranges of versions, for which an entry of a TOML file or a mustpass list holds.

Versions compare as in the library packaging, but for two rules. The local part (``2.13.0+cpu``) is left out. A
pre-release comes before its release: ``>=2.13`` has no nightly build of 2.13, and ``>=2.13.dev0`` has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.user_files.case_patterns import matches

VERSIONED = ("torch", "triton", "python", "ptxas", "ptxas-blackwell", "driver")


def holds(ranges: Mapping[str, str], stack: Mapping[str, Any]) -> bool:
    """True if ``stack`` (component to version or name) lies in all ``ranges`` (component to version specifier; for
    "device" a pattern of its name, or "none"). A component that is missing, or whose version cannot be read, does not.
    """
    return all(_holds(component, specifier, stack.get(component)) for component, specifier in ranges.items())


def _holds(component: str, specifier: str, version: Any) -> bool:
    if component == "device" and version is None:
        return specifier == "none"
    if not isinstance(version, str):
        return False
    if component not in VERSIONED:
        return matches(specifier, version)
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def range_problem(ranges: Mapping[str, str]) -> str | None:
    """Returns the objection to the first of ``ranges`` that cannot be used; None if all can.

    >>> range_problem({"triton": ">=3.4"}) is None
    True
    >>> range_problem({"triton": "3.4 or so"})
    "stack.triton = '3.4 or so': a version specifier such as '>=2.13,<2.14' is required"
    """
    for component, specifier in ranges.items():
        line = f"stack.{component} = {specifier!r}"
        if component not in (*VERSIONED, "device"):
            return f"{line}: unknown component; the components are {', '.join((*VERSIONED, 'device'))}"
        if not specifier.strip():
            return f"{line}: text is required"
        if component in VERSIONED:
            try:
                SpecifierSet(specifier)
            except InvalidSpecifier:
                return f"{line}: a version specifier such as '>=2.13,<2.14' is required"
    return None
