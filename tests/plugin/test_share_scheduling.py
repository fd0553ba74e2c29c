"""A worker's queue holds little more than its share, whatever its cases take, and every case runs once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from xdist.scheduler import LoadScheduling

from conformance.plugin.sharding import OWN
from conformance.plugin.share_scheduling import LEFT, LastingScheduling, ShareScheduling

pytest_plugins = ["pytester"]

SHARE, CASES, WORKERS = 6, 600, 4


class Worker:
    """A worker of xdist as its schedulers see one; it begins a case once it knows the next, or that none comes."""

    def __init__(self, name):
        self.gateway, self.shutting_down, self.queue, self.ran = SimpleNamespace(id=name), False, [], []
        self.longest, self.dead, self.given, self.ran_before = 0, False, [], 0

    def send_runtest_some(self, indices):
        assert not self.shutting_down
        if self.dead:
            raise OSError("cannot send (already closed?)")
        self.queue.extend(indices)
        self.longest = max(self.longest, len(self.queue))

    def shutdown(self):
        self.shutting_down = True

    def send_steal(self, indices):
        """As a worker does: it gives back all ``indices`` if they are in its queue, or none."""
        prepared = self.queue[2:]
        back = list(indices) if set(indices) <= set(prepared) else []
        self.queue[:] = [case for case in self.queue if case not in back]
        self.given.append(back)

    def next(self):
        return self.queue[0] if self.queue and (len(self.queue) > 1 or self.shutting_down) else None


def seconds(case):
    """Each share begins with a long case."""
    return 2.0 if case % SHARE == 0 else 0.01


@pytest.fixture
def spread(pytestconfig):
    """Runs all cases with a scheduler on simulated workers. Some die in a case, and the scheduler hears of it when the
    last of them has died."""

    def run(kind, dies_in=(), collected=lambda name, case: True, own=None, retired=None):
        config = pytestconfig.__class__.fromdictargs({"tx": [f"{WORKERS}*popen"], "maxschedchunk": SHARE}, [])
        if own is not None:
            config.stash[OWN] = frozenset(map(str, own))
        scheduler = kind(config)
        workers = [Worker(f"w{number}") for number in range(WORKERS)]
        for worker in workers:
            scheduler.add_node(worker)
            worker.has = [case for case in range(CASES) if collected(worker.gateway.id, case)]
            scheduler.add_node_collection(worker, [str(case) for case in worker.has])
        scheduler.schedule()
        ends, dead = dict.fromkeys(workers, 0.0), []
        while ready := [worker for worker in ends if worker.next() is not None]:
            worker = min(ready, key=lambda each: ends[each] + seconds(each.next()))
            case = worker.queue[0]
            if case in dies_in:
                del ends[worker]
                worker.dead = True
                dead.append(worker)
                if len(dead) == len(dies_in):
                    assert [scheduler.remove_node(each) for each in dead] == [str(each.queue[0]) for each in dead]
                continue
            ends[worker] += seconds(case)
            worker.queue.pop(0)
            worker.ran.append(worker.has[case])
            scheduler.mark_test_complete(worker, case, seconds(case))
            if retired == len([case for worker in workers for case in worker.ran]):
                workers[1].ran_before = len(workers[1].ran)
                scheduler.retire("w1")
            for given in (one for one in workers if one.given):
                scheduler.remove_pending_tests_from_node(given, given.given.pop(0))
        return workers

    return run


def test_a_queue_holds_little_more_than_a_share(spread):
    assert max(worker.longest for worker in spread(ShareScheduling)) == LEFT + SHARE


def test_the_scheduling_of_xdist_queues_more(spread):
    """Tells why there is a scheduler of our own. Should this fail, delete it."""
    assert max(worker.longest for worker in spread(LoadScheduling)) > 2 * SHARE


#: Cases in which a worker dies: the last one, or the first of two or three workers.
DEATHS = [(), (0,), (100,), (CASES - 1,), (0, SHARE), (0, SHARE, 2 * SHARE)]


@pytest.mark.parametrize("kind", [LastingScheduling, ShareScheduling])
@pytest.mark.parametrize("dies_in", DEATHS, ids=str)
def test_every_case_runs_once(spread, kind, dies_in):
    ran = [case for worker in spread(kind, dies_in) for case in worker.ran]
    assert sorted(ran) == [case for case in range(CASES) if case not in dies_in]


@pytest.mark.parametrize("kind", [LastingScheduling, ShareScheduling])
@pytest.mark.parametrize("dies_in", [(), (5,), (5, 5 + 7 * SHARE)], ids=str)
def test_the_cases_of_a_shard_run_once_and_no_others(spread, kind, dies_in):
    own = range(5, CASES, 7)
    ran = [case for worker in spread(kind, dies_in, own=own) for case in worker.ran]
    assert sorted(ran) == [case for case in own if case not in dies_in]


@pytest.mark.parametrize("kind", [LastingScheduling, ShareScheduling])
@pytest.mark.parametrize("retired", [1, 100, CASES - 4 * SHARE, CASES - 1])
def test_a_retired_worker_gets_no_more_cases_and_others_run_its_queue(spread, kind, retired):
    workers = spread(kind, retired=retired)
    assert sorted(case for worker in workers for case in worker.ran) == list(range(CASES))
    if retired <= 100:  # later the others may have ended
        assert len(workers[1].ran) <= workers[1].ran_before + 2


@pytest.mark.parametrize("kind", [LastingScheduling, ShareScheduling])
def test_the_workers_of_an_empty_shard_end_at_once(spread, kind):
    assert [(worker.ran, worker.shutting_down) for worker in spread(kind, own=())] == [([], True)] * WORKERS


#: Which cases a worker has collected.
COLLECTED = {
    "one of them lacks a file": lambda name, case: name != "w2" or not 100 <= case < 200,
    "the first lacks a file": lambda name, case: name != "w0" or case >= 100,
    "one has a file alone": lambda name, case: name == "w3" or case < 500,
    "each has its own": lambda name, case: name == f"w{case % WORKERS}",
    "one has none": lambda name, case: name != "w1",
}


@pytest.mark.parametrize("kind", [LastingScheduling, ShareScheduling])
@pytest.mark.parametrize("collected", COLLECTED.values(), ids=COLLECTED)
def test_workers_that_have_collected_different_cases_run_them_all(spread, kind, collected):
    workers = spread(kind, collected=collected)
    assert sorted(case for worker in workers for case in worker.ran) == list(range(CASES))
    assert all(collected(worker.gateway.id, case) for worker in workers for case in worker.ran)


def test_a_replacement_that_lacks_cases_gets_the_others(pytestconfig):
    scheduler = LastingScheduling(pytestconfig.__class__.fromdictargs({"tx": ["popen"]}, []))
    first, second, third = map(Worker, "abc")
    scheduler.add_node(first)
    scheduler.add_node_collection(first, ["bad", "worse", "good", "better"])
    scheduler.schedule()
    assert scheduler.remove_node(first) == "bad"
    scheduler.add_node(second)
    scheduler.add_node(third)  # it has not collected
    scheduler.add_node_collection(second, ["good", "better"])
    scheduler.schedule()
    assert (second.queue, third.queue, scheduler.pending) == ([0, 1], [], [1])
    scheduler.mark_test_complete(second, 0)
    assert (second.shutting_down, third.shutting_down) == (True, False)


def test_the_scheduling_of_xdist_ends_when_two_workers_die(spread):
    """Tells why there is a scheduler of our own. Should this fail, delete it."""
    with pytest.raises(OSError, match="cannot send"):
        spread(LoadScheduling, (0, SHARE))


@pytest.mark.parametrize(("option", "name"), [("--compile-only", "ShareScheduling"), ("--no-gpu", "LastingScheduling")])
def test_which_scheduling_a_run_uses(project, option, name):
    project.suite("tiny", "def test_a():\n    pass\n")
    (project.path / "conftest.py").write_text(
        "def pytest_terminal_summary(terminalreporter, config):\n"
        "    scheduler = config.pluginmanager.get_plugin('dsession').sched\n"
        "    terminalreporter.write_line(f'scheduled by {type(scheduler).__name__}')\n"
    )
    project.run(option, "-n", "2").stdout.fnmatch_lines([f"scheduled by {name}"])
