"""How xdist hands cases to workers where the cases are not interpreted."""

from __future__ import annotations

from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

#: A worker with so many cases left gets its next share: with one alone it would wait to hear of the one after.
LEFT = 2


class ShareScheduling(LoadScheduling):
    """A worker gets its next share (``--maxschedchunk``) when it comes to the end of the one that it has. xdist's own
    scheduling gives more to a worker whose cases are short, and long ones wait in its queue."""

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node.shutting_down or not self.pending:
            super().check_schedule(node, duration)
        elif len(self.node2pending[node]) <= LEFT:
            assert self.maxschedchunk is not None
            self._send_tests(node, self.maxschedchunk)
