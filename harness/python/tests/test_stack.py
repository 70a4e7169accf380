"""Layers above c10d in Gloo worlds, one step each; the answers are worked out by hand."""

import unittest

from .playing_harness import Folder, World, Zygote
from .test_calls import flat, pack, unpack


class StackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Folder(prefix="ar")
        cls.zygote = Zygote(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.zygote.close()
        cls.folder.cleanup()

    def use(self, layer, options, tensors):
        """Has a world of two use a layer; returns each rank's entry, and what its tensors hold by name.

        ``options`` and ``tensors`` are functions of the rank; the latter's values are lists of float32.
        """
        world = World(self.zygote, self.folder, 2)
        self.addCleanup(world.close)
        world.init()

        def step(rank):
            named = tensors(rank)
            places = {name: place for place, name in enumerate(named)}
            call = {"call": "stack", "group": "world", "layer": layer, "tensors": places, "options": options(rank)}
            views = [flat(place, len(values)) for place, values in enumerate(named.values())]
            return [pack(*values) for values in named.values()], views, [call]

        answers = []
        for rank, (results, storages) in enumerate(world.step(step)):
            answers.append((results[0], dict(zip(tensors(rank), map(unpack, storages), strict=True))))
        return answers

    def ddp(self, tensors, **options):
        plain = {
            "parameters": 2,
            "used": [0, 1],
            "find_unused": False,
            "bucket_mb": None,
            "steps": 1,
            "passes": 1,
            "view": False,
            "hook": "none",
            "sleep_ms": 0,
        }
        of_rank = lambda r: {name: value(r) if callable(value) else value for name, value in options.items()}  # noqa: E731
        return self.use("ddp", lambda r: plain | of_rank(r), tensors)

    def test_gradients_are_averages_and_parameters_and_buffers_the_first_rank_s(self):
        answers = self.ddp(
            lambda r: {
                "parameter.0": [r, 2],
                "parameter.1": [5 + r],
                "buffer.0": [7 + r],
                "synced.0": [0],
                "input.0.0.0": [2 * r, 4],
                "input.0.0.1": [8 * r],
                "gradient.0.0": [0, 0],
                "gradient.0.1": [0],
            }
        )
        for entry, held in answers:
            self.assertEqual(entry["status"], "ok", entry)
            self.assertEqual(held["parameter.0"] + held["parameter.1"], [0, 2, 5])
            self.assertEqual(held["synced.0"], [7])
            self.assertEqual(held["gradient.0.0"] + held["gradient.0.1"], [1, 4, 4])

    def test_what_was_accumulated_is_reduced_once(self):
        answers = self.ddp(
            lambda r: {
                "parameter.0": [1],
                "parameter.1": [1],
                "buffer.0": [1],
                "synced.0": [0],
                "input.0.0.0": [2 * r],
                "input.0.0.1": [4],
                "input.0.1.0": [6],
                "input.0.1.1": [8 * r],
                "local.0.0": [0],
                "local.0.1": [0],
                "gradient.0.0": [0],
                "gradient.0.1": [0],
            },
            passes=2,
        )
        for rank, (entry, held) in enumerate(answers):
            self.assertEqual(entry["status"], "ok", entry)
            self.assertEqual(held["local.0.0"] + held["local.0.1"], [2 * rank, 4])
            self.assertEqual(held["gradient.0.0"] + held["gradient.0.1"], [7, 8])

    def test_what_no_rank_uses_is_left_as_it_is(self):
        answers = self.ddp(
            lambda r: {
                "parameter.0": [1],
                "parameter.1": [1],
                "buffer.0": [1],
                "synced.0": [0],
                "input.0.0.0": [4 * r],
                "input.0.0.1": [4],
                "gradient.0.0": [9],
                "gradient.0.1": [9],
            },
            used=[0],
            find_unused=True,
        )
        for entry, held in answers:
            self.assertEqual(entry["status"], "ok", entry)
            self.assertEqual(held["gradient.0.0"] + held["gradient.0.1"], [2, 9])

    def test_shards_are_those_of_chunk_and_all_together_the_whole(self):
        options = {"parameters": 1, "mesh": [2], "steps": 1, "reshard": True, "rate": 0.5, "sleep_ms": 0}
        before = {
            "input.0.0": [0, 0, 0],
            "gathered.0.0": [9, 9, 9],
            "returned.0.0": [9, 9, 9],
            "full.0.0": [9, 9, 9],
        }
        of_rank = lambda r: {  # noqa: E731
            **before,
            "parameter.0": [10 + r, 20 + r, 30 + r],
            "input.0.0": [4 * r, 8, 12 * r],
            "gradient.0.0": [9] * (2 - r),
            "shard.0.0": [9] * (2 - r),
        }
        for rank, (entry, held) in enumerate(self.use("fsdp2", lambda r: options, of_rank)):
            self.assertEqual(entry["status"], "ok", entry)
            self.assertEqual(held["gathered.0.0"], [10, 20, 31])
            self.assertEqual(held["returned.0.0"], [10, 20, 31])
            self.assertEqual(held["gradient.0.0"], [[2, 8], [6]][rank])
            self.assertEqual(held["shard.0.0"], [[9, 16], [28]][rank])
            self.assertEqual(held["full.0.0"], [9, 16, 28])

    def test_groups_of_a_mesh_are_its_rows_and_columns(self):
        names = ("outer", "inner", "slice", "flat")

        def tensors(r):
            sizes = {"outer": 1, "inner": 2, "slice": 2, "flat": 2}
            inputs = {f"input.{name}": [10 + r] for name in names}
            sums = {f"sum.{name}": [0] for name in names}
            return inputs | sums | {f"members.{name}": [9] * size for name, size in sizes.items()}

        for rank, (entry, held) in enumerate(self.use("mesh", lambda r: {"mesh": [1, 2]}, tensors)):
            self.assertEqual(entry["status"], "ok", entry)
            self.assertEqual([held[f"sum.{name}"] for name in names], [[10 + rank], [21], [21], [21]])
            self.assertEqual([held[f"members.{name}"] for name in names], [[rank], [0, 1], [0, 1], [0, 1]])

    def test_a_pipeline_is_the_product_of_its_stages(self):
        options = {"schedule": "gpipe", "microbatches": 2, "steps": 1, "sleep_ms": 0}

        def tensors(r):
            ends = {"input.0": [1, 2]} if r == 0 else {"target.0": [10, 100], "output.0": [0, 0]}
            return {"weight": [2 + r], "bias": [5 - r], "gradient.0.weight": [0], "gradient.0.bias": [0]} | ends

        answers = self.use("pipeline", lambda r: options, tensors)
        for entry, _ in answers:
            self.assertEqual(entry["status"], "ok", entry)
        (_, first), (_, last) = answers
        # (x * 2 + 5) * 3 + 4
        self.assertEqual(last["output.0"], [25, 31])
        self.assertEqual(last["gradient.0.weight"] + last["gradient.0.bias"], [7 * 10 + 9 * 100, 110])
        self.assertEqual(first["gradient.0.weight"] + first["gradient.0.bias"], [3 * (10 + 200), 3 * 110])

    def test_a_layer_that_there_is_not_is_an_error(self):
        for entry, _ in self.use("nothing", lambda r: {}, lambda r: {"x": [1]}):
            self.assertEqual(entry["error"]["type"], "LookupError")

    def test_a_result_of_another_shape_is_an_error(self):
        options = {"collective": "all_reduce", "op": "sum", "dim": 0, "root": 0, "splits": None, "wait": True}
        options |= {"backward": False, "calls": 1, "tensors": 1, "sleep_ms": 0}
        tensors = {"input.0.0": [1, 2], "result.0.0": [0, 0, 0]}
        for entry, _ in self.use("functional", lambda r: options, lambda r: tensors):
            self.assertIn("result.0.0 is torch.float32 (2,), not torch.float32 (3,)", entry["error"]["message"])


if __name__ == "__main__":
    unittest.main()
