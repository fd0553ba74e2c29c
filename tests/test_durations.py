"""Tests that are marked long begin first, and a run keeps how long its tests took."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import durations


def item(name: str, seconds: float | None = None) -> SimpleNamespace:
    mark = None if seconds is None else SimpleNamespace(args=(seconds,))
    return SimpleNamespace(nodeid=name, path=Path(name.split("::")[0]), get_closest_marker={"long": mark}.get)


def test_the_files_with_the_longest_tests_begin_first():
    items = [
        item("a::1"),
        item("b::1", 12),
        item("b::2"),
        item("c::1", 11),
        item("d::1[x]", 12),
        item("d::1[y]", 12),
        item("c::3", 11),
    ]
    durations.longest_first(items)  # type: ignore[arg-type]
    assert [each.nodeid for each in items] == ["c::1", "c::3", "b::1", "b::2", "d::1[x]", "d::1[y]", "a::1"]


def test_what_is_kept_and_listed(tmp_path, monkeypatch, capsys):
    kept = {"t.py::b": 1.0, "t.py::gone": 2.0}
    cache = SimpleNamespace(get=lambda key, default: kept, set=lambda key, value: kept.update(value))
    taking = durations.Durations(cache)  # type: ignore[arg-type]
    for name, seconds in (("t.py::a", 3.0), ("t.py::a", 0.25), ("t.py::b", 4.0)):
        taking.pytest_runtest_logreport(SimpleNamespace(nodeid=name, duration=seconds))  # type: ignore[arg-type]
    taking.pytest_sessionfinish()
    assert kept == {"t.py::a": 3.25, "t.py::b": 4.0, "t.py::gone": 2.0}
    monkeypatch.setattr(durations, "FILE", tmp_path / "kept")
    assert durations.main([]) == 1
    (tmp_path / "kept").write_text(json.dumps({**kept, "u.py::c": 5.0}))
    capsys.readouterr()
    assert durations.main(["--count", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["14.2", "s", "all", "4", "tests"]
    assert lines[1:] == [["9.2", "s", "t.py"], ["5.0", "s", "u.py"], ["5.0", "s", "u.py::c"], ["4.0", "s", "t.py::b"]]


def test_a_mark_says_how_many_seconds(request: pytest.FixtureRequest):
    for each in request.session.items:
        for mark in each.iter_markers("long"):
            assert mark.args[0] >= 10, each.nodeid
