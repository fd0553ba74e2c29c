"""Verdicts about generated source: patterns that occur in it, and what its wrapper launches and calls."""

from __future__ import annotations

import re

from conformance.filecheck import filecheck
from conformance.records import Verdict


def exactly(count: int, pattern: str) -> str:
    """FileCheck directives for a regular expression that matches ``count`` times, no more and no less."""
    present = [f"CHECK-COUNT-{count}: {{{{{pattern}}}}}"] if count else []
    return "\n".join([*present, f"CHECK-NOT: {{{{{pattern}}}}}"])


def in_source(check: str, directives: str, text: str, where: str | None = None) -> Verdict:
    """Returns the verdict of FileCheck ``directives`` on ``text``. ``where`` tells a reproducer which text it is. It is
    "kernel" (the source of the template's kernel), "module" (the module around it) or a stage that the kernel was
    compiled to. A verdict that failed holds it and the directives."""
    result = filecheck(directives, text)
    details = {} if result.passed or where is None else {"directives": directives, "where": where}
    return Verdict(check, result.passed, result.message, details)


def launched(*modules: str) -> list[str]:
    """Returns the Triton kernels that generated modules launch, in their order, each as often as they do."""
    return re.findall(r"^\s*(triton_\w+)\.run\(", "\n".join(modules), flags=re.MULTILINE)


def extern_calls(*modules: str) -> list[str]:
    """Returns the kernels of ATen that generated modules call, in their order."""
    return re.findall(r"\bextern_kernels\.(\w+)\(", "\n".join(modules))
