"""Background: a value that takes long to compute, computed in a thread whenever what it depends on has changed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)
#: Seconds between looks at what a value depends on, and after which it is computed again in any case.
LOOK_SECONDS, AGAIN_SECONDS = 2.0, 600.0


class Background(Generic[T]):
    """The newest value of ``compute``, which runs again when ``signature`` returns something else.

    ``get`` never waits for it. Nothing runs while nobody asks.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[[], T],
        signature: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._compute, self._signature, self._clock = name, compute, signature, clock
        self._lock = threading.Lock()
        self._value: T | None = None
        self._of: object = None
        self._looked, self._computed = float("-inf"), float("-inf")
        self._thread: threading.Thread | None = None

    def get(self) -> T | None:
        """The newest value; None before the first one. Looks for changes in a thread if the last look is old."""
        with self._lock:
            now = self._clock()
            if self._thread is None and now - self._looked >= LOOK_SECONDS:
                self._looked = now
                self._thread = threading.Thread(target=self._look, name=self._name, daemon=True)
                self._thread.start()
            return self._value

    def wait(self) -> T | None:
        """Look for changes, wait until that is done, and return the newest value. For tests and single pages."""
        self.get()
        thread = self._thread
        if thread is not None:
            thread.join()
        return self._value

    def _look(self) -> None:
        """Compute the value again if what it depends on has changed, or if it is old."""
        try:
            signature = self._signature()
            if signature != self._of or self._clock() - self._computed >= AGAIN_SECONDS:
                value = self._compute()
                with self._lock:
                    self._value, self._of, self._computed = value, signature, self._clock()
        except Exception as error:  # a file that is being replaced or is damaged: looked at again later
            log.warning("%s failed: %s", self._name, error)
        finally:
            self._thread = None
