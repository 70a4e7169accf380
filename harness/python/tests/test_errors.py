import unittest

from allranks_rank.errors import LONGEST, describe


class Messages(unittest.TestCase):
    def test_one_that_is_not_long_is_sent_whole(self):
        self.assertEqual(describe(KeyError("x")), {"type": "KeyError", "message": "'x'"})
        self.assertEqual(len(describe(ValueError("x" * LONGEST))["message"]), LONGEST)

    def test_of_a_long_one_beginning_and_end_are_sent(self):
        message = describe(ValueError(f"begun {'ä' * LONGEST} done"))["message"]
        self.assertTrue(message.startswith("begun ä") and message.endswith("ä done"))
        self.assertLess(len(message.encode()), LONGEST + 60)
        head, note, tail = message.split("\n")
        cut = len(f"begun {'ä' * LONGEST} done".encode()) - len((head + tail).encode())
        self.assertEqual(note, f"[allranks cut {cut} bytes out of here]")


if __name__ == "__main__":
    unittest.main()
