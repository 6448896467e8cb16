"""QueuedErasures: carries out the erasure requests in the queue of a simulated run.

On a network the server does that, between rounds. A request is removed from the queue by the commit of its erasure, so
a process that is killed leaves each request either in the queue or with a receipt.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fedforget.device.compute import Compute
from fedforget.runtime.files import only_writer
from fedforget.server.coordinator import OnRequest
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.history import OnRound
from fedforget.server.request import ErasureRequest
from fedforget.simulation.federation import Federation
from fedforget.simulation.partial import applicable


class QueuedErasures:
    """The queue of a simulated run, and the erasure that was interrupted, whoever began it.

    ``on_request`` gets a request before it is carried out, ``on_round`` the rounds of its replay.
    """

    def __init__(
        self,
        path: Path,
        compute: Compute | None = None,
        on_request: OnRequest | None = None,
        on_round: OnRound | None = None,
    ) -> None:
        self.path = path
        self.queue = ErasureQueue(path)
        self._compute, self._on_request, self._on_round = compute, on_request, on_round

    def pending(self) -> bool:
        """Whether there is something to do; only looks at files."""
        return (self.path / "request.json").exists() or self.queue.oldest() is not None

    def carry_out(self) -> None:
        """Continue the erasure that was interrupted, then carry out the queue, oldest first, until it is empty.

        Raises ``BusyError`` while another process trains or forgets. After this or another error the request stays in
        the queue; one that cannot be carried out is refused.
        """
        while self.pending():
            with only_writer(self.path):  # raises BusyError before the run is opened, which may take seconds
                pass
            with closing(Federation.open(self.path, compute=self._compute)) as fed:
                self._carry_out_with(fed)

    def _carry_out_with(self, fed: Federation) -> None:
        """Carry out requests, until none is left or another process has added data, which ``fed`` does not have."""
        additions = fed.history.membership.additions()
        while fed.history.membership.additions() == additions:
            if (request := self._next(fed)) is None:
                return
            if not fed.drop_if_done(request):
                fed.carry_out(request, self._on_round, self._on_request)

    def _next(self, fed: Federation) -> ErasureRequest | None:
        """The interrupted request, else the oldest, without what does not apply."""
        if (interrupted := fed.waiting) is not None:
            return interrupted
        return None if (queued := self.queue.oldest()) is None else applicable(fed, queued)
