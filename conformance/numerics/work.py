"""A budget for a search: counted in multiply-adds, so that the same failure has the same causes under load."""

from __future__ import annotations

from dataclasses import dataclass

#: Multiply-adds of one search for causes.
LIMIT = 3 << 30
#: The cost of each hypothesis in addition to its arithmetic, in multiply-adds.
EACH = 1 << 15


@dataclass
class WorkBudget:
    """The budget that is ``left`` of a search's work; ``ended`` once something was asked for that no longer fitted."""

    left: int = LIMIT
    ended: bool = False

    def take(self, multiply_adds: int) -> bool:
        """True if there is enough left for a hypothesis of so many multiply-adds, which are then taken."""
        self.left -= multiply_adds + EACH
        self.ended |= self.left < 0
        return not self.ended
