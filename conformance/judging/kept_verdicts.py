"""Verdicts of executed TTGIR that passed, kept on disk: unchanged code, fills and harness are not executed again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from conformance.kernels.kernel import Plan
from conformance.machine.cache_folder import default_cache
from conformance.machine.code_digest import code_digest
from conformance.records import Verdict
from conformance.ttgir.verdict import Executed

_digest = functools.cache(code_digest)


def kept(plan: Plan, texts: Iterable[str], fills: object, seed: int, execute: Callable[[], Executed]) -> Executed:
    """The verdict of an earlier run of the same, or that of ``execute``, which is kept if it passed.

    A verdict is kept for the ``texts`` and the ``plan``, the ``fills`` and their ``seed``. It also depends on every
    file of this package, and on the releases of NumPy and torch. It is not for kernels of others, whose files are not
    known here.
    """
    parts = [_digest(), np.__version__, torch.__version__, repr(plan), repr(fills), repr(seed), *texts]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = default_cache() / "executed" / key[:2] / key
    if (earlier := _read(path)) is not None:
        return earlier
    result = execute()
    if result.passed:
        _write(path, result)
    return result


def _read(path: Path) -> Executed | None:
    """Returns the kept result; None if there is none that can be used."""
    try:
        data = json.loads(path.read_text())
        verdicts = tuple(Verdict(*fields) for fields in data["verdicts"])
        return Executed(verdicts, "", tuple(data["orders"]), tuple(data["fills"]), layouts=data["layouts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, result: Executed) -> None:
    fields = [[each.check, each.passed, each.text, dict(each.details)] for each in result.verdicts]
    text = json.dumps({"verdicts": fields, "orders": result.orders, "fills": result.fills, "layouts": result.layouts})
    with contextlib.suppress(OSError):  # a folder that cannot be written keeps nothing
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(text)
        new.replace(path)
