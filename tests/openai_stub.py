"""A small OpenAI-compatible embeddings server on the loopback, which errs on order: one scripted reply a request."""

import base64
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from memstore.testing import HashEmbedder

DIM = 16
KEY = "sk-tea-0123456789abcdef"


@dataclass
class Reply:
    """What is sent instead of a sound answer; ``cut`` sends only so many bytes of the body and hangs up."""

    status: int = 200
    body: bytes | str | dict[str, Any] | list[Any] = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None

    def bytes(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode("utf-8")


HANG = "hang"
"""Never answer; the connection is held until the stub ends."""
RESET = "reset"
"""End the connection by a TCP reset."""

Step = Reply | str | Callable[[dict[str, Any]], Reply] | None
"""None is a sound answer."""


def error(status: int, message: str, code: str | None = None, **headers: str) -> Reply:
    """OpenAI's form of an error."""
    return Reply(status, {"error": {"message": message, "type": "x", "param": None, "code": code}}, headers)


def items(rows: Any) -> list[dict[str, Any]]:
    return [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]


def answer(rows: Any) -> Reply:
    """Rows as they are, NaN included."""
    return Reply(body={"object": "list", "data": items(rows), "model": "m"})


def in_base64(rows: Any) -> list[str]:
    return [base64.b64encode(np.asarray(row, "<f4").tobytes()).decode("ascii") for row in rows]


class Stub:
    """The server's script and what it was asked.

    ``then`` holds for every request once ``script`` is used up; ``judge`` looks at a request that would get a
    sound answer and may refuse it.
    """

    def __init__(self, dim: int = DIM) -> None:
        self.dim = dim
        self.model = HashEmbedder(dim=dim)
        self.script: deque[Step] = deque()
        self.then: Step = None
        self.judge: Callable[[dict[str, Any]], Reply | None] | None = None
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peers: set[tuple[str, int]] = set()
        self.ended = threading.Event()
        self.hanging = threading.Semaphore(0)
        self.url = ""
        self._lock = threading.Lock()

    @property
    def inputs(self) -> list[list[str]]:
        return [request["input"] for request in self.requests]

    def rows(self, texts: list[str]) -> list[list[float]]:
        return self.model.embed_documents(texts).tolist()

    def sound(self, request: dict[str, Any]) -> Reply:
        refusal = self.judge(request) if self.judge else None
        return refusal or answer(self.rows(request["input"]))

    def next_step(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> Reply | str:
        with self._lock:
            self.requests.append(request)
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            self.paths.append(handler.path)
            self.peers.add(handler.client_address)
            step = self.script.popleft() if self.script else self.then
        if callable(step):
            return step(request)
        return self.sound(request) if step is None else step


def _handler_for(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20
        wbufsize = -1  # head and body in one packet: two would wait 40 ms for an acknowledgement

        def do_POST(self):
            raw = self.rfile.read(int(self.headers["content-length"]))
            step = stub.next_step(self, json.loads(raw))
            if isinstance(step, Reply):
                self.send(step)
            elif step == HANG:
                stub.hanging.release()
                stub.ended.wait()
                self.close_connection = True
            else:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True

        def send(self, reply: Reply) -> None:
            body = reply.bytes()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if reply.cut is None else body[: reply.cut])
            self.close_connection = self.close_connection or reply.cut is not None

        def log_message(self, *arguments):
            """Nothing on stderr."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def shutdown_request(self, request):
        # The base class sends a polite FIN first; a reset has to be the only thing that is sent.
        if request.fileno() >= 0 and _lingers(request):
            request.close()
        else:
            super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """Clients that hang up early are part of the game."""


def _lingers(connection: socket.socket) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    return bool(struct.unpack("ii", raw)[0])


@contextmanager
def running(stub: Stub) -> Iterator[Stub]:
    """Serve the stub; its ``url`` is the base URL for the embedder."""
    with _Server(("127.0.0.1", 0), _handler_for(stub)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield stub
        finally:
            stub.ended.set()
            server.shutdown()
            thread.join()
