"""The exception that ends a test that asks for what a machine without a device does not have."""

from __future__ import annotations


class NotTaken(BaseException):
    """Ends a test that cannot be watched: ``subject`` is what it asked for, of this ``kind``, ``why`` a sentence.

    It is no Exception, so that a test that catches whatever torch raises does not catch it.
    """

    def __init__(self, kind: str, subject: str, why: str) -> None:
        super().__init__(why)
        self.kind, self.subject, self.why = kind, subject, why
