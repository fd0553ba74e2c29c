"""A request to the process that writes a case's script: a file in the folder for scripts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

#: The file's name.
NAME = "request.json"


@dataclass(frozen=True)
class ScriptRequest:
    """The difference that the script of a case must show.

    ``dies``: the case may end its process, so the script is written before the case runs. ``features`` and ``spills``
    are those of the case's code in another run. They are names of features, and the most that it spilled (bytes per
    thread on NVIDIA, registers per lane on AMD). ``resident`` says how many of its blocks were on one multiprocessor
    there. ``room`` is the most that a block may use so that as many are resident, by the names of a script's limits.
    ``faults`` are names of what may go wrong that :mod:`conformance.execution.compile.code_structure` counts, and did
    not find there. If the case passes, the script looks for all of these.
    """

    dies: bool = False
    features: tuple[str, ...] = ()
    spills: int | None = None
    room: Mapping[str, int] = field(default_factory=dict)
    resident: str = ""
    faults: tuple[str, ...] = ()

    @property
    def about_code(self) -> bool:
        """True if the code of a case that passes is asked about."""
        return bool(self.features or self.room or self.faults) or self.spills is not None

    def write(self, folder: Path) -> None:
        (folder / NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ScriptRequest:
        """The request in ``folder``; one that asks for nothing if there is none."""
        try:
            data = json.loads((folder / NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        return cls(**{**data, "features": tuple(data["features"]), "faults": tuple(data["faults"])})


def file_name(case: str) -> str:
    """A name for the script of ``case`` that every file system takes and no other case has.

    >>> file_name("test_tma.py::test_loads[mm-bf16-sm_90]")
    'tma-test-loads-mm-bf16-sm-90-207d017d.py'
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", case.removeprefix("test_").replace(".py::", "-", 1)).strip("-")[:80]
    return f"{readable}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.py"
