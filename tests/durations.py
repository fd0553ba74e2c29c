"""Reports the seconds that each test took when it ran last: ``python -m tests.durations`` lists the slowest files and
tests.

The times are kept in pytest's cache. The mark ``long`` says which tests take more than 10 seconds on an idle machine,
with all their parameters. The files with the longest begin first, so that the workers of a run end together.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: The name in pytest's cache, and the file that has it.
KEY = "tests/durations"
FILE = ROOT / ".pytest_cache" / "v" / KEY


class Durations:
    """Keeps the seconds of each test that a run reports, with its fixtures."""

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        kept = self._cache.get(KEY, {})
        self._cache.set(KEY, kept | {test: round(seconds, 2) for test, seconds in self._seconds.items()})


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests so that the files whose marks ``long`` add up to most begin. Tests of one file keep their order. A
    mark is of a function with all its parameters."""
    functions = {(item.path, item.nodeid.partition("[")[0]): item.get_closest_marker("long") for item in items}
    seconds: Counter[Path] = Counter()
    for (path, _), mark in functions.items():
        seconds[path] += mark.args[0] if mark else 0
    items.sort(key=lambda item: -seconds[item.path])


def listing(seconds: Mapping[str, float], count: int) -> list[str]:
    """Returns lines with the ``count`` slowest files, then tests, of ``seconds`` by test."""
    files: Counter[str] = Counter()
    for test, its in seconds.items():
        files[test.partition("::")[0]] += its
    slowest = Counter(dict(seconds)).most_common(count)
    return [
        f"{sum(seconds.values()):8.1f} s  all {len(seconds)} tests",
        *(f"{its:8.1f} s  {name}" for name, its in [*files.most_common(count), *slowest]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="files and tests to list (default: 20)")
    options = parser.parse_args(arguments)
    if not FILE.exists():
        print(f"{FILE} is not there: no test has run")
        return 1
    print("\n".join(listing(json.loads(FILE.read_text()), options.count)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
