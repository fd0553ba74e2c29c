"""Why evidence is refused."""

from __future__ import annotations

from enum import Enum

MESSAGE_LIMIT = 2000  # characters: it quotes what a stranger wrote


class RejectReason(str, Enum):
    """What is wrong with a bundle, from the outside in: the archive, the signature, the statement, the run."""

    NOT_AN_ARCHIVE = "not-an-archive"
    TOO_LARGE = "too-large"
    PREPENDED_DATA = "prepended-data"
    TRAILING_DATA = "trailing-data"
    HIDDEN_DATA = "hidden-data"  # bytes that belong to no member
    COMMENT = "comment"
    DUPLICATE_MEMBER = "duplicate-member"
    UNSAFE_NAME = "unsafe-name"
    NOT_A_FILE = "not-a-file"
    ENCRYPTED = "encrypted"
    COMPRESSION = "compression"
    COMPRESSION_RATIO = "compression-ratio"
    HEADERS_DISAGREE = "headers-disagree"
    DAMAGED_MEMBER = "damaged-member"

    ENVELOPE = "envelope"
    PAYLOAD_TYPE = "payload-type"
    SIGNATURE_COUNT = "signature-count"
    OTHER_KEY = "other-key"
    BAD_SIGNATURE = "bad-signature"

    JSON = "json"
    DUPLICATE_JSON_KEY = "duplicate-json-key"
    STATEMENT = "statement"
    MISSING_MEMBER = "missing-member"
    UNLISTED_MEMBER = "unlisted-member"
    CHANGED_MEMBER = "changed-member"

    RECORD = "record"
    RUN = "run"
    ENVIRONMENT = "environment"
    INCOMPLETE = "incomplete"  # recorded is not what was selected
    MUSTPASS = "mustpass"
    COUNTS = "counts"
    RESULT = "result"
    OPTION = "option"
    PARTIAL = "partial"
    OTHER_CODE = "other-code"
    OTHER_FILE = "other-file"  # waivers or a mustpass list that are not the verifier's


class Rejected(ValueError):
    """The evidence is not to be believed; the message says what was found and what is required."""

    def __init__(self, reason: RejectReason, message: str) -> None:
        super().__init__(message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + " ...")
        self.reason = reason
