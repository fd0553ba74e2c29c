"""Some command lines reach the suites, and others do not."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from conformance.cases.case_table import CaseTable
from conformance.plugin import filters, lazy_items
from conformance.plugin.case_ids import PACKAGE_SUITES, check_case_ids, selects_suites, suite_of

pytest_plugins = ["pytester"]

INSTALLED = Path("/home/me/app/.venv/lib/python3.12/site-packages/conformance/suites")
CHECKOUT = Path("/home/me/app/third_party/conformance/suites")
APP = Path("/home/me/app")


@pytest.mark.parametrize(
    ("arguments", "pyargs", "suites", "expected"),
    [
        (["."], False, INSTALLED, False),
        (["."], False, CHECKOUT, True),
        (["tests", "src/x.py::test_a"], False, CHECKOUT, False),
        ([str(INSTALLED)], False, INSTALLED, True),
        ([f"{INSTALLED}/test_a.py::test_b[c]"], False, INSTALLED, True),
        (["conformance.suites"], True, INSTALLED, True),
        (["conformance.suites.test_a::test_b"], True, INSTALLED, True),
        (["conformance"], True, INSTALLED, True),
        (["conformance.suites"], False, INSTALLED, False),
        (["other.suites", "conformance_of_others"], True, INSTALLED, False),
        ([], False, CHECKOUT, False),
    ],
)
def test_selects_suites(arguments, pyargs, suites, expected):
    assert selects_suites(arguments, pyargs, APP, [suites]) is expected


def test_package_suites_is_the_package():
    import conformance

    assert Path(conformance.__file__).parent / "suites" == PACKAGE_SUITES


def test_suite_of():
    assert suite_of("test_tma_store.py::test_a[x.py::y]") == "tma_store"


@pytest.mark.parametrize(
    "case", ["a.py::b[/tmp/x]", "a.py::b[x-/tmp]", "a.py::b[C:\\x]", "a.py::b[<f at 0x7f00aa11bb>]"]
)
def test_unstable_ids_are_refused(case):
    with pytest.raises(pytest.UsageError, match="the same on every machine"):
        check_case_ids([case])


def test_stable_ids_are_taken():
    check_case_ids(["sub/a.py::b[mm-1x2x3-fp8/e4m3-row.col+8@2-0x10]", "sub/a.py::b[0.5]"])


class Item:
    """An item with the marks of a test."""

    def __init__(self, name, *marks):
        self.name, self.marks = name, {mark.name: mark for mark in marks}

    def get_closest_marker(self, name):
        return self.marks.get(name)


def test_the_longest_come_first_and_the_timed_last():
    slow, timed = pytest.mark.slow, pytest.mark.timed
    items = [Item("timed", timed.mark), Item("usual"), Item("theirs", slow.mark), Item("short", slow(3).mark)]
    items.append(Item("long", slow(40).mark))
    filters.order(items)
    assert [item.name for item in items] == ["long", "usual", "short", "theirs", "timed"]


def test_each_slow_item_begins_a_share_of_its_own():
    items = list(range(40))
    filters.spread(items, [7, 8, 9, 30])
    assert sorted(items) == list(range(40))
    assert [items[place * filters.NEIGHBOURS] for place in range(4)] == [7, 8, 9, 30]
    rest = [item for item in items if item not in (7, 8, 9, 30)]
    assert rest == sorted(rest)
    few = [1, 2, 3]
    filters.spread(few, [3, 2])
    assert sorted(few) == [1, 2, 3]
    assert few[0] == 3


def test_what_was_collected_is_hidden_from_the_collector_of_garbage_until_the_process_ends(project):
    """Without the second line the test that runs pytest would keep its garbage for ever."""
    project.suite("gc", "import gc\ndef test_a(recorder): recorder.verdict('frozen', gc.get_freeze_count() > 1000)\n")
    script = (
        "import gc, pytest\ncode = pytest.main(['-p', 'conformance.plugin'])\nprint(int(code), gc.get_freeze_count())"
    )
    result = project.pytester.runpython_c(script)
    result.stdout.fnmatch_lines(["0 0"])
    assert project.statuses == {"test_a": "pass"}


def test_the_items_of_a_group_have_the_marks_of_their_test():
    def items(*marks):
        template = Mock(originalname="test", nodeid="test", get_closest_marker=Item("test", *marks).get_closest_marker)
        return lazy_items.ItemGroup(template, CaseTable(("a",), {"1": (1,), "2": (2,)})).items()

    usual, slow, timed = items(), items(pytest.mark.slow.mark), items(pytest.mark.timed.mark)
    both = [*timed, *usual, *slow]
    filters.order(both)
    assert both == [slow[0], *usual, slow[1], *timed]
    some = items(pytest.mark.timed(when=lambda case: case["a"] == 1).mark)
    both = [*some, *usual]
    filters.order(both)
    assert both == [some[1], *usual, some[0]], "a condition is asked for each item"
