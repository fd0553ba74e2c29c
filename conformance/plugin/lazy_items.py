"""Items of scenarios that pytest makes when something asks for more than their names.

A tier can have hundreds of thousands of cases, of which a process runs some or none. Until then an item is the text of
its case and what it shares with the other items of its test.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from conformance.cases.case_table import CaseTable

#: Attributes that all items of a test have in common.
_SHARED = ("parent", "config", "session", "path", "originalname")


class ItemGroup:
    """The items of one test: the ``template`` is one of them, which pytest made; ``table`` has the values of all."""

    def __init__(self, template: pytest.Function, table: CaseTable) -> None:
        self.template = template
        self.table = table
        ihook = template.ihook
        self.ihook = ihook if ihook.pytest_itemcollected.get_hookimpls() else _Unheard(ihook)
        self._marks: dict[str, pytest.Mark | None] = {}
        self.name = template.originalname + "["
        self.nodeid = template.nodeid.partition("[")[0] + "["

    def mark(self, name: str) -> pytest.Mark | None:
        """Returns the mark ``name`` of the test. Kept, because it is asked for each item."""
        if name not in self._marks:
            self._marks[name] = self.template.get_closest_marker(name)
        return self._marks[name]

    def items(self) -> list[pytest.Item]:
        """Returns the items of all rows, in their order."""
        return [self.item(case) for case in self.table.rows]

    def item(self, case: str) -> pytest.Item:
        """Returns the item of the row ``case``."""
        item = LazyFunction.__new__(LazyFunction)
        item.group = self
        item.case = case
        return cast(pytest.Item, item)


class _Unheard:
    """The hooks ``ihook`` without the hook that tells of a collected item: the call would cost more than the item."""

    def __init__(self, ihook: Any) -> None:
        self._ihook = ihook

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ihook, name)


class LazyFunction(pytest.Function):
    """An item of a scenario. ``case`` is its text in the brackets of its name, and None once pytest has made the item.

    The first use of a missing attribute makes the item. For an attribute of a slot or of an instance that was never
    set, Python calls ``__getattr__``.
    """

    __slots__ = ("case", "group")
    case: str | None
    group: ItemGroup

    @property
    def nodeid(self) -> str:
        """See pytest."""
        return super().nodeid if self.case is None else f"{self.group.nodeid}{self.case}]"

    @property
    def ihook(self) -> Any:
        """See pytest."""
        return super().ihook if self.case is None else self.group.ihook

    @property
    def params(self) -> dict[str, Any]:
        """The values of the test's parameters."""
        table = self.group.table
        return self.callspec.params if self.case is None else dict(zip(table.names, table.rows[self.case], strict=True))

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    def __getattr__(self, name: str) -> Any:
        group, case = self.group, self.case
        if case is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "name":
            return f"{group.name}{case}]"
        if name in _SHARED:
            return getattr(group.template, name)
        if name == "_id":  # the id in parts, for which pytest asks each item since 9.2
            return dataclasses.replace(group.template.id, params=case)
        self._make(case)
        return getattr(self, name)

    def _make(self, case: str) -> None:
        """Does what pytest does for each item when it collects."""
        template, name, params = self.group.template, self.name, self.params
        self.case = None
        self.__init__(  # type: ignore[misc]  # a node is made by its collector, this one is its own
            name=name,
            parent=template.parent,
            callspec=dataclasses.replace(template.callspec, params=params, _idlist=[case]),
            fixtureinfo=template._fixtureinfo,
            keywords={case: True},
            originalname=template.originalname,
        )


def group_of(collected: object, table: CaseTable) -> ItemGroup | None:
    """Returns the group for all rows of ``table``, where pytest ``collected`` the item of the first one only; None if
    something else had a part in it, or if pytest writes the ids in another way."""
    if not isinstance(collected, list) or len(collected) != 1 or type(collected[0]) is not pytest.Function:
        return None
    template = collected[0]
    callspec = getattr(template, "callspec", None)
    if callspec is None or tuple(callspec.params) != table.names:
        return None
    texts = "".join(table.rows)
    plain = texts.isascii() and texts.isprintable() and "\\" not in texts
    return ItemGroup(template, table) if plain else None


class OrderKept:
    """Two plugins that keep the items of scenarios out of pytest's own reordering, which asks each item for its
    parameters. It moves those with a parameter of a wider scope than a test, and these have none.

    ``aside`` takes them out of the list and ``back`` puts them back. pytest calls the plugin that was registered last
    first, so they are registered on either side of the one that reorders. Every other plugin sees all items.
    """

    def __init__(self) -> None:
        self.aside = _Aside(self)
        self.back = _Back(self)
        self.before: list[pytest.Item] = []


class _Aside:
    def __init__(self, kept: OrderKept) -> None:
        self.kept = kept

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.kept.before = list(items)
        items[:] = [item for item in items if type(item) is not LazyFunction]  # faster than isinstance by far


class _Back:
    def __init__(self, kept: OrderKept) -> None:
        self.kept = kept

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        others = iter(list(items))  # in their new order, in the places where such items were
        places = ((item if type(item) is LazyFunction else next(others, None)) for item in self.kept.before)
        items[:] = [item for item in places if item is not None]
        self.kept.before = []
