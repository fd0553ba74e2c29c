"""Hands cases to xdist's workers."""

from __future__ import annotations

from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

#: A worker with so many cases left gets its next share: with one alone it would wait to hear of the one after.
LEFT = 2


class LastingScheduling(LoadScheduling):
    """The run lasts where a worker has died and xdist does not know it yet. xdist's own scheduling ends the run when it
    sends cases to such a worker, as it does when two workers die at once."""

    def _send_tests(self, node: WorkerController, num: int) -> None:
        before = list(self.pending), list(self.node2pending[node])
        try:
            super()._send_tests(node, num)
        except OSError:  # what execnet raises; another worker gets these cases
            self.pending[:], self.node2pending[node][:] = before


class ShareScheduling(LastingScheduling):
    """A worker gets its next share (``--maxschedchunk``) when it comes to the end of the one that it has. xdist's own
    scheduling gives more to a worker whose cases are short, and long ones wait in its queue. This one is for cases that
    are not interpreted."""

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node.shutting_down or not self.pending:
            super().check_schedule(node, duration)
        elif len(self.node2pending[node]) <= LEFT:
            assert self.maxschedchunk is not None
            self._send_tests(node, self.maxschedchunk)
