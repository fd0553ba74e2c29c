"""Results that a process keeps, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Kept(Generic[Result]):
    """Results by their key, those that were asked for last, up to ``limit`` bytes by ``size``. A result that is larger
    than that is made each time."""

    def __init__(self, limit: int, size: Callable[[Result], int]) -> None:
        self._limit, self._size = limit, size
        self._results: OrderedDict[Hashable, Result] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """The result of ``key``, from ``make`` if it is not kept."""
        if key in self._results:
            self._results.move_to_end(key)
            return self._results[key]
        result = make()
        if self._size(result) > self._limit:
            return result
        self._results[key] = result
        self._bytes += self._size(result)
        while self._bytes > self._limit:
            _, oldest = self._results.popitem(last=False)
            self._bytes -= self._size(oldest)
        return result

    def forget(self) -> None:
        """Gives up every result."""
        self._results.clear()
        self._bytes = 0
