"""Once: work on receipts that is not repeated until their files have changed, whether it was done or refused."""

from __future__ import annotations

from collections.abc import Callable

from fedforget.errors import ReceiptError


class Once:
    """What was done last for each of some names, and the error of a receipt that was in the way."""

    def __init__(self) -> None:
        self._done: dict[str, tuple[object, ReceiptError | None]] = {}

    def __call__(self, name: str, state: object, work: Callable[[], bool]) -> bool:
        """Do work and return its result, or False if it was done in this state; the error of a receipt is kept."""
        before, error = self._done.get(name, (None, None))
        result = False
        if before != state:
            try:
                result, error = work(), None
            except ReceiptError as found:
                error = found
            self._done[name] = state, error
        if error is not None:
            raise error.with_traceback(None)
        return result
