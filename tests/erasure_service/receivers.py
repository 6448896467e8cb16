"""Receiver: a real HTTP or HTTPS server on loopback that answers callbacks as told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
