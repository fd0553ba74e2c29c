"""A stream lasts while a node is out of reach, and tells a dead actor from a dead node."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from conformance.ray_cluster import worker_stream
from conformance.ray_cluster.worker_actor import Chunk, FilePart
from conformance.ray_cluster.worker_stream import WorkerStream


class RayError(Exception):
    pass


class ActorUnavailableError(RayError):
    pass


class Unanswered(RayError):
    pass


class RayTaskError(RayError):
    pass


class FakeRay:
    """Calls of the actor are made when their result is asked for; ``kill`` is noted."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        ActorUnavailableError=ActorUnavailableError,
        GetTimeoutError=Unanswered,
    )

    def __init__(self):
        self.killed = []

    def get(self, call, timeout=None):
        return call()

    def kill(self, actor):
        self.killed.append(actor)


class Actor:
    """Gives ``answers``, one for each read; those that are errors are raised. ``calls`` are the others."""

    def __init__(self, *answers):
        self.answers, self.numbers, self.calls = list(answers), [], []

    def __getattr__(self, name):
        def call(*arguments):
            if name == "read":
                self.numbers.append(arguments[0])
            else:
                self.calls.append((name, *arguments))
            answer = self.answers.pop(0) if name == "read" else self.given(*arguments) if name == "missing" else None
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(remote=lambda *arguments: lambda: call(*arguments))


@pytest.fixture
def stream(tmp_path, monkeypatch):
    ray = FakeRay()
    monkeypatch.setattr(worker_stream, "_ray", lambda: ray)
    monkeypatch.setattr(worker_stream.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(worker_stream, "NEWS_S", 0.0)

    def made(*answers, dead=False):
        node = SimpleNamespace(name="a")
        given_back = []
        cluster = SimpleNamespace(
            is_dead=lambda node: dead, note_dead=lambda node: None, give_back=given_back.append, gpus=None
        )
        stream = WorkerStream(cluster, node, Actor(*answers), "gw0", tmp_path, None)
        stream.given_back, stream.ray, stream.actor = given_back, ray, stream._actor
        return stream

    return made


def test_files_are_there_before_the_words_after_them(stream, tmp_path):
    parts = FilePart("artefacts/a.txt", 0, b"of the case"), FilePart("records-gw0.jsonl", 0, b"one\n")
    one = stream(Chunk(b"12", parts, None), Chunk(b"3", (FilePart("records-gw0.jsonl", 4, b"two\n"),), 0))
    assert one.read(1) == b"1"
    assert (tmp_path / "artefacts" / "a.txt").read_bytes() == b"of the case"
    assert one.read(2) == b"23"
    assert (tmp_path / "records-gw0.jsonl").read_bytes() == b"one\ntwo\n"
    with pytest.raises(EOFError):
        one.read(1)
    assert one.wait(0) == 0
    assert (one.given_back, one.ray.killed) == (["gw0"], [one.actor])
    with pytest.raises(OSError, match="has ended"):
        one.write(b"more")


def test_a_chunk_is_asked_for_again_after_a_node_was_out_of_reach(stream):
    one = stream(ActorUnavailableError(), Chunk(b"1", (), None), Chunk(b"2", (), -11))
    assert one.read(2) == b"12"
    assert one.actor.numbers == [0, 0, 1]
    assert one.wait(0) == -11


@pytest.mark.parametrize("error", [ActorUnavailableError(), RayError("died")])
def test_a_dead_node_leaves_no_status(stream, error):
    one = stream(error, dead=True)
    with pytest.raises(EOFError):
        one.read(1)
    assert one.lost_with_node
    assert one.wait() == 0


def test_a_dead_actor_was_killed(stream):
    one = stream(RayError("died"))
    with pytest.raises(EOFError):
        one.read(1)
    assert not one.lost_with_node
    assert one.wait(0) == -9


def test_a_node_that_stays_out_of_reach_is_given_up(stream, monkeypatch):
    monkeypatch.setattr(worker_stream, "UNREACHABLE_S", 0.0)
    one = stream(ActorUnavailableError())
    with pytest.raises(EOFError):
        one.read(1)
    assert one.lost_with_node


def test_a_living_worker_has_no_status(stream):
    with pytest.raises(subprocess.TimeoutExpired):
        stream().wait(0.0)


def test_a_node_gets_the_files_that_it_lacks(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_stream, "BATCH", 3)
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_text("ab")
    one = stream()
    one.actor.given = lambda *arguments: [str(file) for file in files]
    assert one.complete(files)
    placed = [call[1] for call in one.actor.calls if call[0] == "place"]
    assert [sorted(batch) for batch in placed] == [[str(files[0]), str(files[1])], [str(files[2])]]
    assert {*placed[1].values()} == {b"ab"}


def test_a_node_that_cannot_write_the_files_is_one_sentence(stream):
    one = stream()
    one.actor.given = lambda *arguments: RayTaskError("Traceback\nOSError: [Errno 28] No space left on device")
    with pytest.raises(OSError, match=r"node a cannot take the compiled kernels: OSError: \[Errno 28\] No space"):
        one.complete([])
    one.actor.given = lambda *arguments: RayError("died")
    assert not one.complete([])


def test_words_are_sent_in_order(stream):
    one = stream(Chunk(b"", (), 0))
    one.write(b"a")
    one.write(b"b")
    one._writer.shutdown()
    assert one.actor.calls == [("write", 1, b"a"), ("write", 2, b"b")]


def test_an_actor_that_does_not_start_is_one_sentence(stream, monkeypatch):
    one = stream()
    one._cluster.gpus = SimpleNamespace(entries=())

    def get(call, timeout=None):
        raise Unanswered

    monkeypatch.setattr(one.ray, "get", get)
    with pytest.raises(OSError, match="Ray started no actor on node a within 60 s: others may hold its CPUs"):
        one.begin([], {}, None, [])
    assert one.given_back == ["gw0"]
