"""Receiver: a real HTTP or HTTPS server on loopback that answers callbacks as told, and a client that may call it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedforget.erasure_service.callback_client import CallbackClient

HOST = "hooks.example.org"
#: Addresses that are not on the public internet, some within others.
PRIVATE = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "192.0.0.9",
    "198.18.0.1",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "2001:db8::1",
    "3fff::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:7f00:1::",
    "100::1",
    "4000::1",
]


class Receiver:
    """What was received, and the statuses that are answered next; then 202. Status 0 never answers."""

    def __init__(self, *statuses: int, location: str = "") -> None:
        self.statuses = list(statuses)
        self.location = location
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.released = threading.Event()
        self.got_one = threading.Event()
        self.port = 0

    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.received]


@contextmanager
def serving(receiver: Receiver, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            receiver.got_one.set()
            status = receiver.statuses.pop(0) if receiver.statuses else 202
            if not status:
                receiver.released.wait(20)
                return
            self.send_response(status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()
            self.wfile.write(b"x" * 100)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def loopback_client(port: int, **options: Any) -> CallbackClient:
    """A client that finds the host on loopback and may call it there at a port."""
    allowed = [f"{HOST}:{port}"]
    return CallbackClient(allowed, allowed, resolve=lambda *_: ["127.0.0.1"], **options)
