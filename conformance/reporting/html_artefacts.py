"""The text of compiled stages that the HTML report embeds. Records may come from strangers. So a path in them is read
only if it lies, with its links resolved, below a folder that the user named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.records import CaseRecord

CASES_LIMIT = 200  # cases whose artefacts are embedded: failing ones first, then changed ones
TEXT_LIMIT = 512_000  # bytes of one artefact
TOTAL_LIMIT = 48_000_000  # bytes of all of them, before compression
STAGES_LIMIT = 24  # artefacts of one case


@dataclass
class Texts:
    """The texts to embed, each once, with the bytes that were left out by reason."""

    roots: Sequence[Path]
    texts: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    _known: dict[Path, int | str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _total: int = 0

    def of_case(self, record: CaseRecord, folder: Path) -> dict[str, int | str]:
        """For each stage of ``record`` the number of its text, or the reason why it is not embedded."""
        numbers: dict[str, int | str] = {}
        for stage, name in sorted(record.artefacts.items())[:STAGES_LIMIT]:
            numbers[stage[:100]] = answer = self._one(folder, name)
            if isinstance(answer, str):
                self.left_out[answer] += 1
        return numbers

    def _one(self, folder: Path, name: str) -> int | str:
        path = _inside(folder / name, (folder, *self.roots))
        if isinstance(path, str):
            return path
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: Path) -> int | str:
        try:
            with path.open("rb") as file:
                data = file.read(TEXT_LIMIT + 1)
        except OSError:
            return "cannot be read"
        if b"\0" in data[:8192]:
            return "binary"
        if len(data) > TEXT_LIMIT:
            data = data[:TEXT_LIMIT] + f"\n... cut here: longer than {TEXT_LIMIT} bytes\n".encode()
        if self._total + len(data) > TOTAL_LIMIT:
            return f"past the limit of {TOTAL_LIMIT} bytes for all texts"
        text = data.decode("utf-8", errors="replace")
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
            self._total += len(data)
        return self._numbers[text]


def _inside(path: Path, roots: Iterable[Path]) -> Path | str:
    """``path`` with its links resolved, or why it is not read."""
    try:
        if not any(path.resolve().is_relative_to(root.resolve()) for root in roots):
            return "outside the run's folder"
        real = path.resolve(strict=True)
        return real if real.is_file() else "no regular file"
    except FileNotFoundError:
        return "not there"
    except (OSError, ValueError, RuntimeError):  # too long a name, a null byte, a loop of links
        return "not a usable path"
