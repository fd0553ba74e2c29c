"""Compiles the kernels of a run on all nodes of a cluster that have cores, in the format of ``conformance precompile``.

The nodes share the cases so that few kernels are compiled twice. What they have compiled travels to this machine. The
compile stage here takes it, by the digest of its specialisation, in place of a compilation.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance.cases.case_table import Selection
from conformance.execution.compile.carried_kernels import KERNELS_FILE, CarriedKernels, Toolchain, Unusable
from conformance.judging.compile_stage import CannotBePlanned, CompileStage
from conformance.judging.harness import COMPILE_DEADLINE
from conformance.judging.settings import Settings
from conformance.ray_cluster.worker_actor import PAYLOAD_FILE
from conformance.shards.cut import cut


def parts(cores: Sequence[int], kernels: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Returns the cases for each of the nodes, of which ``cores`` says how many cores they have. ``kernels`` are the
    keys of the kernels that each case compiles. Cases without one are left out.

    >>> parts([1, 2], {"a": ["x"], "b": ["x"], "c": ["y"], "d": ["z"], "e": []})
    [['a', 'b'], ['c', 'd']]
    """
    weights = {case: len(keys) for case, keys in kernels.items() if keys}
    owners = [node for node, count in enumerate(cores) for _ in range(count)]
    numbers = cut(weights, kernels, len(owners)) if weights else {}
    shares: list[list[str]] = [[] for _ in cores]
    for case, number in numbers.items():
        shares[owners[number - 1]].append(case)
    return shares


def compile_on_nodes(
    stage: CompileStage,
    settings: Settings,
    selection: Selection,
    cases: Sequence[str],
    cores: Sequence[int],
    run: Callable[[Sequence[tuple[int, bytes]]], Sequence[bytes]],
    folder: Path,
) -> Path | None:
    """Returns ``folder`` with the kernels that the nodes have compiled for ``cases``, for the compile stage; None if
    there are none. ``cores`` are those of the nodes.

    ``run`` takes the number and the task of each node that has one. It returns the content of each node's
    :data:`KERNELS_FILE`, empty if it could not compile. The stage compiles what is missing, or of another toolchain."""
    try:
        kernels = stage.kernels(settings, selection, cases)
    except CannotBePlanned:
        return None  # the stage says so
    shares = parts(cores, kernels)
    tasks = [
        (node, pickle.dumps((settings, selection, share, cores[node]))) for node, share in enumerate(shares) if share
    ]
    here = stage.toolchain(selection)
    store = CarriedKernels(folder, write=True)
    took = 0
    for number, content in enumerate(run(tasks)):
        part = folder / f"node-{number}"
        part.mkdir()
        (part / KERNELS_FILE).write_bytes(content)
        took += _take(store, part, here) if content else 0
    store.close()
    return folder if took else None


def _take(store: CarriedKernels, part: Path, here: Toolchain) -> int:
    """Adds the kernels of ``part`` to ``store``, and returns their number: none if they were compiled by other tools
    than those that are ``here``."""
    try:
        theirs = CarriedKernels(part)
        try:
            return 0 if any(map(here.objection, theirs.toolchains())) else store.take_all(theirs)
        finally:
            theirs.close()
    except (Unusable, sqlite3.Error):
        return 0


def main(folder: Path) -> None:
    """Runs the task in ``folder`` on a node, and leaves there what it compiled. Failures and what Triton's cache had
    are left out: the first are found again where they count."""
    settings, selection, cases, workers = pickle.loads((folder / PAYLOAD_FILE).read_bytes())
    store = CarriedKernels(folder, write=True)
    with CompileStage(workers, COMPILE_DEADLINE) as stage:
        used = stage.toolchain(selection)
        compiled = stage.compile(settings, selection, cases)
    for key, result in compiled.kernels.items():
        if result.artefact is not None and not result.artefact.cached:
            store.add(key, used, result)
    store.close()
