"""Words the cause of a failure so that all cases of one cause share it; of a compiler's output it finds the line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from conformance.records import CaseRecord, Check, CheckKind, Status

#: Characters of an output that are read, of one of its lines, and of a cause.
OUTPUT_LIMIT = 24_000
LINE_LIMIT = 1000
COMPILER_CAUSE_LIMIT = 160

_DIED = re.compile(r"(?:compiler died|was stopped|process died): (SIG[A-Z]+|exit status -?\d+)")
_ASSERTION = re.compile(r"([^\s/:]+\.\w+):(\d+): (?:.*?: )?Assertion [`'\"](.*?)['\"`]? failed")
_UNREACHABLE = re.compile(r"^(.*?)UNREACHABLE executed(?: at (?:\S*/)?([^\s/:]+:\d+))?")
_LLVM = re.compile(r"(?:LLVM ERROR|fatal error: error in backend): (.+)")
_PTXAS = re.compile(r"^ptxas\b.*?\b(?:fatal|error)\s*: (.+)")
_PTXAS_END = "Ptx assembly aborted"
_ERROR = re.compile(r"^(?:.*?: )?error: (.+)")
_PASSES_FAILED = "Failures have been detected while processing an MLIR pass pipeline"
_PASS = re.compile(r"Pipeline failed while executing \[[`'](\w+)")
_FRONT_END = re.compile(r"\bCompilationError: at \d+:\d+:")
_RAISED = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)\b.*)")
_THROWN = re.compile(r"terminate called after throwing an instance of '(.+)'")
_WHAT = re.compile(r"^\s*what\(\): +(.+)")
_C_LIBRARY = re.compile(
    r"^(?:(?:malloc|free|realloc|munmap_chunk|corrupted)\w*\b.*|double free or corruption.*|\*\*\* .+ \*\*\*.*)"
)
#: A frame of the stack that LLVM prints, and one of Python's, of Triton's compiler.
_NATIVE_FRAME = re.compile(
    r"^\s*#\d+ 0x[0-9a-f]+ ((?:\(anonymous namespace\)::)?(?:mlir|llvm|triton|ttg|proton)::[\w:~<>, ]*\w)"
)
_HANDLER = re.compile(r"PrintStackTrace|RunSignalHandlers|SignalHandler")
_PYTHON_FRAME = re.compile(r'^\s*File ".*/(triton/[^"]+)", line \d+ in (\w+)')
_FROM_SOURCE = re.compile(r"^\s*File \"|^--- the compiler wrote ---")
#: What differs from case to case in a line of a compiler.
_LINE_SUBSTITUTIONS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"^(?:loc\(.*?\)|<unknown>:\d+(?::\d+)?|\S+:\d+:\d+): ", ""),
        (r"(?<![\w.])(?:/[\w.+@~-]+){2,}(?::\d+)*", "PATH"),
        (r"0x[0-9a-fA-F]+", "HEX"),
        (r"\b([Ff]unction) ['`\"@]?[\w$]+(?:\.[\w$]+)*['`\"]?", r"\1 F"),
        (r"(?<![\w%])%(?!llvm\.)[\w.#:$-]+", "%V"),
        (r"\bt\d+(?=[:,\s]|$)", "tN"),  # a node of LLVM's selection
        (r"#(\w+?)\d*\b", r"#\1"),  # a layout
        (r"\b(tensor|memref|vector|memdesc|tensordesc|ptr)<.*>", r"\1<>"),
        (r"(?<![\w.])\d+(?:x\d+)+(?:-\w+)+", "CONFIG"),
        (r"(?<![\w.])\d+(?:x\d+)+", "SHAPE"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", "N"),
        (r"\s+", " "),
    )
)


def compiler_cause(output: str) -> str | None:
    """Returns the cause that the compiler itself names in ``output``; None if it names none.

    The order of preference is: a failed assertion with its file and line, unreachable code, LLVM's own error, the
    assembler's. Then come a diagnostic with the pass that failed, the front end's exception, and the message of the C++
    or C library. After a signal without any of these it is the signal with the topmost known frame of the compiler.
    Addresses, paths, values, shapes and names of kernels are not part of it.

    >>> compiler_cause("remark: 12 spills\\nLLVM ERROR: out of registers\\nAborted")
    'LLVM ERROR: out of registers'
    """
    lines = [line[:LINE_LIMIT] for line in output[:OUTPUT_LIMIT].splitlines()]
    return next((cause[:COMPILER_CAUSE_LIMIT] for reader in _READERS if (cause := reader(lines))), None)


def _assertion(lines: list[str]) -> str | None:
    match = _first(_ASSERTION, lines)
    return f"Assertion `{_short(match[3])}' failed at {match[1]}:{match[2]}" if match else None


def _unreachable(lines: list[str]) -> str | None:
    match = _first(_UNREACHABLE, lines)
    if match is None:
        return None
    where = f" at {match[2]}" if match[2] else ""
    before = next((line for line, following in itertools.pairwise(lines) if following == match.string), "")
    return f"unreachable code{where}: {_plain(match[1] or before)}".rstrip(": ")


def _llvm_error(lines: list[str]) -> str | None:
    match = _first(_LLVM, lines)
    return f"LLVM ERROR: {_plain(match[1])}" if match else None


def _assembler(lines: list[str]) -> str | None:
    messages = [match[1] for match in _all(_PTXAS, lines) if not match[1].startswith(_PTXAS_END)]
    return f"ptxas: {_plain(messages[0])}" if messages else None


def _diagnostic(lines: list[str]) -> str | None:
    messages = [_plain(match[1]) for match in _all(_ERROR, lines)]
    message = next((text for text in messages if not text.startswith(_PASSES_FAILED)), None)
    failing = _first(_PASS, lines)
    if failing is None:
        return f"error: {message}" if message else None
    return f"pass {failing[1]} failed: {message}" if message else f"pass {failing[1]} failed"


def _front_end(lines: list[str]) -> str | None:
    """Returns the exception that Triton's front end names behind the lines of the kernel."""
    if not lines or not _FRONT_END.search(lines[0]):
        return None
    end = next((number for number, line in enumerate(lines) if _FROM_SOURCE.match(line)), len(lines))
    raised = [match[1] for match in _all(_RAISED, lines[1:end])] or [line for line in lines[1:end] if line.strip(" ^")]
    return f"CompilationError: {_plain(raised[-1])}" if raised else None


