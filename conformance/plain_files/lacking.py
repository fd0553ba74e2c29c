"""Names what a file uses of Triton that the installed Triton lacks, from the error that comes of it.

The compiler gives texts and no exceptions, and so the texts of Python and of Triton are read.
"""

from __future__ import annotations

import re
from pathlib import Path

import triton
import triton.language as tl

from conformance.exception_text import causes_of, traceback_of, words_of

_PACKAGE = str(Path(str(triton.__file__)).parent)
_NAME = re.compile(r"module '(triton[\w.]*)' has no attribute '(\w+)'|cannot import name '(\w+)' from '(triton[\w.]*)'")
_MODULE = re.compile(r"No module named '(triton[\w.]*)'")
_ARGUMENT = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_OPTION = re.compile(r"Keyword argument (\w+) was specified but unrecogni[sz]ed")
_REMOVED = re.compile(r"^.* (?:has|have) been removed\b.*$", re.MULTILINE)


def lacked(error: BaseException | str) -> str:
    """Returns a sentence about what the installed Triton lacks if ``error``, or its text, comes of that; else "".

    >>> lacked("No module named 'triton.ops'").partition(" lacks ")[2]
    'the module triton.ops, which the file uses: judge it with a Triton that has it'
    """
    errors = [] if isinstance(error, str) else causes_of(error)
    texts = [words_of(each) for each in errors] if errors else [str(error)]
    what = next(filter(None, map(_missing, texts)), "") or next(filter(None, map(_refused, errors)), "")
    text = f"the installed Triton {triton.__version__} lacks {what}, which the file uses"
    return f"{text}: judge it with a Triton that has it" if what else ""


def _missing(text: str) -> str:
    """Returns what is missing by the ``text`` of an error."""
    if match := _NAME.search(text):
        module, name = (match[1], match[2]) if match[1] else (match[4], match[3])
        return f"{module}.{name}"
    if match := _MODULE.search(text):
        return f"the module {match[1]}"
    if (match := _ARGUMENT.search(text)) and any(hasattr(each, match[1].partition(".")[0]) for each in (tl, triton)):
        return f"the argument {match[2]} of {match[1].removesuffix('.__init__')}"
    if match := _OPTION.search(text):
        return f"the option {match[1]} of a launch"
    if match := _REMOVED.search(text):
        return f"something ({match[0].strip()})"
    return ""


def _refused(error: BaseException) -> str:
    """Returns the words of ``error`` if Triton itself says with it that it implements something no more."""
    trace = traceback_of(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, NotImplementedError) or trace is None or not words_of(error):
        return ""
    return f"something ({words_of(error)})" if trace.tb_frame.f_code.co_filename.startswith(_PACKAGE) else ""
