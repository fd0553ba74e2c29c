"""An actor carries the bytes and the files of its worker, whatever call Ray makes twice."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from conformance.ray_cluster import worker_actor
from conformance.ray_cluster.worker_actor import WorkerActor, printed

#: Writes a record, then says so, for each line that it reads.
WORKER = """
import sys
for line in sys.stdin:
    with open(sys.argv[1] + "/records-gw0.jsonl", "a") as file:
        file.write(line)
        file.write("cut off") if line == "last\\n" else None
    sys.stdout.write("done\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def actor(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_actor.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    actor = WorkerActor()
    folder, _ = actor.begin(["-c", WORKER, str(tmp_path)], {}, "/no/such/folder", [str(tmp_path / "made")])
    assert folder == str(tmp_path)
    yield actor
    actor.end()
    assert not tmp_path.exists()
    tmp_path.mkdir()


def read(actor, number, until):
    """The chunks from ``number`` on, up to one that ``until`` accepts."""
    chunks = []
    while not chunks or not until(chunks[-1]):
        chunks.append(actor.read(number + len(chunks)))
    return chunks


def test_a_record_comes_with_the_words_after_it_and_a_cut_line_not_at_all(actor, tmp_path):
    assert (tmp_path / "made").is_dir()
    actor.write(1, b"first\n")
    chunks = read(actor, 0, lambda chunk: chunk.output)
    (part,) = chunks[-1].files
    assert (part.name, part.start, part.content) == ("records-gw0.jsonl", 0, b"first\n")
    actor.write(2, b"last\n")
    (part,) = read(actor, len(chunks), lambda chunk: chunk.output)[-1].files
    assert (part.start, part.content) == (6, b"last\n")


def test_a_call_that_comes_twice_is_done_once(actor):
    actor.write(1, b"first\n")
    actor.write(1, b"first\n")
    chunks = read(actor, 0, lambda chunk: chunk.output)
    assert actor.read(len(chunks) - 1) is chunks[-1]
    actor.close_input()
    after = read(actor, len(chunks), lambda chunk: chunk.code is not None)
    assert b"".join(chunk.output for chunk in after) == b""
    assert after[-1].code == 0


def test_files_that_the_worker_was_given_do_not_come_back(actor, tmp_path):
    actor.put("uncollectable.jsonl", b"a line\n")
    actor.put("compiled.sqlite", b"an index")
    assert (tmp_path / "uncollectable.jsonl").read_bytes() == b"a line\n"
    (tmp_path / "stacks-gw0.txt").write_text("of a case")
    actor.close_input()
    files = [part.name for chunk in read(actor, 0, lambda chunk: chunk.code is not None) for part in chunk.files]
    assert files == ["stacks-gw0.txt"]


def test_files_that_a_node_lacks_are_written_whole(actor, tmp_path):
    here, other, lacking = (tmp_path / name for name in ("here", "other", "new/lacking"))
    here.write_bytes(b"1234")
    other.write_bytes(b"12")
    files = [(str(path), 4) for path in (here, other, lacking)]
    assert actor.missing(files) == [str(other), str(lacking)]
    actor.place({str(other): b"1234", str(lacking): b"1234"})
    assert actor.missing(files) == []
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lacking"]


def test_an_emptied_file_comes_anew(actor, tmp_path):
    journal = tmp_path / "inflight-gw0.jsonl"
    journal.write_text("one\ntwo\n")
    assert actor.read(0).files[0].start == 0
    journal.write_text("new\n")
    (part,) = actor.read(1).files
    assert (part.start, part.content) == (0, b"new\n")


def test_a_killed_worker_ends_with_its_signal(actor):
    actor.kill()
    assert read(actor, 0, lambda chunk: chunk.code is not None)[-1].code == -signal.SIGKILL


def test_the_worker_and_its_folder_end_with_the_process_of_the_actor(tmp_path):
    child = os.fork()
    if child == 0:
        actor = WorkerActor()
        actor.begin(
            ["-c", "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"], {}, str(tmp_path), []
        )
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        (tmp_path / "folder").write_text(str(actor._folder))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    worker = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    until = time.monotonic() + 10
    folder = Path((tmp_path / "folder").read_text())
    while folder.exists() or (worker.exists() and worker.read_text().rpartition(")")[2].split()[0] != "Z"):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_actor_ends_with_the_process_of_its_node(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_actor, "NODE_S", 0.01)
    node = os.fork()
    if node == 0:
        if os.fork() == 0:
            WorkerActor().begin(["-c", "import time; time.sleep(60)"], {}, str(tmp_path), [])
            (tmp_path / "actor").write_text(str(os.getpid()))
            time.sleep(60)
        while not (tmp_path / "actor").exists() or not (tmp_path / "actor").read_text():
            time.sleep(0.01)
        os._exit(0)
    os.waitpid(node, 0)
    actor = Path("/proc", (tmp_path / "actor").read_text(), "stat")
    until = time.monotonic() + 10
    while actor.exists() and actor.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_worker_gets_no_variable_of_ray(monkeypatch):
    monkeypatch.setenv("RAY_JOB_ID", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code = "import os; print(*[name for name in ('RAY_JOB_ID', 'OMP_NUM_THREADS', 'OWN') if name in os.environ])"
    assert printed(["-c", code], {"OWN": "1"}) == ("OWN\n", "")
    assert printed(["-c", "raise SystemExit('why')"], {}) == ("", "why")
    assert sys.executable
