"""The test function and the values behind a case id, found without pytest."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from conformance.cases.case_table import CaseTable, Selection, cases_of
from conformance.targets import Target, compile_targets
from conformance.user_files.run_options import TIERS

SUITES = "conformance.suites"

#: Ids that are compared with one that is wrong.
MOST_COMPARED = 3000


@dataclass(frozen=True)
class CaseCall:
    """A case as a call: the ``test`` function, and by name the ``values`` of its parameters. The test also takes
    fixtures, such as ``conform``."""

    test: Callable[..., Any]
    values: Mapping[str, Any]


class CaseLookup:
    """Finds the call behind a case id, whatever its tier: on one of ``targets``, or on another that is known."""

    def __init__(self, targets: Sequence[Target]) -> None:
        ids = {target.id for target in targets}
        self._targets = (*targets, *(target for target in compile_targets() if target.id not in ids))

    def __call__(self, case: str) -> CaseCall | None:
        """The call of ``case``, such as ``test_scaling.py::test_row_scales[...]``; None for a test of the suites that
        is no scenario. Raises KeyError if the test has no such case in any tier."""
        name, _, rest = case.partition("[")
        test = test_function(name)
        if cases_of(test) is None:
            return None
        table = self.table(test, arguments_of(test))
        return CaseCall(test, dict(zip(table.names, table.rows[rest.removesuffix("]")], strict=True)))

    def table(self, test: Callable[..., Any], arguments: Sequence[str]) -> CaseTable:
        """The cases of ``test``, a scenario with these ``arguments``, in a table that finds each row when it is asked
        for, and lists none."""
        cases = cases_of(test)
        assert cases is not None
        return CaseTable(cases.names(arguments), _FoundRows(lambda text: cases.find(text, self._targets, arguments)))


def near_case(case: str, selection: Selection) -> str:
    """Returns advice for a ``case`` that no tier has: the id that was probably meant, among those of ``selection``; an
    empty text if there is none."""
    name, _, text = case.partition("[")
    with suppress(KeyError):
        test = test_function(name)
        cases, arguments = cases_of(test), arguments_of(test)
        for kernels in ((text.partition("-")[0],) if "kernel" in arguments else (), selection.kernels):
            rows = cases.table(replace(selection, kernels=kernels), arguments).rows if cases else {}
            for near in difflib.get_close_matches(text.removesuffix("]"), list(rows)[:MOST_COMPARED], n=1):
                return f"did you mean {name}[{near}]?"
    return ""


def smallest_tier(case: str, selection: Selection) -> str:
    """Returns the smallest tier that has ``case``, one that some tier of ``selection`` has; the largest is not
    listed."""
    name, _, text = case.partition("[")
    test = test_function(name)
    cases, arguments = cases_of(test), arguments_of(test)
    kernels = (text.partition("-")[0],) if "kernel" in arguments else ()
    for tier in TIERS[:-1]:
        if cases is None or text[:-1] in cases.table(replace(selection, tier=tier, kernels=kernels), arguments).rows:
            return tier
    return TIERS[-1]


def arguments_of(test: Callable[..., Any]) -> list[str]:
    """Returns the names of the arguments of ``test``."""
    return list(inspect.signature(test).parameters)


class _FoundRows(dict[str, tuple[Any, ...]]):
    """Rows that ``find`` finds by their texts. None is kept."""

    def __init__(self, find: Callable[[str], tuple[Any, ...] | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, text: str) -> tuple[Any, ...]:
        row = self._find(text)
        if row is None:
            raise KeyError(text)
        return row


@lru_cache(None)
def test_function(name: str) -> Callable[..., Any]:
    """Returns the function of a test such as ``test_scaling.py::test_row_scales``. Raises KeyError if there is none."""
    file, _, test = name.partition("::")
    module = f"{SUITES}.{file.removesuffix('.py').replace('/', '.')}"
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), test)
    except (AttributeError, ModuleNotFoundError):
        raise KeyError(f"{name} is no test of {SUITES}") from None
    return function


def case_ids(selection: Selection, suites: Collection[str] = ()) -> Iterator[str]:
    """Yields the ids of the scenarios' cases of ``selection``, of all suites or of ``suites``, such as "scaling". A
    selection of kernels has none of a test without a kernel, as a run has none. Raises KeyError naming the suites if
    one is unknown."""
    package = importlib.import_module(SUITES)
    files = {module.name: module.name.removeprefix("test_") for module in pkgutil.iter_modules(package.__path__)}
    if unknown := sorted(set(suites) - set(files.values())):
        raise KeyError(f"no suite is called {', '.join(unknown)}: there are {', '.join(sorted(files.values()))}")
    for file, suite in files.items():
        for name, test in vars(importlib.import_module(f"{SUITES}.{file}")).items():
            if (not suites or suite in suites) and (cases := cases_of(test)) is not None:
                arguments = arguments_of(test)
                if selection.kernels and "kernel" not in arguments:
                    continue
                table = cases.table(selection, arguments)
                yield from (f"{file}.py::{name}[{case}]" for case in table.rows)
