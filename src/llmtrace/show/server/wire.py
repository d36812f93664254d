"""Sockets: one short thread a request, all of them bounded, in number and in time."""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from ...guard import guard, shield
from .answers import TEXT, Answer, Asked, RefusedError, asked
from .security import CLOSED, HEADERS

CONNECTIONS: Final = 32
"""Served at the same time; each holds one answer at most, some megabytes."""
QUEUE_S: Final = 1.0
"""How long the next one waits for a place; those behind it wait in the kernel's queue."""
READ_S: Final = 10.0
"""For the whole of a request's head, however slowly it drips."""
WRITE_S: Final = 60.0
"""For the whole of an answer."""
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Reply = Callable[[Asked], Answer]
Refuse = Callable[[RefusedError, Asked | None], Answer]


class Server(ThreadingHTTPServer):
    """Listens at once; raises OSError where it cannot. `reply` answers a request or raises RefusedError, `refuse` makes an answer of that."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, reply: Reply, refuse: Refuse) -> None:
        self.reply, self.refuse = reply, refuse
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__(address[:2], Handler)  # type: ignore[reportArgumentType]: of AF_INET and AF_INET6 they are host and port

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of the host's full name, which may wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[reportAttributeAccessIssue]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(timeout=QUEUE_S):
            turn_away(request)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or was too slow, is none of ours; anything else is counted and said once."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            guard.report("serve", error)


def turn_away(connection: socket.socket) -> None:
    try:
        connection.settimeout(0.1)
        connection.sendall(BUSY)
    except OSError:
        pass


class Dripping(io.RawIOBase):
    """Reads a socket until a moment, whatever comes and however slowly; then raises TimeoutError."""

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._connection, self._until_s = connection, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One request and its answer, then the connection is closed."""

    server: Server  # type: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "llmtrace", ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(Dripping(self.connection, time.monotonic() + READ_S))

    def do_GET(self) -> None:  # http.server finds methods by these names
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def _answer(self) -> Answer:
        request: Asked | None = None
        with shield("serve"):
            try:
                if len(self.headers.get_all("Host", [])) > 1:  # which of them is meant is anybody's guess
                    raise RefusedError(400, "The request names two hosts.")
                request = asked(self.path, dict(self.headers.items()))
                return self.server.reply(request)
            except RefusedError as refusal:
                return self.server.refuse(refusal, request)
        return Answer(status=500, kind=TEXT, body=b"Something failed here; llmtrace's own words on stderr say what.\n")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself: a method that is not GET or HEAD, a request that is none."""
        if code == 501:
            refusal = RefusedError(405, "Only GET and HEAD are answered here.", {"Allow": "GET, HEAD"})
        else:
            refusal = RefusedError(code, "This is no request that can be answered.")
        self._send(self.server.refuse(refusal, None))

    def _send(self, answer: Answer) -> None:
        self.close_connection = True
        self.connection.settimeout(WRITE_S)
        body, coding = self._coded(answer)
        self.send_response(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Security-Policy": CLOSED, **HEADERS, **answer.headers, **coding}
        for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _coded(self, answer: Answer) -> tuple[bytes, dict[str, str]]:
        if not answer.packed:
            return answer.body, {}
        if not takes_gzip(self.headers.get("Accept-Encoding", "")):
            return answer.body, {"Vary": "Accept-Encoding"}
        return answer.packed, {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
        """Nothing: addresses hold tokens, and whoever needs an access log has a proxy that writes one."""


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding allows it (RFC 9110, 12.5.3): named, or by *, and not with a weight of 0."""
    weights = {name.strip().lower(): weight for name, _, weight in (part.partition(";") for part in accepted.split(","))}
    weight = weights.get("gzip", weights.get("x-gzip", weights.get("*")))
    return weight is not None and weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
