"""Whether the service in this container answers: exit code 0 if so. FEDFORGET_HEALTH_URL overrides the address."""

from __future__ import annotations

import os
import ssl
import sys
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

#: The certificate names the public address, not this one.
CONTEXT = ssl._create_unverified_context()


def main() -> int:
    """Ask by HTTP, then by HTTPS."""
    port = os.environ.get("FEDFORGET_SERVE_PORT", "8765")
    given = os.environ.get("FEDFORGET_HEALTH_URL")
    urls = [given] if given else [f"{scheme}://127.0.0.1:{port}/v1/health" for scheme in ("http", "https")]
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=CONTEXT))
    for url in urls:
        try:
            with opener.open(url, timeout=2) as answer:
                return 0 if answer.status == 200 else 1
        except (URLError, OSError, HTTPException):
            continue
    return 1


if __name__ == "__main__":
    sys.exit(main())
