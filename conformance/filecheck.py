"""FileCheck directives over a text, in this process."""

from __future__ import annotations

import contextlib
import io
import re
from typing import NamedTuple

_DIRECTIVE = re.compile(r"\s*CHECK(-NOT|-DAG|-SAME|-COUNT-[1-9]\d*)?:\s*\S")


class FileCheckResult(NamedTuple):
    """``line`` (from 1) is where matching stood when it ended: the last match, or where the failing directive began
    to look. ``message`` is empty if it passed."""

    passed: bool
    message: str
    line: int


def filecheck(directives: str, text: str) -> FileCheckResult:
    """Runs FileCheck ``directives``, one per line, over ``text``, in this process.

    CHECK, CHECK-NOT, CHECK-DAG, CHECK-SAME and CHECK-COUNT-n are taken; anything else raises ValueError, because the
    package skips what it does not know without a word. The package looks for a trailing CHECK-NOT up to, but not
    including, the last character, so the text gets an empty line at its end.

    >>> filecheck("CHECK: wgmma", "wgmma.mma_async").passed
    True
    >>> filecheck("CHECK-NOT: wgmma", "wgmma.mma_async").passed
    False
    """
    from filecheck.error import ParseError
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    from filecheck.parser import Parser, pattern_for_opts

    lines = [line for line in directives.splitlines() if line.strip()]
    strange = [line for line in lines if not _DIRECTIVE.match(line)]
    if strange or not lines:
        raise ValueError(f"{strange[0]!r} is no FileCheck directive" if strange else "no FileCheck directive was given")
    options = Options(match_filename="<directives>", input_file="<text>", allow_empty=True)
    content = FInput("<text>", FInput.canonicalize_line_ends(text) + "\n\n")
    printed = io.StringIO()
    try:
        operations = list(Parser(options, io.StringIO("\n".join(lines) + "\n"), *pattern_for_opts(options)))
    except ParseError as error:
        raise ValueError(f"{error.message} in the FileCheck directives {directives!r}") from None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        failed = Matcher(options, content, operations).run() != 0  # type: ignore[arg-type]  # it only iterates
    message = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).strip() if failed else ""
    if failed and (
        "<directives>:" not in message or "Malformed regex" in message or "referenced before assignment" in message
    ):
        raise ValueError(f"the FileCheck directives {directives!r} cannot be used: {message}")
    return FileCheckResult(not failed, message, content.line_no + 1)
