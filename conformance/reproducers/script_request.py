"""What is asked of the process that writes a script, beside its case: a file in the folder for scripts."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

#: The file's name.
NAME = "request.json"


@dataclass(frozen=True)
class ScriptRequest:
    """``dies``: the case may take its process with it, so the script is to be written before it runs. ``features`` are
    names of what the code had in another run, ``spills`` the most that it spilled there (bytes per thread on NVIDIA,
    registers per lane on AMD): if the case passes, a script looks for those."""

    dies: bool = False
    features: tuple[str, ...] = ()
    spills: int | None = None

    def write(self, folder: Path) -> None:
        (folder / NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ScriptRequest:
        """The request in ``folder``; one that asks for nothing if there is none."""
        try:
            data = json.loads((folder / NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        return cls(data["dies"], tuple(data["features"]), data["spills"])


def file_name(case: str) -> str:
    """A name for the script of ``case`` that every file system takes and no other case has."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", case.removeprefix("test_").replace(".py::", "-", 1)).strip("-")[:80]
    return f"{readable}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.py"
