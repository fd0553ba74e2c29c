"""The test function and the values behind a case id, found without pytest."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from conformance.cases.case_table import CaseTable, Selection, cases_of
from conformance.user_files.run_options import TIERS

SUITES = "conformance.suites"

#: Tables that a lookup keeps, each of one test and one kernel. Cases that follow one another share a table.
KEPT_TABLES = 8
#: Ids that are compared with one that is wrong.
MOST_COMPARED = 3000


@dataclass(frozen=True)
class CaseCall:
    """A case as a call: the ``test`` function, and by name the ``values`` of its parameters. The test takes fixtures
    beside them, such as ``conform``."""

    test: Callable[..., Any]
    values: Mapping[str, Any]


class CaseLookup:
    """Finds the call behind a case id, among the cases of ``selection``."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._table = lru_cache(KEPT_TABLES)(self._table_of)  # of this lookup, and gone with it

    def __call__(self, case: str) -> CaseCall | None:
        """The call of ``case``, such as ``test_scaling.py::test_row_scales[...]``; None for a test of the suites that
        is no scenario. Raises KeyError if the test, or the selection, has no such case."""
        name, _, rest = case.partition("[")
        test = test_function(name)
        if cases_of(test) is None:
            return None
        text = rest.removesuffix("]")
        table = self._table_with(test, text)
        return CaseCall(test, dict(zip(table.names, table.rows[text], strict=True)))

    def table(self, test: Callable[..., Any], arguments: Sequence[str]) -> CaseTable:
        """The cases of ``test``, a scenario with these ``arguments``, in a table that finds each row when it is asked
        for, and lists none."""
        cases = cases_of(test)
        assert cases is not None
        names = cases.table(replace(self._selection, targets=()), arguments).names
        return CaseTable(names, _FoundRows(lambda text: self._table_with(test, text).rows[text]))

    def rows(self, name: str, kernel: str) -> Iterable[str]:
        """The texts in the brackets of the cases of a test with ``kernel``, or of all if it is empty. Raises KeyError
        if there is no such test."""
        test = test_function(name)
        return () if cases_of(test) is None else self._table(test, kernel).rows

    def _table_with(self, test: Callable[..., Any], text: str) -> CaseTable:
        """The cases of ``test`` among which ``text`` is, if it is a case."""
        table = self._table(test, text.partition("-")[0])
        return table if text in table.rows else self._table(test, "")  # the first word may be no kernel

    def _table_of(self, test: Callable[..., Any], kernel: str) -> CaseTable:
        """The cases of ``test`` with ``kernel``, the first word of their ids; all cases of a test without a kernel, and
        of any if ``kernel`` is empty."""
        cases, arguments = cases_of(test), list(inspect.signature(test).parameters)
        assert cases is not None
        kernels = (kernel,) if kernel and "kernel" in arguments else self._selection.kernels
        return cases.table(replace(self._selection, kernels=kernels), arguments)


def near_case(case: str, selection: Selection) -> str:
    """Returns what to say of a case id that ``selection`` has not: the larger tier that has it, or the id that was
    probably meant; an empty text if there is neither."""
    for tier in TIERS[TIERS.index(selection.tier) + 1 : -1]:  # to enumerate the last one takes long
        with suppress(KeyError):
            CaseLookup(replace(selection, tier=tier))(case)
            return f"it is a case of --tier {tier}"
    name, _, text = case.partition("[")
    lookup = CaseLookup(selection)
    with suppress(KeyError):
        for kernel in (text.partition("-")[0], ""):
            texts = list(lookup.rows(name, kernel))[:MOST_COMPARED]
            for near in difflib.get_close_matches(text.removesuffix("]"), texts, n=1):
                return f"did you mean {name}[{near}]?"
    return ""


class _FoundRows(dict[str, tuple[Any, ...]]):
    """Rows that ``find`` finds by their texts. None is kept."""

    def __init__(self, find: Callable[[str], tuple[Any, ...]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, text: str) -> tuple[Any, ...]:
        return self._find(text)


@lru_cache(None)
def test_function(name: str) -> Callable[..., Any]:
    """The function of a test such as ``test_scaling.py::test_row_scales``. Raises KeyError if there is none."""
    file, _, test = name.partition("::")
    module = f"{SUITES}.{file.removesuffix('.py').replace('/', '.')}"
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), test)
    except (AttributeError, ModuleNotFoundError):
        raise KeyError(f"{name} is no test of {SUITES}") from None
    return function


def case_ids(selection: Selection, suites: Collection[str] = ()) -> Iterator[str]:
    """The ids of the scenarios' cases of ``selection``, of all suites or of ``suites``, such as "scaling". A selection
    of kernels has none of a test without a kernel, as a run has none. Raises KeyError naming the suites if one is
    unknown."""
    package = importlib.import_module(SUITES)
    files = {module.name: module.name.removeprefix("test_") for module in pkgutil.iter_modules(package.__path__)}
    if unknown := sorted(set(suites) - set(files.values())):
        raise KeyError(f"no suite is called {', '.join(unknown)}: there are {', '.join(sorted(files.values()))}")
    for file, suite in files.items():
        for name, test in vars(importlib.import_module(f"{SUITES}.{file}")).items():
            if (not suites or suite in suites) and (cases := cases_of(test)) is not None:
                arguments = list(inspect.signature(test).parameters)
                if selection.kernels and "kernel" not in arguments:
                    continue
                table = cases.table(selection, arguments)
                yield from (f"{file}.py::{name}[{case}]" for case in table.rows)
