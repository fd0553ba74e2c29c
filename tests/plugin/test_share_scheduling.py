"""A worker's queue holds little more than its share, whatever its cases take, and every case runs once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from xdist.scheduler import LoadScheduling

from conformance.plugin.share_scheduling import LEFT, ShareScheduling

pytest_plugins = ["pytester"]

SHARE, CASES, WORKERS = 6, 600, 4


class Worker:
    """A worker of xdist as its schedulers see one; it begins a case once it knows the next, or that none comes."""

    def __init__(self, name):
        self.gateway, self.shutting_down, self.queue, self.ran = SimpleNamespace(id=name), False, [], []
        self.longest = 0

    def send_runtest_some(self, indices):
        assert not self.shutting_down
        self.queue.extend(indices)
        self.longest = max(self.longest, len(self.queue))

    def shutdown(self):
        self.shutting_down = True

    def next(self):
        return self.queue[0] if self.queue and (len(self.queue) > 1 or self.shutting_down) else None


def seconds(case):
    """Each share begins with a long case."""
    return 2.0 if case % SHARE == 0 else 0.01


@pytest.fixture
def spread(pytestconfig):
    """Runs all cases with a scheduler on simulated workers, one of which may die in a case."""

    def run(kind, dies_in=None):
        config = pytestconfig.__class__.fromdictargs({"tx": [f"{WORKERS}*popen"], "maxschedchunk": SHARE}, [])
        scheduler = kind(config)
        workers = [Worker(f"w{number}") for number in range(WORKERS)]
        for worker in workers:
            scheduler.add_node(worker)
            scheduler.add_node_collection(worker, [str(case) for case in range(CASES)])
        scheduler.schedule()
        ends = dict.fromkeys(workers, 0.0)
        while ready := [worker for worker in ends if worker.next() is not None]:
            worker = min(ready, key=lambda each: ends[each] + seconds(each.next()))
            case = worker.queue[0]
            if case == dies_in:
                del ends[worker]
                assert scheduler.remove_node(worker) == str(case)
                continue
            ends[worker] += seconds(case)
            worker.queue.pop(0)
            worker.ran.append(case)
            scheduler.mark_test_complete(worker, case, seconds(case))
        return workers

    return run


def test_a_queue_holds_little_more_than_a_share(spread):
    assert max(worker.longest for worker in spread(ShareScheduling)) == LEFT + SHARE


def test_the_scheduling_of_xdist_queues_more(spread):
    """Why there is one of our own. Should this fail, delete it."""
    assert max(worker.longest for worker in spread(LoadScheduling)) > 2 * SHARE


@pytest.mark.parametrize("dies_in", [None, 0, 100, CASES - 1])
def test_every_case_runs_once(spread, dies_in):
    ran = [case for worker in spread(ShareScheduling, dies_in) for case in worker.ran]
    assert sorted(ran) == [case for case in range(CASES) if case != dies_in]


@pytest.mark.parametrize(("option", "name"), [("--compile-only", "ShareScheduling"), ("--no-gpu", "LoadScheduling")])
def test_a_run_uses_it_unless_cases_are_interpreted(project, option, name):
    project.suite("tiny", "def test_a():\n    pass\n")
    (project.path / "conftest.py").write_text(
        "def pytest_terminal_summary(terminalreporter, config):\n"
        "    scheduler = config.pluginmanager.get_plugin('dsession').sched\n"
        "    terminalreporter.write_line(f'scheduled by {type(scheduler).__name__}')\n"
    )
    project.run(option, "-n", "2").stdout.fnmatch_lines([f"scheduled by {name}"])
