"""Checks of kernels that read, and may write, by tensor descriptors.

``run`` is a ``conformance.judging.inductor_judge.PinnedRun``.
"""

from __future__ import annotations

from typing import Any

from conformance.codegen_checks import POINTER_STORE, TMA_LOAD, TMA_STORE
from conformance.inductor.source import spellings


def check_descriptors(run: Any, template: str, *, store: bool) -> None:
    """Two descriptors are made and loaded from once each; the output is written once per subtile, through a third one
    if ``store`` was asked for and through pointers otherwise. The source writes in a loop over the subtiles, which the
    compiler unrolls."""
    dialect = spellings.dialect(template)
    store = store and dialect.stores_output
    run.exactly(2 + store, "descriptors", dialect.created)
    run.exactly(2, "descriptor loads", dialect.load)
    run.exactly(int(store), "descriptor stores", dialect.store)
    run.exactly(int(not store), "pointer stores", spellings.POINTER_STORE)
    wanted, other = (TMA_STORE, POINTER_STORE) if store else (POINTER_STORE, TMA_STORE)
    run.code(requires=[TMA_LOAD, wanted], forbids=[other])
    subtiles = run.choice.numbers.get("EPILOGUE_SUBTILE", 1)
    run.exactly(subtiles, "stores", r"\btt\.(?:descriptor_)?store\b", where="ttir")


def check_host_descriptors(run: Any, template: str) -> None:
    """The kernel is passed two descriptors, of A and B, makes none, and loads from each once."""
    dialect = spellings.dialect(template)
    run.exactly(2, "host descriptors", r"'block_shape': \[")
    run.exactly(0, "descriptors", dialect.created)
    run.exactly(2, "descriptor loads", dialect.load)
