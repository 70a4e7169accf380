"""Frames over a socket: ``u32 header length | u64 payload length | header (JSON) | payload``, little-endian.

Reading is buffered, so that small frames sent together cost one system call; a large payload is read straight into
its destination. Imports no torch.
"""

import json
import os
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

#: What every frame begins with: the lengths of header and payload.
FRONT = struct.Struct("<IQ")
#: The longest header that is read, in bytes.
MAX_HEADER = 16 << 20
#: Frames up to this size are joined and sent in one piece; larger ones are gathered from their parts.
JOIN = 64 << 10
#: Buffers given to one ``sendmsg``; the kernel's limit (IOV_MAX) is 1024.
GATHER = 512

#: JSON as it is sent. What JSON cannot express (an object that a backend mangled) is sent as its ``repr``: seen, not
#: hidden.
encode = json.JSONEncoder(separators=(",", ":"), default=repr, allow_nan=False).encode


#: A piece of a payload.
Part: TypeAlias = bytes | bytearray | memoryview


class Closed(Exception):  # noqa: N818  the end of a conversation is no error
    """The other side closed the connection."""


class Wire:
    """One side of a connection. One thread receives; any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray(JOIN)
        self._start = 0
        self._end = 0
        self._sending = threading.Lock()  # the watch thread sends a frame now and then

    def fill(self) -> None:
        """Reads once, at least one byte, into the buffer. Raises `Closed` at the end of the stream."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            # Room behind: by moving what is left to the front, or by growing when it is at the front already.
            left = self._buffer[self._start : self._end]
            self._buffer[: len(left)] = left
            if self._start == 0:
                self._buffer.extend(bytes(len(left)))
            self._start, self._end = 0, len(left)
        with memoryview(self._buffer) as view:
            self._end += self._read(view[self._end :])

    def _read(self, view: memoryview) -> int:
        """Reads once into ``view``; returns how many bytes."""
        try:
            got = self.sock.recv_into(view)
        except ConnectionResetError:
            got = 0
        if got == 0:
            raise Closed
        return got

    def take(self) -> tuple[Any, int] | None:
        """Returns the next frame's header and payload length, or None if the header is not in the buffer yet.

        Raises:
            ValueError: the header is longer than `MAX_HEADER`, or is no JSON.
        """
        have = self._end - self._start
        if have < FRONT.size:
            return None
        header, payload = FRONT.unpack_from(self._buffer, self._start)
        if header > MAX_HEADER:
            raise ValueError(f"not a frame: it claims a header of {header} bytes")
        begin = self._start + FRONT.size
        if have < FRONT.size + header:
            return None
        self._start = begin + header
        return json.loads(self._buffer[begin : self._start]), payload

    def receive(self) -> tuple[Any, int]:
        """Waits for the next frame; returns its header and payload length. The payload is then read by `read_into`."""
        while (frame := self.take()) is None:
            self.fill()
        return frame

    def read_into(self, views: Iterable[memoryview]) -> None:
        """Fills writable byte views with the payload, in order."""
        for view in views:
            done = min(len(view), self._end - self._start)
            view[:done] = memoryview(self._buffer)[self._start : self._start + done]
            self._start += done
            while done < len(view):
                done += self._read(view[done:])

    def send(self, header: Any, parts: Sequence[Part] = ()) -> None:
        """Sends one frame.

        Args:
            header: a JSON value, or one that is encoded already, as bytes.
            parts: the payload, in order.

        Raises:
            Closed: the other side has closed the connection.
        """
        if not isinstance(header, bytes):
            header = encode(header).encode()
        length = sum(map(len, parts))
        front = FRONT.pack(len(header), length) + header
        try:
            with self._sending:
                self._send(front, parts, length)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def _send(self, front: bytes, parts: Sequence[Part], length: int) -> None:
        if length <= JOIN:
            self.sock.sendall(b"".join((front, *parts)))
        else:
            self._gather([front, *parts])

    def _gather(self, parts: Sequence[Part]) -> None:
        """Sends parts without joining them."""
        views = [memoryview(part) for part in parts if len(part)]
        at = 0
        while at < len(views):
            sent = self.sock.sendmsg(views[at : at + GATHER])
            while at < len(views) and sent >= len(views[at]):
                sent -= len(views[at])
                at += 1
            if sent:
                views[at] = views[at][sent:]


def connect(address: str) -> Wire:
    """Connects to ``unix:/path``, ``unix:@name`` (Linux's abstract names) or ``tcp:host:port``. Tries once.

    Raises:
        ValueError: an address of another kind.
        OSError: the connection was not made.
    """
    kind, _, place = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect("\0" + place[1:] if place.startswith("@") else place)
    elif kind == "tcp":
        host, _, port = place.rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A harness whose host vanishes sends no FIN: probe it every ten seconds, close after a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in ("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    else:
        raise ValueError(f"ALLRANKS_CONTROL is neither unix:/path nor tcp:host:port: {address!r}")
    return Wire(sock)


def dial() -> Wire:
    """Connects to the harness, at the address in ``ALLRANKS_CONTROL``."""
    return connect(os.environ["ALLRANKS_CONTROL"])
