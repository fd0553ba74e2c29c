"""The command that runs a case again, built from facts of its record. The record has a command line too, which may be
a stranger's and is not shown.
"""

from __future__ import annotations

import re
import shlex

from conformance.records import CaseRecord
from conformance.user_files.run_options import DEFAULT_SEED, TIERS

#: The tier of records that ``conformance watch`` wrote, whose cases are tests and launches of a user's own suite.
WATCHED = "watch"
#: Characters of an id that a command may have; a longer one is no case's.
_LONGEST = 20_000


def case_command(record: CaseRecord) -> str:
    """Returns a command line that runs the case of ``record`` as it was run; empty if its id is too long for one.

    >>> from conformance.records import Status
    >>> case_command(CaseRecord("test_a.py::test_x[mm]", "a", Status.FAIL, tier="quick", target="sm_90", gpu="0"))
    "conformance run '--conformance-case=test_a.py::test_x[mm]' --tier=quick --target=sm_90"
    """
    if len(record.case) > _LONGEST:
        return ""
    if record.tier == WATCHED:
        test = (record.problem or {}).get("test") or record.case
        return shlex.join(["conformance", "watch", f"--target={record.target}", "--", "pytest", str(test)])
    words = ["conformance", "run", f"--conformance-case={record.case}"]
    words += [f"--tier={record.tier}"] if record.tier in TIERS else []
    words += [f"--target={record.target}"] if re.fullmatch(r"[\w.:+-]{1,100}", record.target or "") else []
    words += [f"--seed={record.seed}"] if record.seed not in (None, DEFAULT_SEED) else []
    words += [] if record.gpu or record.executor == "device" else ["--no-gpu"]
    return shlex.join(words)
