"""`cadre synth` and `--dummy-weights`: random models of every family, made, run and served by the program itself."""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time
import unittest

import cli_support as support
import serve_support
from cli_support import CliTest, read_safetensors, start

LAYOUTS = ("stacked", "per_expert", "megatron", "sglang", "tinker")
QWEN = "examples/specs/qwen3-30b-a3b.json"
GIB = 1 << 30


def spec(path):
    return support.SOURCE / path


class SynthTest(CliTest):
    def families(self):
        line = self.refused("usage", "--family: ", "synth", "--family", "nonsense", "--out", "x")
        names = line.split("want one of: ")[1].split(", ")
        document = (support.SOURCE / "docs" / "families.md").read_text()
        first_table = document.split("\n## ")[0]
        self.assertEqual(sorted(names), sorted(re.findall(r"^\| `(\w+)` \|", first_table, re.M)))
        return names

    def need_disk(self, folder, size):
        free = shutil.disk_usage(folder).free
        if free < size:
            self.skipTest(f"{folder} has {free / GIB:.1f} GiB left, want {size / GIB:.0f}")

    def peak(self, *args):
        """Largest resident memory of a run of the program, in bytes, and what it printed."""
        process = start(*args)
        out = process.stdout.read().decode()
        err = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.returncode, 0, err)
        return usage.ru_maxrss * 1024, out


class Families(SynthTest):
    def family(self, name, folder):
        model = folder / name
        made = self.cadre("synth", "--family", name, "--out", model, "--adapters", 2, "--rank", 3, "--seed", 5).out
        head, *adapters = made.splitlines()
        self.assertRegex(head, rf"^{re.escape(str(model))}: \d+ tensors, [\d.]+ MiB, 1 file, [1-9]\d* MoE layers$")
        self.assertEqual(adapters, [f"{model}/adapters/adapter_0", f"{model}/adapters/adapter_1"])
        flags = ["--adapter", f"one={adapters[0]}", "--adapter", f"two={adapters[1]}"]
        answers = self.answers("--model", model, *flags, "--use", "all", "--chat", "Hello", "--max-tokens", 6,
                               "--ignore-eos")
        self.assertEqual([len(answer["ids"]) for answer in answers], [6, 6, 6])
        self.assertEqual(len({tuple(answer["ids"]) for answer in answers}), 3, "every adapter changes the answer")
        logits = []
        for adapter in ([], ["--adapter", adapters[0]]):
            file = folder / "logits.safetensors"
            self.cadre("logits", "--model", model, *adapter, "--ids", "5,300,17,2", "--out", file)
            shape, values = read_safetensors(file)["logits"]
            self.assertEqual(shape[0], 4)
            logits.append(values)
        self.assertGreater(support.relative_error(logits[1], logits[0]), 0.01)
        # Adapters are made for the names and sizes of a model, not for its numbers: those of any seed fit.
        for layout in LAYOUTS:
            other = folder / f"{name}-{layout}"
            self.cadre("synth", "--family", name, "--out", other, "--adapters", 1, "--rank", 2, "--layout", layout)
            check = json.loads(self.cadre("adapter", "check", "--model", model, "--adapter",
                                          other / "adapters" / "adapter_0", "--json").out)
            self.assertEqual((check["usable"], check["left_over"], check["max_rank"]), (True, [], 2), layout)
            shutil.rmtree(other)

    def test_every_family(self):
        folder = self.temp_dir()
        names = self.families()
        self.assertGreaterEqual(len(names), 24)
        for name in names:
            with self.subTest(name):
                self.family(name, folder)


