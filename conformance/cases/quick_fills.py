"""The fills of the quick tier where a suite is about which elements are read and written."""

from __future__ import annotations

#: Fills that show what was read and written, inside the operands and outside. The quick tier has all fills in
#: ``transposition``, and of scaled products in ``scaling``.
QUICK_FILLS = ("transparent", "randn")


def quick_fills(tier: str) -> tuple[str, ...] | None:
    """The fills that such a suite asks for in ``tier``; None stands for all that its problem has."""
    return QUICK_FILLS if tier == "quick" else None
