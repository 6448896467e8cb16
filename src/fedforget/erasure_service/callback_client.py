"""CallbackClient: one POST to a checked address, with every wait bounded."""

from __future__ import annotations

import http.client
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import SplitResult, urlsplit

from fedforget.erasure_service.callback_address import (
    DEFAULT_PORTS,
    CallbackError,
    covers,
    is_public,
    targets,
    validate,
)

Resolve = Callable[[str, int], list[str]]

#: Of the answer, more is not read. Nothing in it but the status counts.
MOST_ANSWER_BYTES = 4096
#: Of a host's addresses, more are not tried in one attempt.
MOST_ADDRESSES = 4


class CallbackClient:
    """Sends to allowed hosts only. It follows no redirects, uses no proxy and verifies certificates.

    A host is resolved once, all its addresses are checked, and the connection goes to one of those. A name that
    resolves differently a moment later therefore gains nothing. ``close`` ends a call in progress.
    """

    def __init__(
        self,
        allowed_hosts: Collection[str],
        private_hosts: Collection[str] = (),
        *,
        connect_seconds: float = 5.0,
        total_seconds: float = 15.0,
        context: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._allowed_hosts = frozenset(allowed_hosts)
        self._private_hosts = frozenset(private_hosts)
        self._private_targets = targets(private_hosts)
        self._connect_seconds = connect_seconds
        self._total_seconds = total_seconds
        self._context = context or ssl.create_default_context()
        self._resolve = resolve or _resolver(connect_seconds)
        self._call: _Call | None = None
        self._closed = False

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status that the receiver answers. Raises an exception if there is none."""
        parts = urlsplit(validate(url, self._allowed_hosts, self._private_hosts))
        host = parts.hostname or ""
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        private = covers(self._private_targets, parts.scheme, host, port)
        addresses = self._checked(host, self._resolve(host, port), private)
        with self._limited() as call, self._connected(call, addresses, host, port, parts.scheme == "https") as sock:
            return _exchange(sock, parts, body, headers)

    def close(self) -> None:
        """End the call in progress, if there is one, and refuse further ones."""
        self._closed = True
        if self._call is not None:
            self._call.end()

    def _checked(self, host: str, addresses: list[str], private: bool) -> list[str]:
        """The addresses, unless one of them is private and the host may not be."""
        if not addresses:
            raise CallbackError(f"{host} has no address.", "Check its name.")
        if not private:
            for address in addresses:
                if not is_public(address):
                    raise CallbackError(
                        f"{host} has the address {address}, which is not public.",
                        "If that is right, add it to the private callback hosts.",
                    )
        return addresses[:MOST_ADDRESSES]

    @contextmanager
    def _limited(self) -> Iterator[_Call]:
        """A call that is ended when the total time is over: a timeout of a socket only limits each step."""
        call = self._call = _Call()
        if self._closed:
            call.end()
        timer = threading.Timer(self._total_seconds, call.end)
        timer.daemon = True
        timer.start()
        try:
            yield call
        except Exception as error:
            if call.ended and not self._closed:
                raise TimeoutError(f"No answer within {self._total_seconds:g} seconds.") from error
            raise
        finally:
            timer.cancel()
            self._call = None

    @contextmanager
    def _connected(self, call: _Call, addresses: list[str], host: str, port: int, tls: bool) -> Iterator[socket.socket]:
        """A connection to the first address that can be reached, with the certificate verified for the host's name."""
        sock = self._reached(call, addresses, port)
        try:
            if tls:
                sock = self._context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                call.hold(sock)
                sock.do_handshake()
            sock.settimeout(self._total_seconds)
            yield sock
        finally:
            call.release(sock)

    def _reached(self, call: _Call, addresses: list[str], port: int) -> socket.socket:
        problem: OSError | None = None
        for address in addresses:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.settimeout(self._connect_seconds)
                call.hold(sock)
                sock.connect((address, port))
                return sock
            except OSError as error:
                problem = error
                call.release(sock)
        raise problem or OSError("There is no address.")


class _Call:
    """The connection of a call, which another thread can end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.ended = False

    def hold(self, sock: socket.socket) -> None:
        """Make this the connection that ``end`` ends."""
        with self._lock:
            if self.ended:
                raise ConnectionAbortedError("The call was ended.")
            self._socket = sock

    def release(self, sock: socket.socket) -> None:
        with self._lock:
            self._socket = None
        sock.close()

    def end(self) -> None:
        """Wake whoever waits for the connection. It is shut down, not closed, so that no other file can be meant."""
        with self._lock:
            self.ended = True
            if self._socket is not None:
                with suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _exchange(sock: socket.socket, parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
    """Send one request over a connection, and read the status of the answer."""
    connection = http.client.HTTPConnection(parts.hostname or "")
    connection.sock = sock
    connection.auto_open = 0
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    connection.request("POST", target, body, {**headers, "Host": parts.netloc, "Connection": "close"})
    response = connection.getresponse()
    with suppress(OSError, http.client.HTTPException):
        response.read(MOST_ANSWER_BYTES)
    response.close()
    return response.status


def _resolver(seconds: float) -> Resolve:
    """The system's resolver, which has no time limit of its own, in a thread that is left behind after ``seconds``."""

    def resolve(host: str, port: int) -> list[str]:
        answers: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

        def ask() -> None:
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
            except OSError as error:
                answers.put(error)

        threading.Thread(target=ask, name="callback-resolver", daemon=True).start()
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"{host} was not resolved within {seconds:g} seconds.") from None
        if isinstance(answer, OSError):
            raise answer
        return answer

    return resolve