class Dummy(SynthTest):
    def test_run_and_serve(self):
        for name in self.families():
            with self.subTest(name):
                temp = self.temp_dir()
                answer = self.answer("--dummy-weights", "--model", name, "--chat", "Hello", "--max-tokens", 4,
                                     "--ignore-eos", env={"TMPDIR": str(temp)})
                self.assertEqual(len(answer["ids"]), 4)
                self.assertEqual(list(temp.iterdir()), [])
                with serve_support.Server("--dummy-weights", "--model", name, env={"TMPDIR": str(temp)}) as server:
                    reply = server.post("/v1/completions", {"model": name, "prompt": "Hello", "max_tokens": 3,
                                                            "ignore_eos": True})
                    self.assertEqual(reply["usage"]["completion_tokens"], 3)
                self.assertEqual(list(temp.iterdir()), [])

    def test_is_what_synth_writes(self):
        folder, temp = self.temp_dir(), self.temp_dir()
        self.cadre("synth", "--family", "qwen3_moe", "--layers", 1, "--out", folder / "model")
        flags = ["--prompt-ids", "5,300,17", "--max-tokens", 8, "--ignore-eos"]
        written = self.answer("--model", folder / "model", *flags)["ids"]
        env = {"TMPDIR": str(temp)}
        for model in (["qwen3_moe", "--layers", 1], [folder / "model"], [folder / "model" / "config.json"]):
            self.assertEqual(self.answer("--dummy-weights", "--model", *model, *flags, env=env)["ids"], written, model)
        self.assertEqual(list(temp.iterdir()), [])

    def test_a_model_without_experts_has_no_backend(self):
        # The first layer of this family is dense.
        config = spec("src/synth/families/deepseek_v3.json")
        run = ["run", "--dummy-weights", "--model", config, "--prompt", "x", "--max-tokens", 2]
        self.assertRegex(self.cadre(*run, "--layers", 1).err.splitlines()[-1], r"tok/s, no MoE layers, loaded in ")
        self.assertRegex(self.cadre(*run).err.splitlines()[-1], r"tok/s, backend cpu_reference, loaded in ")

    def test_ctrl_c_takes_the_folder_away(self):
        temp = self.temp_dir()
        process = start("run", "--dummy-weights", "--model", "qwen3_moe", "--prompt", "x", "--max-tokens", 4000,
                        "--max-model-len", 4096, "--ignore-eos", env=support.environment(TMPDIR=str(temp)))
        os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(list(temp.iterdir()), [])

    def test_signals_while_loading_take_the_folder_away(self):
        large = self.temp_dir() / "large.json"
        config = json.loads(spec("examples/specs/qwen3-30b-a3b.json").read_text())
        large.write_text(json.dumps({**config, "num_experts": 16}))
        for number in (signal.SIGINT, signal.SIGTERM):
            temp = self.temp_dir()
            process = start("run", "--dummy-weights", "--model", large, "--layers", 1, "--prompt", "x",
                            env=support.environment(TMPDIR=str(temp)))
            while not list(temp.glob("*/*/tokenizer.json")) and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(number)
            process.communicate(timeout=support.TIMEOUT_S)
            self.assertEqual(process.returncode, 130 if number == signal.SIGINT else -signal.SIGTERM)
            self.assertEqual(list(temp.iterdir()), [])


