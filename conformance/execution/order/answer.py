"""Describes what is known of one kind of order in a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OrderAnswer:
    """The answer about ``subject``, such as "fence": the first ``fault``, or what is ``unknown``; the code is in order
    if both are empty."""

    subject: str
    fault: str = ""
    unknown: str = ""

    @property
    def right(self) -> bool:
        """True if the order is known and right."""
        return not (self.fault or self.unknown)
