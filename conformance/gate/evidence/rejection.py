"""The reasons for rejecting evidence."""

from __future__ import annotations

from enum import Enum

MESSAGE_LIMIT = 2000  # characters: it quotes what a stranger wrote


class RejectReason(str, Enum):
    """The part of a bundle that is wrong. From the outside in these are the archive, the signature, the statement, the
    run, and the verifier's own demands."""

    ARCHIVE = "archive"  # no zip archive, or not in the one form that 'conformance bundle' writes
    TOO_LARGE = "too-large"  # more bytes or members than are read

    ENVELOPE = "envelope"  # no DSSE envelope with exactly one signature of an in-toto statement
    OTHER_KEY = "other-key"  # signed by another key than the verifier's
    BAD_SIGNATURE = "bad-signature"  # the signature does not fit the statement

    JSON = "json"  # no JSON, or JSON that two readers can understand differently
    MEMBERS = "members"  # a file is missing, added or not the one that was signed
    STATEMENT = "statement"  # the statement claims what does not follow from the files

    UNREADABLE = "unreadable"  # a record, run.json or environment.json is not as this version reads it
    MIXED_RUNS = "mixed-runs"  # the files are of different runs
    INCOMPLETE = "incomplete"  # the records are not those of the selected cases, or the run did not end
    OWED_CASES = "owed-cases"  # the run does not have what the mustpass lists in the bundle owe
    NOT_EXCUSED = "not-excused"  # a kernel's expected failure is said to excuse a case that it is not about
    FORBIDDEN_OPTION = "forbidden-option"  # an option or a variable that no evidence may have

    PARTIAL = "partial"  # options narrowed the run
    OTHER_CODE = "other-code"  # judged by code that the verifier does not accept
    OTHER_FILE = "other-file"  # waivers or a mustpass list that are not the verifier's


class Rejected(ValueError):
    """The evidence cannot be trusted; the message says what is wrong and what is required."""

    def __init__(self, reason: RejectReason, message: str) -> None:
        super().__init__(message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + " ...")
        self.reason = reason
