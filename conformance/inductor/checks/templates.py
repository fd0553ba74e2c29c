"""Checks of the suites about single templates."""

from __future__ import annotations

from conformance.inductor.compile.program import Generated
from conformance.inductor.source.source_checks import extern_calls, launched
from conformance.records import Verdict


def templates_alone(generated: Generated, count: int) -> list[Verdict]:
    """``count`` kernels of templates are launched, each once, and nothing of ATen's is called."""
    templates = [kernel.name for kernel in generated.kernels if kernel.kind == "template"]
    launches = [name for name in launched(*generated.modules) if name.startswith("triton_tem_")]
    calls = extern_calls(*generated.modules)
    return [
        Verdict("templates", len(templates) == count, f"{', '.join(templates)}: {count} required"),
        Verdict("one launch of each", sorted(launches) == sorted(templates), ", ".join(launches)),
        Verdict("no extern kernel", not calls, ", ".join(calls)),
    ]
