"""Layers above c10d in Gloo worlds, one step each; the answers are worked out by hand."""

import unittest

from .fake_harness import Folder, World, Zygote
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
            "join": False,
            "is_refused": False,
            "one_more": False,
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

    def test_a_rank_that_has_run_out_of_inputs_adds_nothing(self):
        def tensors(r):
            held = {"parameter.0": [1], "parameter.1": [1]}
            for step in range(1 + r):
                held |= {f"buffer.{step}": [10 * r + step], f"synced.{step}": [0]}
                for place in range(2):
                    held |= {f"input.{step}.0.{place}": [4 + 4 * r + step], f"gradient.{step}.{place}": [0]}
            return held

        (first, one), (second, two) = self.ddp(tensors, join=True, steps=lambda r: 1 + r)
        self.assertEqual([first["status"], second["status"]], ["ok", "ok"])
        # Buffers are those of the last rank that still has inputs.
        self.assertEqual(one["synced.0"] + two["synced.0"] + two["synced.1"], [10, 10, 11])
        self.assertEqual(one["gradient.0.0"] + two["gradient.0.0"] + two["gradient.1.0"], [6, 6, 4.5])

    def test_a_model_with_a_parameter_more_is_refused_on_every_rank(self):
        def tensors(r):
            return {"parameter.0": [1], "parameter.1": [1], "buffer.0": [1], "refused": [9]}

        for extra, refused in ((1, [1]), (0, [0])):
            answers = self.ddp(tensors, is_refused=True, one_more=lambda r, extra=extra: r < extra)
            for entry, held in answers:
                self.assertEqual(entry["status"], "ok", entry)
                self.assertEqual(held["refused"], refused)

    def fsdp2(self, given, more=None, **options):
        """Has a world of two make a step with a parameter of three elements."""
        plain = {"parameters": 1, "mesh": [2], "steps": 1, "reshard": True, "units": "one"}
        plain |= {"rate": 0.5, "sleep_ms": 0}
        plain |= dict.fromkeys(["divide_by", "parameter_dtype", "reduce_dtype", "clip_to"]) | {"force_sum": False}

        def tensors(r):
            whole = {f"{name}.0.0": [9, 9, 9] for name in ("gathered", "returned", "full")}
            parts = {f"{name}.0.0": [9] * (2 - r) for name in ("gradient", "shard")}
            return whole | parts | {"parameter.0": [10 + r, 20 + r, 30 + r], "input.0.0": given(r)} | (more or {})

        answers = self.use("fsdp2", lambda r: plain | options, tensors)
        for entry, _ in answers:
            self.assertEqual(entry["status"], "ok", entry)
        return [held for _, held in answers]

    def test_neither_the_operator_of_the_average_nor_the_units_make_a_difference(self):
        for options in ({"divide_by": 2}, {"force_sum": True}, {"units": "each"}, {"units": "prefetched"}):
            first, second = self.fsdp2(lambda r: [4 * r, 8, 12 * r], **options)
            self.assertEqual(first["gradient.0.0"] + second["gradient.0.0"], [2, 8, 6])

    def test_gradients_are_reduced_in_the_type_of_the_policy(self):
        # 2 and 512 have a place each in bfloat16, and 514 has none.
        given = lambda r: [512, 2, 4] if r else [2, 512, 514]  # noqa: E731
        first, second = self.fsdp2(given, parameter_dtype="bfloat16", reduce_dtype="float32")
        self.assertEqual(first["gradient.0.0"] + second["gradient.0.0"], [257, 257, 258])
        first, second = self.fsdp2(given, reduce_dtype="bfloat16")
        self.assertEqual(first["gradient.0.0"] + second["gradient.0.0"], [256, 256, 258])

    def test_gradients_are_clipped_by_the_norm_of_all_shards(self):
        first, second = self.fsdp2(lambda r: [0, 48, 64], {"norm.0": [0]}, clip_to=40)
        self.assertEqual(first["norm.0"] + second["norm.0"], [80, 80])
        self.assertEqual(first["gradient.0.0"] + second["gradient.0.0"], [0, 24, 32])

    def test_an_optimiser_in_parts_leaves_the_same_on_every_rank(self):
        options = {"parameters": 2, "steps": 1, "rate": 0.5, "view": False, "sleep_ms": 0}

        def tensors(r):
            held = {"parameter.0": [10 + r], "parameter.1": [20, 30], "input.0.0": [4 * r], "input.0.1": [8, 4 * r]}
            return held | {"updated.0.0": [0], "updated.0.1": [0, 0]}

        for entry, held in self.use("zero", lambda r: options, tensors):
            self.assertEqual(entry["status"], "ok", entry)
            self.assertEqual(held["updated.0.0"] + held["updated.0.1"], [9, 16, 29])

    def test_shards_are_those_of_chunk_and_all_together_the_whole(self):
        for rank, held in enumerate(self.fsdp2(lambda r: [4 * r, 8, 12 * r])):
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
        options = {"schedule": "gpipe", "of_stages": 2, "microbatches": 2, "steps": 1, "sleep_ms": 0}

        def tensors(r):
            ends = {"input.0": [1, 2]} if r == 0 else {"target.0": [10, 100], "output.0": [0, 0]}
            stage = {"weight.0": [2 + r], "bias.0": [5 - r], "gradient.0.0.weight": [0], "gradient.0.0.bias": [0]}
            return stage | ends

        answers = self.use("pipeline", lambda r: options | {"stages": [r]}, tensors)
        for entry, _ in answers:
            self.assertEqual(entry["status"], "ok", entry)
        (_, first), (_, last) = answers
        # (x * 2 + 5) * 3 + 4
        self.assertEqual(last["output.0"], [25, 31])
        self.assertEqual(last["gradient.0.0.weight"] + last["gradient.0.0.bias"], [7 * 10 + 9 * 100, 110])
        self.assertEqual(first["gradient.0.0.weight"] + first["gradient.0.0.bias"], [3 * (10 + 200), 3 * 110])

    def test_a_rank_of_a_pipeline_can_have_two_stages(self):
        for schedule in ("looped_bfs", "interleaved_1f1b", "zero_bubble"):
            options = {"schedule": schedule, "of_stages": 4, "microbatches": 2, "steps": 1, "sleep_ms": 0}

            def tensors(r):
                ends = {"input.0": [1, 2]} if r == 0 else {"target.0": [10, 100], "output.0": [0, 0]}
                kept = {f"gradient.0.{k}.{name}": [0] for k in (0, 1) for name in ("weight", "bias")}
                return {"weight.0": [2 + r], "weight.1": [4 + r], "bias.0": [1], "bias.1": [1 - r]} | kept | ends

            answers = self.use("pipeline", lambda r, options=options: options | {"stages": [r, r + 2]}, tensors)
            for entry, _ in answers:
                self.assertEqual(entry["status"], "ok", entry)
            (_, first), (_, last) = answers
            # Of 1: 1 * 2 + 1 = 3, 3 * 3 + 1 = 10, 10 * 4 + 1 = 41, 41 * 5 = 205. Of 2: 5, 16, 65, 325.
            self.assertEqual(last["output.0"], [205, 325], schedule)
            self.assertEqual(last["gradient.0.1.weight"], [41 * 10 + 65 * 100])
            self.assertEqual(first["gradient.0.1.weight"], [5 * (10 * 10 + 16 * 100)])
            self.assertEqual(first["gradient.0.0.bias"], [5 * 4 * 3 * 110])

    def test_a_layer_that_there_is_not_is_an_error(self):
        for entry, _ in self.use("nothing", lambda r: {}, lambda r: {"x": [1]}):
            self.assertEqual(entry["error"]["type"], "LookupError")

    def test_a_result_of_another_shape_is_an_error(self):
        options = {"collective": "all_reduce", "op": "sum", "dim": 0, "root": 0, "splits": None, "wait": True}
        options |= {"backward": False, "traced": False, "calls": 1, "tensors": 1, "sleep_ms": 0}
        tensors = {"input.0.0": [1, 2], "result.0.0": [0, 0, 0]}
        for entry, _ in self.use("functional", lambda r: options, lambda r: tensors):
            self.assertIn("result.0.0 is torch.float32 (2,), not torch.float32 (3,)", entry["error"]["message"])


if __name__ == "__main__":
    unittest.main()
