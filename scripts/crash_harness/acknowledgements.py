"""The journal of acknowledgements: a process that knows nothing of memstore, and its clients.

A writer says a line before each call and another one behind it, and goes on only when the line stands in the
journal's file and is synced. So the file's word on what was acknowledged does not depend on the store.

    python acknowledgements.py SOCKET FILE
"""

import contextlib
import json
import os
import selectors
import socket
import sys
from collections.abc import Callable
from pathlib import Path

LARGEST_READ = 1 << 20


class Client:
    """One writer's way to the journal. Each thread has its own."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(address))

    def say(self, **line: object) -> None:
        """Put a line into the journal; returns when it is there and synced."""
        self._send(line)
        self._hear()

    def wait(self, lines: int, patience_s: int, meanwhile: Callable[[], None]) -> None:
        """Return when so many more lines are there; with 0, when all that was sent until now is.

        :param meanwhile: called each second, and raises when there is nothing to wait for any more.
        :raises TimeoutError: when nothing is said any more.
        """
        self._send({"wait": lines})
        self._socket.settimeout(1.0)
        for _ in range(patience_s):
            try:
                self._hear()
            except TimeoutError:
                meanwhile()
            else:
                return
        raise TimeoutError(f"the journal got no line for {patience_s} s")

    def _send(self, line: dict) -> None:
        self._socket.sendall(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def _hear(self) -> None:
        if self._socket.recv(1) != b".":
            raise ConnectionError("the journal has ended")

    def close(self) -> None:
        self._socket.close()


class Journal:
    """The server. Lines that are there at once share one write and one sync."""

    def __init__(self, address: str, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(256)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._read: dict[socket.socket, bytes] = {}
        self._waiting: list[tuple[int, socket.socket]] = []
        self._lines = 0

    def serve(self) -> None:
        """Serve until standard input ends: with the harness, this process ends too."""
        while True:
            said: list[tuple[socket.socket, bytes]] = []
            timeout = None
            while ready := self._selector.select(timeout):
                timeout = 0  # whoever is read waits for an answer, so this comes to an end
                for key, _ in ready:
                    if key.fileobj is sys.stdin:
                        return
                    if key.fileobj is self._listening:
                        self._welcome()
                    else:
                        said += self._hear(key.fileobj)
            self._keep(said)

    def _welcome(self) -> None:
        connection, _ = self._listening.accept()
        self._read[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> list[tuple[socket.socket, bytes]]:
        try:
            heard = connection.recv(LARGEST_READ)
        except ConnectionResetError:
            heard = b""
        if not heard:
            self._selector.unregister(connection)
            connection.close()
            del self._read[connection]  # half a line of a writer that was killed says nothing
            return []
        *lines, self._read[connection] = (self._read[connection] + heard).split(b"\n")
        return [(connection, line) for line in lines]

    def _keep(self, said: list[tuple[socket.socket, bytes]]) -> None:
        asked = [(connection, line) for connection, line in said if line.startswith(b'{"wait":')]
        told = [(connection, line) for connection, line in said if not line.startswith(b'{"wait":')]
        if told:
            lines = b"".join(line + b"\n" for _, line in told)
            if os.write(self._file, lines) != len(lines):
                raise OSError("the journal's disk is full")
            os.fsync(self._file)
            self._lines += len(told)
        self._waiting += [(self._lines + json.loads(line)["wait"], connection) for connection, line in asked]
        due = [connection for lines, connection in self._waiting if lines <= self._lines]
        self._waiting = [(lines, connection) for lines, connection in self._waiting if lines > self._lines]
        for connection in [*(connection for connection, _ in told), *due]:
            if connection in self._read:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was killed; what it said is kept all the same
            connection.send(b".")


if __name__ == "__main__":
    journal = Journal(*sys.argv[1:])
    print("ready", flush=True)
    journal.serve()
