"""The files of a run's processes become one: in order, with every record, and without losing evidence."""

import gzip
import itertools
import os
import shutil
import sys
import time

import pytest

from conformance import records
from conformance.plugin import record_files
from conformance.plugin.record_files import RecordFile, foreseen, journal_file, last_foreseen, merge
from conformance.records import CaseRecord, Status, read_records

pytest_plugins = ["pytester"]


@pytest.fixture
def parts(tmp_path):
    """Two processes wrote their cases in no order, one case both of them."""
    for worker, cases in {"gw0": "dbc", "gw1": "ac"}.items():
        file = RecordFile(tmp_path, worker)
        for case in cases:
            file.write(CaseRecord(case, "s", Status.FAIL, worker=worker))
    return tmp_path


def merged(folder, take=lambda record: None):
    """The ids of the merged cases, and the problems."""
    cases, problems, _ = merge(folder, take, {})
    return [*cases], problems


def test_lines_are_in_the_order_of_their_cases(parts):
    cases = []
    assert merged(parts, lambda record: cases.append(record.case)) == (["a", "b", "c", "c", "d"], [])
    assert sorted(cases) == ["a", "b", "c", "c", "d"]
    lines = [f"{record.case} {record.worker}" for record in read_records(parts).records]
    assert lines == ["a gw1", "b gw0", "c gw0", "c gw1", "d gw0"]
    assert [path.name for path in parts.iterdir()] == ["records.jsonl.gz"]


def test_what_a_dead_process_foresaw_is_the_last_whole_line_of_its_journal(tmp_path):
    file = RecordFile(tmp_path, "gw0")
    for stage in ("compile", "run"):
        file.foresee(CaseRecord("a", "s", Status.CRASH, diagnosis=stage))
    journal = tmp_path / "inflight-gw0.jsonl"
    with journal.open("a") as torn:
        torn.write('{"case":"a","suite":"s","status":"cra')
    assert foreseen(tmp_path, "gw0", "a").diagnosis == "run"
    assert foreseen(tmp_path, "gw0", "b") is foreseen(tmp_path, "gw1", "a") is None


def test_a_journal_that_is_no_file_foresees_nothing(tmp_path):
    journal = journal_file(tmp_path, "gw0")
    journal.symlink_to("/dev/zero")
    assert last_foreseen(journal) is None
    journal.unlink()
    os.mkfifo(journal)
    assert last_foreseen(journal) is None


def test_the_journal_is_emptied_between_cases_and_starts_again(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "JOURNAL_LIMIT", 1000)
    file, journal = RecordFile(tmp_path, "gw0"), tmp_path / "inflight-gw0.jsonl"
    for case in map(str, range(20)):
        file.foresee(CaseRecord(case, "s", Status.CRASH))
        assert foreseen(tmp_path, "gw0", case).case == case
        file.write(CaseRecord(case, "s", Status.FAIL))
        file.foresee(CaseRecord(case, "s", Status.CRASH))  # too late: the case has its record
        assert journal.stat().st_size <= 1000
    file.close()
    assert len(read_records(tmp_path).records) == 20


def test_files_with_an_unusable_line_stay(parts):
    with (parts / "records-gw0.jsonl").open("a") as file:
        file.write('{"torn')
    cases, (problem,) = merged(parts)
    assert cases == ["a", "b", "c", "c", "d"]
    assert problem.startswith("records-gw0.jsonl:4: torn last line")
    assert sorted(path.name for path in parts.iterdir()) == [
        "records-gw0.jsonl",
        "records-gw1.jsonl",
        "records.jsonl.gz",
    ]


def test_a_last_line_that_lacks_only_its_end_is_a_line(parts):
    file = parts / "records-gw0.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert merged(parts) == (["a", "b", "c", "c", "d"], [])
    assert len(read_records(parts).records) == 5


def test_merging_again_changes_nothing(parts):
    first = merged(parts)
    content = (parts / "records.jsonl.gz").read_bytes()
    assert merged(parts) == first
    assert (parts / "records.jsonl.gz").read_bytes() == content


def test_a_run_without_records_has_an_empty_file(tmp_path):
    assert merged(tmp_path) == ([], [])
    assert gzip.decompress((tmp_path / "records.jsonl.gz").read_bytes()) == b""


def test_equal_records_give_equal_bytes(tmp_path, monkeypatch):
    """However many processes wrote them, when, and where."""
    contents = []
    for number, workers in enumerate((("gw0",), ("gw0", "gw1"))):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        files = [RecordFile(folder, worker) for worker in workers]
        for case in "dbca":
            files["dbca".index(case) % len(files)].write(CaseRecord(case, "s", Status.FAIL))
        monkeypatch.setattr(time, "time", lambda seconds=1e9 * number: seconds)
        merged(folder)
        contents.append((folder / "records.jsonl.gz").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0][:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time
    assert gzip.decompress(contents[0]).decode() == "".join(CaseRecord(c, "s", Status.FAIL).to_line() for c in "abcd")


def test_more_records_than_a_reader_unpacks_stay_plain(parts, monkeypatch):
    monkeypatch.setattr(records, "UNPACKED_LIMIT", 1000)
    assert merged(parts) == (["a", "b", "c", "c", "d"], [])
    assert [path.name for path in parts.iterdir()] == ["records.jsonl"]
    assert len(read_records(parts).records) == 5


def killed(folder, calls):
    """Merges in a process that ends before it has called the system and the compressor more often than ``calls`` times.
    Returns its exit status."""
    names = {"open", "write", "compress", "flush", "close", "fsync", "replace", "unlink"}
    child = os.fork()
    if child == 0:
        left = iter(range(calls))

        def count(frame, event, function):
            if event == "c_call" and function.__name__ in names and next(left, None) is None:
                os._exit(9)

        sys.setprofile(count)
        merge(folder, lambda record: None, {})
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_merge_that_is_killed_loses_no_record(parts, tmp_path_factory):
    """At every call."""
    endings = set()
    for calls in itertools.count():
        folder = shutil.copytree(parts, tmp_path_factory.mktemp("killed") / "run")
        status = killed(folder, calls)
        names = frozenset(path.name for path in folder.iterdir())
        assert {"records.jsonl.gz"} <= names or {"records-gw0.jsonl", "records-gw1.jsonl"} <= names
        assert sorted(record.case for record in read_records(folder).records) == ["a", "b", "c", "c", "d"]
        assert merged(folder) == (["a", "b", "c", "c", "d"], [])
        endings.add(names)
        if status == 0:
            break
    plain = {"records-gw0.jsonl", "records-gw1.jsonl"}
    assert endings >= {
        frozenset(names)
        for names in (plain, {*plain, "records.jsonl.gz.tmp"}, {*plain, "records.jsonl.gz"}, {"records.jsonl.gz"})
    }


def test_the_run_has_the_versions_that_were_imported_last(project):
    project.suite(
        "versions",
        "import sys, types\n"
        "def test_before(recorder): recorder.verdict('x', True)\n"
        "def test_later(recorder):\n"
        "    sys.modules['triton'] = types.SimpleNamespace(__version__='99.9')\n"
        "    recorder.verdict('x', True)\n",
    )
    project.run()
    assert project.records["test_before"].stack["triton"] != "99.9"
    assert project.records["test_later"].stack["triton"] == "99.9"
    assert project.info.stack["triton"] == "99.9"