def _library(lines: list[str]) -> str | None:
    thrown, what = _first(_THROWN, lines), _first(_WHAT, lines)
    if thrown:
        return f"uncaught {thrown[1]}" + (f": {_plain(what[1])}" if what else "")
    corrupted = _first(_C_LIBRARY, lines)
    return _plain(corrupted[0]) if corrupted else None


def _signal(lines: list[str]) -> str | None:
    match = _first(_DIED, lines)
    if match is None:
        return None
    frame = _frame(lines)
    return f"{match[1]} in {frame}" if frame else None if match[1].startswith("exit") else match[1]


def _frame(lines: list[str]) -> str | None:
    """Returns the topmost frame of the compiler: native code's if it has a name, else the function of Triton that
    called it."""
    native = (match[1] for match in _all(_NATIVE_FRAME, lines) if not _HANDLER.search(match[1]))
    if frame := next(native, None):
        return frame
    current = next((number for number, line in enumerate(lines) if line.startswith("Current thread")), 0)
    python = _first(_PYTHON_FRAME, lines[current:])
    return f"{python[2]} ({python[1]})" if python else None


_READERS: tuple[Callable[[list[str]], str | None], ...] = (
    *(_assertion, _unreachable, _llvm_error, _assembler, _diagnostic, _front_end, _library, _signal),
)


def _all(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[re.Match[str]]:
    return (match for line in lines if (match := pattern.search(line)))


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> re.Match[str] | None:
    return next(_all(pattern, lines), None)


def _short(text: str) -> str:
    return " ".join(text.split())[:100]


def _plain(text: str) -> str:
    """``text`` without what differs from case to case."""
    for pattern, replacement in _LINE_SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    return text.strip(" :|,")


#: Characters of a text that are read, and of a cause.
TEXT_LIMIT = 2000
CAUSE_LIMIT = 120

#: The statuses of a case whose compiler may have said why.
_BY_THE_COMPILER = (Status.COMPILE_ERROR, Status.CRASH, Status.TIMEOUT, Status.OOM, Status.EXPECTED_FAIL)

_PROVEN = re.compile(r"\bCAUSE ([^|\n]+)")
_SUBSTITUTIONS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"(?<![\w.])(?:/[\w.+@~-]+){2,}(?::\d+)*", "PATH"),
        (r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)[0-9a-f]{12,}\b", "HEX"),
        (r",? ?\bfirst [\[(].*", ""),  # where the first wrong element is, and what it holds
        (r"\b\d+(?:x\d+)+(?:-\w+)*", "CONFIG"),
        (r"[\[(] ?-?\d+(?:, ?-?\d+)*,? ?[\])]", "[..]"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", "N"),
        (r"(?<=[a-z])(?<!sm)_\d+\b", "_N"),  # of generated names
        (r"\bseed N\b:? ?|\bN/N ", ""),
        (r"\s+", " "),
    )
)


def normalised(text: str) -> str:
    """``text`` without what is only one case's, on one line, cut to :data:`CAUSE_LIMIT` characters.

    >>> normalised("tile (3,1): 12 of 4096 wrong at 0x7f12ab00 in /tmp/x/k.py:40")
    'tile [..]: N of N wrong at HEX in PATH'
    """
    text = text[:TEXT_LIMIT]
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    text = text.strip(" :|,")
    return text if len(text) <= CAUSE_LIMIT else text[: CAUSE_LIMIT - 3].rstrip() + "..."


def failure_cause(record: CaseRecord, failing: tuple[tuple[str, str], ...] | None = None) -> str:
    """Returns the cause of the failure of ``record``: its first failing check, with the cause that the diagnosis proves
    or else the check's text. Without a failing check it is what the compiler names as the cause of its failure, or else
    the diagnosis's first line. ``failing`` replaces the record's failing checks."""
    failing = record.failing if failing is None else failing
    proven = _PROVEN.search(record.diagnosis[:TEXT_LIMIT])
    if failing:
        check, text = Check.parse(failing[0][0]), failing[0][1]
        if check.kind is CheckKind.COMPILE and (named := compiler_cause(text)):
            return _joined(check.name, named)
        words = proven.group(1) if proven and check.kind is CheckKind.NUMERICS else first_line(text)
        return _joined(check.name, normalised(words))
    named = compiler_cause(record.diagnosis) if record.status in _BY_THE_COMPILER else None
    words = named or normalised(first_line(record.diagnosis))
    return _joined(record.status.value, words) if record.status is not Status.FAIL else words or "failed without a word"


def first_line(text: str) -> str:
    """The first line of ``text`` that is not blank; "" if there is none."""
    return next((line for line in text[:TEXT_LIMIT].splitlines() if line.strip()), "")


def _joined(name: str, words: str) -> str:
    return f"{normalised(name)}: {words}" if words else normalised(name)
