"""Frames, without torch."""

import os
import socket
import threading
import unittest

from allranks_rank.wire import Closed, Wire, connect


class WireTest(unittest.TestCase):
    def setUp(self):
        left, right = socket.socketpair()
        self.left, self.right = Wire(left), Wire(right)
        self.addCleanup(left.close)
        self.addCleanup(right.close)

    def exchange(self, frames):
        """Sends frames from a thread, and reads them on the other side."""

        def send():
            for header, parts in frames:
                self.left.send(header, parts)
            self.left.sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for header, parts in frames:
                got, length = self.right.receive()
                self.assertEqual(got, header)
                self.assertEqual(length, sum(map(len, parts)))
                payload = [bytearray(len(part)) for part in parts]
                self.right.read_into([memoryview(each) for each in payload])
                self.assertEqual(payload, list(map(bytearray, parts)))
            self.assertRaises(Closed, self.right.receive)
        finally:
            sender.join()

    def test_frames_of_every_size_arrive_in_order(self):
        self.exchange([({"n": n, "pad": "x" * n}, [os.urandom(n), b"", os.urandom(7)]) for n in range(0, 500, 7)])

    def test_a_header_and_a_payload_longer_than_the_buffer(self):
        big = os.urandom(5 << 20)
        frames = [({"pad": "y" * 300_000}, [b"ab", big, b""]), ({"small": 1}, [b"c"])] * 2
        self.exchange(frames)

    def test_more_parts_than_one_system_call_takes(self):
        self.exchange([({}, [os.urandom(100) for _ in range(3000)])])

    def test_the_bytes_are_those_of_the_specification(self):
        self.left.send({"frame": "finish"})
        expected = bytes.fromhex("12000000 0000000000000000") + b'{"frame":"finish"}'
        self.assertEqual(self.right.sock.recv(100), expected)

    def test_garbage_is_not_taken_for_a_frame(self):
        self.left.sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertRaisesRegex(ValueError, "not a frame", self.right.receive)

    def test_an_end_inside_a_frame_is_an_end(self):
        self.left.sock.sendall(b"\x12\0\0")
        self.left.sock.close()
        self.assertRaises(Closed, self.right.receive)

    def test_only_two_kinds_of_address(self):
        self.assertRaisesRegex(ValueError, "neither unix:/path nor tcp", connect, "http://x")

    def test_tcp_addresses(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            wire = connect(f"tcp:127.0.0.1:{server.getsockname()[1]}")
            wire.send({"a": 1})
            peer, _ = server.accept()
            self.assertEqual(Wire(peer).receive(), ({"a": 1}, 0))
            peer.close()
            wire.sock.close()


if __name__ == "__main__":
    unittest.main()
