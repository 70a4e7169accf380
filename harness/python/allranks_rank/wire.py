"""Frames over a socket: ``u32 header length | u64 payload length | header (JSON) | payload``, little-endian.

Reading is buffered, so that small frames sent together cost one system call; a large payload is read straight into
its destination. Imports no torch.
"""

import json
import os
import socket
import struct
import threading

FRONT = struct.Struct("<IQ")
MAX_HEADER = 16 << 20
#: Frames up to this size are joined and sent in one piece; larger ones are gathered from their parts.
JOIN = 64 << 10
#: Buffers given to one ``sendmsg``; the kernel's limit (IOV_MAX) is 1024.
GATHER = 512

# What JSON cannot say (an object that a backend mangled) is sent as its ``repr``: seen, not hidden.
encode = json.JSONEncoder(separators=(",", ":"), default=repr, allow_nan=False).encode


class Closed(Exception):
    """The other side closed the connection."""


class Wire:
    """One side of a connection."""

    def __init__(self, sock):
        self.sock = sock
        self._buffer = bytearray(JOIN)
        self._start = 0
        self._end = 0
        self._sending = threading.Lock()  # the watch thread has something to say now and then

    def fill(self):
        """Reads once, at least one byte, into the buffer."""
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

    def _read(self, view):
        try:
            got = self.sock.recv_into(view)
        except ConnectionResetError:
            got = 0
        if got == 0:
            raise Closed
        return got

    def take(self):
        """The next frame's ``(header, payload length)``, or None if it is not in the buffer yet."""
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

    def receive(self):
        """Waits for the next frame's ``(header, payload length)``; its payload is then read by `read_into`."""
        while (frame := self.take()) is None:
            self.fill()
        return frame

    def read_into(self, views):
        """Fills writable byte views with the payload, in order."""
        for view in views:
            done = min(len(view), self._end - self._start)
            view[:done] = memoryview(self._buffer)[self._start : self._start + done]
            self._start += done
            while done < len(view):
                done += self._read(view[done:])

    def send(self, header, parts=()):
        """Sends one frame; ``header`` is a JSON value or ready bytes, ``parts`` are the payload's byte views."""
        if not isinstance(header, bytes):
            header = encode(header).encode()
        length = sum(map(len, parts))
        front = FRONT.pack(len(header), length) + header
        try:
            with self._sending:
                self._send(front, parts, length)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def _send(self, front, parts, length):
        if length <= JOIN:
            self.sock.sendall(b"".join((front, *parts)))
        else:
            self._gather([front, *parts])

    def _gather(self, parts):
        parts = [memoryview(part) for part in parts if len(part)]
        at = 0
        while at < len(parts):
            sent = self.sock.sendmsg(parts[at : at + GATHER])
            while at < len(parts) and sent >= len(parts[at]):
                sent -= len(parts[at])
                at += 1
            if sent:
                parts[at] = parts[at][sent:]


def connect(address):
    """Dials ``unix:/path``, ``unix:@name`` (Linux's abstract names) or ``tcp:host:port``, once."""
    kind, _, where = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect("\0" + where[1:] if where.startswith("@") else where)
    elif kind == "tcp":
        host, _, port = where.rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A harness whose host vanishes sends no FIN: ask it every ten seconds, give up after a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in ("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    else:
        raise ValueError(f"ALLRANKS_CONTROL is neither unix:/path nor tcp:host:port: {address!r}")
    return Wire(sock)


def dial():
    """Connects to the harness that the environment names."""
    return connect(os.environ["ALLRANKS_CONTROL"])