class Wrong(SynthTest):
    def test_flags(self):
        out = self.temp_dir() / "model"

        def refused(code, pattern, *flags):
            self.refused(code, pattern, "synth", *flags)
            self.assertFalse(out.exists())

        family = ["--family", "qwen3_moe"]
        refused("usage", "want one of --spec, --family", "--out", out)
        refused("usage", "--family: model_type 'qwen9' is not a known family, want one of: ", "--family", "qwen9",
                "--out", out)
        refused("not_found", "absent.json", "--spec", "absent.json", "--out", out)
        refused("usage", "--out DIR is missing", *family)
        refused("usage", "--out DIR is missing", *family, "--out", "")
        refused("usage", "--layers is 3, want 1 to 2", *family, "--layers", 3, "--out", out)
        refused("usage", "--layers is '0'", *family, "--layers", 0, "--out", out)
        refused("usage", "nonsense.*" + ", ".join(LAYOUTS), *family, "--adapters", 1, "--layout", "nonsense", "--out",
                out)
        refused("usage", "--rank goes with --adapters", *family, "--rank", 8, "--out", out)
        refused("usage", "--layout goes with --adapters", *family, "--layout", "tinker", "--out", out)
        refused("usage", "--rank is '0'", *family, "--adapters", 1, "--rank", 0, "--out", out)
        refused("usage", "--seed", *family, "--seed", "x", "--out", out)
        refused("usage", "--max-shard-size", *family, "--max-shard-size", "much", "--out", out)
        run = ["run", "--model", "qwen3_moe", "--prompt", "x"]
        self.refused("usage", "--layers goes with --dummy-weights", *run, "--layers", 1)
        self.refused("not_found", "families are .*qwen3_moe", "run", "--dummy-weights", "--model", "absent", "--prompt",
                     "x")

    def test_folders(self):
        folder = self.temp_dir()
        family = ["--family", "qwen3_moe", "--layers", 1]
        self.cadre("synth", *family, "--out", folder / "model")
        before = {path.name: path.stat().st_mtime_ns for path in (folder / "model").iterdir()}
        self.refused("usage", "is not empty", "synth", *family, "--out", folder / "model")
        self.assertEqual(before, {path.name: path.stat().st_mtime_ns for path in (folder / "model").iterdir()})
        file = folder / "file"
        file.write_text("x")
        self.refused("usage", "cannot create folder|in its place", "synth", *family, "--out", file)
        self.refused("usage", "cannot create folder", "synth", *family, "--out", file / "model")
        self.assertEqual(file.read_text(), "x")
        self.refused("usage", "TMPDIR", "run", "--dummy-weights", "--model", "qwen3_moe", "--prompt", "x",
                     env={"TMPDIR": str(folder / "absent")})

    def test_a_disk_without_the_room(self):
        out = self.temp_dir() / "model"
        if shutil.disk_usage(out.parent).free > 900 * GIB:
            self.skipTest("the disk has room for all that there is to write")
        kimi = spec("examples/specs/kimi-k2.json")
        self.refused("limit", "the model takes .* use fewer layers", "synth", "--spec", kimi, "--out", out)
        self.assertEqual(list(out.iterdir()) if out.exists() else [], [])


class Large(SynthTest):
    """One layer of Qwen3-30B-A3B, and the embedding and head of its 151,936 tokens: 2.3 GiB."""

    def test_memory(self):
        folder = self.temp_dir()
        self.need_disk(folder, 6 * GIB)
        model, logits = folder / "model", folder / "logits.safetensors"
        peak, out = self.peak("synth", "--spec", spec(QWEN), "--layers", 1, "--out", model)
        self.assertRegex(out, r", 2\.\d GiB, 1 file, 1 MoE layers")
        self.assertLess(peak, 256 << 20)
        peak, _ = self.peak("logits", "--model", model, "--ids", "1,2,3", "--out", logits)
        self.assertLess(peak, 2 * GIB)
        shape, values = read_safetensors(logits)["logits"]
        self.assertEqual(shape, [3, 151936])
        self.assertGreater(max(values) - min(values), 1)

    def test_ctrl_c_leaves_nothing(self):
        folder = self.temp_dir()
        self.need_disk(folder, 10 * GIB)
        model = folder / "model"
        process = start("synth", "--spec", spec(QWEN), "--layers", 4, "--out", model)
        deadline = time.monotonic() + support.TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            if model.exists() and any(path.stat().st_size > 1 << 20 for path in model.iterdir()):
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual((process.returncode, out), (130, b""), err)
        self.assertRegex(err.decode(), r"^cadre: interrupted; nothing is left of the model$")
        self.assertFalse(model.exists())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("binary", "source", "goldens"):
        parser.add_argument("--" + option, required=True)
    known, rest = parser.parse_known_args()
    support.configure(known.binary, known.source, known.goldens)
    serve_support.BINARY, serve_support.SOURCE = support.BINARY, pathlib.Path(known.source).resolve()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
