"""``python -m tests.erasure_service.killed_service PLACE … serve RUN …``: a service that dies at a chosen place."""

from __future__ import annotations

import sys

from fedforget.cli.main import run
from tests.deadly import deadly_at

if __name__ == "__main__":
    module, owner, name, when, n = sys.argv[1].split(":")
    deadly_at(module, owner, name, when, int(n))
    sys.argv = ["fedforget", *sys.argv[2:]]
    run()
