"""Storages and tensors, without ranks. A device is played by a CPU copy."""

import unittest
from unittest import mock

import torch

from allranks_rank.tensors import ALIGN, DTYPES, Storages


def view(storage, dtype, length, offset=0):
    return {"storage": storage, "dtype": dtype, "shape": [length], "strides": [1], "offset": offset}


class TensorsTest(unittest.TestCase):
    def test_every_dtype_is_a_view_of_the_bytes_themselves(self):
        for name, dtype in DTYPES.items():
            storages = Storages([3 * dtype.itemsize])
            (tensor,) = storages.tensors([view(0, name, 2, 1)], None)
            self.assertEqual((tensor.dtype, tensor.shape), (dtype, (2,)))
            pattern = bytes(range(200, 200 + 2 * dtype.itemsize)) if name != "bool" else b"\x01\x00"
            storages.views[0][dtype.itemsize :] = pattern
            self.assertEqual(bytes(tensor.clone().view(torch.uint8).tolist()), pattern, name)

    def test_storages_are_aligned_and_apart(self):
        storages = Storages([1, 0, 63, 64, 65])
        specs = [view(index, "uint8", length) for index, length in enumerate([1, 0, 63, 64, 65])]
        tensors = storages.tensors(specs, None)
        for index, tensor in enumerate(tensors):
            if tensor.numel():
                self.assertEqual(tensor.data_ptr() % ALIGN, 0)
            tensor.fill_(index + 1)
        self.assertEqual([set(each) for each in storages.views], [{1}, set(), {3}, {4}, {5}])

    def test_a_device_gets_copies_and_gives_them_back(self):
        storages = Storages([12, 6, 0])
        storages.views[0][:] = bytes(range(12))
        with mock.patch.object(torch.Tensor, "to", lambda tensor, device: tensor.clone()):
            specs = [view(0, "int32", 2, 1), view(1, "int16", 3), view(0, "uint8", 4), view(2, "bool", 0)]
            wide, short, narrow, _ = storages.tensors(specs, "cpu")
        wide.fill_(-1)
        narrow.fill_(7)  # the same storage through another dtype
        short.fill_(1)
        self.assertTrue(storages.on_device)
        self.assertEqual(bytes(storages.views[0]), bytes(range(12)))
        storages.read_back()
        self.assertEqual(bytes(storages.views[0]), b"\7" * 4 + b"\xff" * 8)
        self.assertEqual(bytes(storages.views[1]), b"\1\0" * 3)

    def test_a_view_that_leaves_its_storage_is_an_error(self):
        storages = Storages([8])
        with self.assertRaisesRegex(RuntimeError, "out of bounds"):
            storages.tensors([view(0, "float32", 2, 1)], None)


if __name__ == "__main__":
    unittest.main()
