"""Survivors that are known, with the reason why no case kills them: a file of the package, or the user's."""

from __future__ import annotations

from pathlib import Path

#: The package's own list.
KNOWN = Path(__file__).parents[1] / "data" / "known_survivors.txt"


class WrongLine(ValueError):
    """The file cannot be read, or a line of it is neither a comment nor a mutant with a reason."""


def known_survivors(path: Path = KNOWN) -> dict[str, str]:
    """Returns the reason for each known survivor, by the mutant's id. Lines are an id, white space and a reason; "#"
    begins a comment. Raises WrongLine, also if the file cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        raise WrongLine(f"{path} cannot be read: {error}") from error
    reasons = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        mutant, _, reason = line.partition(" ")
        if mutant.count(":") != 3 or not reason.strip():
            raise WrongLine(f"{path}:{number}: an id of a mutant and the reason why it survives are required")
        reasons[mutant] = reason.strip()
    return reasons
