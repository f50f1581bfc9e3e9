"""`cadre explain`: snapshots, plans for other machines, refusals; rehearsals as run and chat show them.

The snapshots in tests/e2e/snapshots are outputs that a person has read. Where a change of the program means to change
them, write them anew, read the difference, and commit it with the change:

    python3 tests/e2e/explain_test.py --binary build/release/src/cli/cadre --source . --goldens . --update
    git diff tests/e2e/snapshots
"""

import argparse
import json
import math
import os
import pathlib
import resource
import shlex
import sys
import tempfile
import unittest

import cli_support as support
from cli_support import AUTO, FAMILIES, GOLD, CliTest, adapter_flags, demo

SNAPSHOTS = pathlib.Path(__file__).resolve().parent / "snapshots"
DEVICES = ("cpu-avx2", "cpu-avx512", "cpu-avx512-bf16", "cpu-amx", "h100", "h200")
MACHINE = ["--device", "cpu-avx512"]
LORA = ["--max-loras", "8", "--max-lora-rank", "32"]
# One for each kind of expert: gated or not, clamped and biased, latent, with shared experts, with few and many of them.
WITH_LORA = ("deepseek-v3", "gemma-4-26b-a4b", "gpt-oss-20b", "llama-4-scout", "mixtral-8x7b", "nemotron-3-nano",
             "nemotron-3-super", "olmoe-1b-7b", "phi-3.5-moe", "qwen3-30b-a3b")


def spec(name):
    return ["--spec", f"examples/specs/{name}.json"]


def model(family, *adapters):
    flags = ["--model", f"examples/models/{family}"]
    for name in adapters:
        flags += ["--adapter", f"{name}=examples/models/{family}/adapters/{name}"]
    return flags


def rounded(text):
    """The last digits of a time are the mathematics library's."""
    return float(f"{float(text):.4g}")


def cases():
    """Name of a snapshot and the flags whose output it holds. Nothing here may depend on the machine."""
    specs = support.SOURCE / "examples" / "specs"
    for path in sorted(specs.glob("*.json")):
        yield path.stem, [*spec(path.stem), *MACHINE]
    for path in sorted((specs / "layers").glob("*.json")):
        yield f"layers.{path.stem}", [*spec(f"layers/{path.stem}"), *MACHINE]
        yield f"layers.{path.stem}.lora", [*spec(f"layers/{path.stem}"), *MACHINE, *LORA]
    for name in WITH_LORA:
        yield f"{name}.lora", [*spec(name), *MACHINE, *LORA]
    for family in FAMILIES:
        yield family, [*model(family), *MACHINE]
        yield f"{family}.adapters", [*model(family, "spanish", "elements"), *MACHINE, "--tokens", "1,16,512"]
        yield f"{family}.json", [*model(family, "elements"), *MACHINE, "--json"]
    yield "qwen3-30b-a3b.tp4", [*spec("qwen3-30b-a3b"), *MACHINE, *LORA, "--tp", "4", "--verbose"]
    yield "nemotron-3-nano.ep4", [*spec("nemotron-3-nano"), *MACHINE, "--ep", "4", "--batch-invariant", "--verbose"]
    yield "nemotron-3-super.up", [*spec("nemotron-3-super"), *MACHINE, *LORA, "--targets", "gate,up"]
    yield "olmoe-1b-7b.attention", [*spec("olmoe-1b-7b"), *MACHINE, *LORA, "--targets", "attention"]
    yield "gpt-oss-20b.prefer", [*spec("gpt-oss-20b"), *MACHINE, "--backend", "prefer cpu_vector", "--verbose"]
    yield "mixtral-8x7b.require", [*spec("mixtral-8x7b"), *MACHINE, "--backend", "cpu_reference"]
    yield "qwen3-30b-a3b.h100", [*spec("qwen3-30b-a3b"), "--device", "h100", *LORA]


class Snapshots(CliTest):
    update = False

    def text(self, flags):
        here = os.getcwd()
        os.chdir(support.SOURCE)
        try:
            outcome = self.cadre("explain", *flags, code=None, env=AUTO)
        finally:
            os.chdir(here)
        self.assertIn(outcome.code, (0, 6), outcome.err)
        if "--json" in flags:
            self.assertEqual(outcome.err, "")
            return json.dumps(json.loads(outcome.out, parse_float=rounded), indent=1) + "\n"
        self.assertLessEqual(max(map(len, outcome.out.splitlines())), 100)
        return f"$ cadre explain {shlex.join(flags)}\n{outcome.out}{outcome.err}exit status {outcome.code}\n"

    def test_snapshots(self):
        names = set()
        for name, flags in cases():
            path = SNAPSHOTS / f"{name}.txt"
            names.add(path.name)
            text = self.text(flags)
            if self.update:
                path.write_text(text)
            with self.subTest(name):
                self.assertTrue(path.exists(), f"no snapshot {path.name}; see the head of {__file__}")
                self.assertEqual(text, path.read_text(), "see the head of explain_test.py for how to renew snapshots")
        self.assertEqual(names, {path.name for path in SNAPSHOTS.iterdir()})


class Plans(CliTest):
    def explain(self, *flags, **options):
        return json.loads(self.cadre("explain", *flags, "--json", env=AUTO, **options).out)

    def test_document(self):
        value = self.explain("--model", demo(), *adapter_flags("qwen3_moe", "spanish", "elements"), "--tokens", "1,64")
        self.assertEqual(sorted(value), ["device", "layers", "policy"])
        self.assertEqual((value["device"], value["policy"]["origin"]), ("cpu", "default"))
        for layer in value["layers"]:
            self.assertEqual(sorted(layer), ["candidates", "chosen", "layers", "spec", "warnings"])
            self.assertEqual(layer["candidates"][0]["backend"], layer["chosen"])
            for candidate in layer["candidates"]:
                self.assertEqual(sorted(candidate["predicted_us"]), ["1", "64"])
                for refusal in candidate["refusals"]:
                    self.assertEqual(sorted(refusal), ["code", "got", "message", "want"])

    def test_output_is_a_spec(self):
        # What --json prints of the layers can be planned again.
        with tempfile.TemporaryDirectory() as folder:
            for family in FAMILIES:
                value = self.explain("--model", demo(family), *MACHINE)
                path = pathlib.Path(folder) / "spec.json"
                path.write_text(json.dumps({"name": family, "layers": [
                    {"layers": layer["layers"], "spec": layer["spec"]} for layer in value["layers"]]}))
                self.assertEqual(self.explain("--spec", path, *MACHINE), value)

    def test_a_config_says_what_its_layers_say(self):
        name = "nemotron-3-super.json"
        specs = support.SOURCE / "examples" / "specs"
        for flags in (MACHINE, [*MACHINE, *LORA]):
            self.assertEqual(self.explain("--spec", specs / name, *flags),
                             self.explain("--spec", specs / "layers" / name, *flags))

    def test_a_config_is_enough(self):
        for family in FAMILIES:
            flags = [*adapter_flags(family, "spanish", "elements"), *MACHINE]
            self.assertEqual(self.explain("--spec", demo(family) / "config.json", *flags),
                             self.explain("--model", demo(family), *flags))

    def test_one_layer_is_a_spec(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "layer.json"
            path.write_text('{"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128}')
            (layer,) = self.explain("--spec", path)["layers"]
            self.assertEqual((layer["layers"], layer["spec"]["experts"]), ([0], 8))

    def test_reads_no_weights(self):
        # A checkpoint of 36 GiB, all holes: whatever was read of it would count as memory.
        intermediate = 1 << 20
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config = json.loads((demo() / "config.json").read_text())
            small, config["moe_intermediate_size"] = config["moe_intermediate_size"], intermediate
            (folder / "config.json").write_text(json.dumps(config))
            with open(demo() / "model.safetensors", "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            end = 0
            for name, tensor in header.items():
                if name == "__metadata__":
                    continue
                if ".experts." in name:
                    tensor["shape"] = [intermediate if n == small else n for n in tensor["shape"]]
                begin, end = end, end + math.prod(tensor["shape"]) * 2
                tensor["data_offsets"] = [begin, end]
            self.assertGreater(end, 36 << 30)
            text = json.dumps(header).encode()
            with open(folder / "model.safetensors", "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text)
                file.truncate(8 + len(text) + end)
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            value = self.explain("--model", folder)
            self.assertEqual(value["layers"][0]["spec"]["intermediate"], intermediate)
            after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            self.assertLess(after, max(before, 128 << 10), "KiB of the largest child so far")

    def test_plan_is_what_runs(self):
        for family in FAMILIES:
            flags = ["--model", demo(family), *adapter_flags(family, "elements")]
            chosen = {layer["chosen"] for layer in self.explain(*flags)["layers"]}
            (answer,) = self.answers(*flags, "--chat", GOLD, env=AUTO)
            self.assertEqual(set(answer["backend"].split(", ")), chosen)

    def test_devices(self):
        for device in DEVICES:
            value = self.explain("--model", demo(), "--device", device, code=6 if device.startswith("h") else 0)
            self.assertEqual(value["device"], device)
        waived = [w["code"] for c in value["layers"][0]["candidates"] for w in c.get("waived", [])]
        self.assertEqual(waived, [])
        value = self.explain("--model", demo(), "--device", "cpu-amx")
        self.assertEqual({w["code"] for c in value["layers"][0]["candidates"] for w in c["waived"]}, {"device_absent"})

    def test_demand(self):
        def lines(*flags):
            text = self.cadre("explain", *spec_flags, *flags, env=AUTO).out
            return [line.strip() for line in text.splitlines() if line.startswith("  adapters:")]

        spec_flags = ["--spec", support.SOURCE / "examples" / "specs" / "nemotron-3-nano.json"]
        self.assertEqual(lines(), ["adapters: none on these layers"])
        self.assertEqual(lines("--max-loras", "4"), ["adapters: up to 4, rank up to 16, on up down"])
        self.assertEqual(lines("--max-loras", "4", "--targets", "attention"), ["adapters: none on these layers"])
        self.assertEqual(lines("--max-loras", "4", "--max-lora-rank", "8", "--targets", "gate,down"),
                         ["adapters: up to 4, rank up to 8, on down"])
        spec_flags = ["--model", demo(), *adapter_flags("qwen3_moe", "elements")]
        (without,), (more,) = lines(), lines("--max-loras", "3", "--max-lora-rank", "64", "--targets", "experts")
        self.assertRegex(without, "up to 1,")
        self.assertEqual(more, "adapters: up to 3, rank up to 64, on gate up down")

    def test_origin(self):
        flags = ["explain", "--model", demo(), "--json"]
        for extra, variable, want in ((["--backend", "auto"], "exclude cpu_vector", "--backend"),
                                      ([], "exclude cpu_vector", "CADRE_MOE_BACKEND"), ([], "", "default")):
            value = json.loads(self.cadre(*flags, *extra, env={"CADRE_MOE_BACKEND": variable}).out)
            self.assertEqual(value["policy"]["origin"], want)
        text = self.cadre("explain", "--model", demo(), env={"CADRE_MOE_BACKEND": "exclude cpu_vector"}).out
        self.assertRegex(text, r"(?m)^policy +exclude cpu_vector \(CADRE_MOE_BACKEND\)$")
        self.assertRegex(text, r"(?m)^    cpu_vector +refused .*excluded")


class Refusals(CliTest):
    def test_flags(self):
        def refused(code, pattern, *flags):
            self.refused(code, pattern, "explain", *flags)

        qwen = ["--spec", support.SOURCE / "examples" / "specs" / "qwen3-30b-a3b.json"]
        refused("usage", "want one of --model, --spec")
        refused("usage", "want one of --model, --spec; got --model and --spec", "--model", demo(), *qwen)
        refused("usage", "unknown device 'h1000', want one of: .*" + ", ".join(DEVICES), *qwen, "--device", "h1000")
        refused("usage", "--targets has 'gates', want some of: gate, up", *qwen, "--max-loras", "1", "--targets", "gates")
        refused("usage", "--targets goes with --max-loras", *qwen, "--targets", "gate")
        refused("usage", "--max-lora-rank goes with --max-loras", *qwen, "--max-lora-rank", "8")
        layers = ["--spec", support.SOURCE / "examples" / "specs" / "layers" / "nemotron-3-super.json"]
        refused("usage", "adapters need the model they are for", *layers, *adapter_flags("qwen3_moe", "elements"))
        refused("invalid_file", r"error: adapter 'elements': tensor .* is BF16 \[8, 192\], want \[8, 2048\]: "
                "adapter of another model", *qwen, *adapter_flags("qwen3_moe", "elements"))
        refused("usage", "--tp is '0'", *qwen, "--tp", "0")
        refused("usage", "number of tokens is 0, want 1 to", *qwen, "--tokens", "0,8")
        refused("usage", "layers 0-47: .*did you mean 'cpu_vector'", *qwen, "--backend", "cpu_vectr")
        refused("not_found", "absent.json", "--spec", "absent.json")
        refused("not_found", "absent", "--model", "absent")
        # With fewer slots than adapters they take turns.
        self.assertIn("up to 1", self.cadre("explain", "--model", demo(), *adapter_flags("qwen3_moe", "elements", "spanish"),
                                            "--max-loras", "1").out)
        self.refused("usage", "--rehearse is 'maybe', want off, quick or full", "run", "--model", demo(), "--prompt",
                     "x", "--rehearse", "maybe")

    def test_configs(self):
        for text, code, pattern in (
                ('{"model_type": "qwen3_moe"}', "invalid_file", "'hidden_size' is missing"),
                ('{"model_type": "qwen9_moe", "hidden_size": 8, "vocab_size": 9}', "unsupported",
                 "'qwen9_moe' is not a known"),
                ('{"model_type": 3}', "invalid_file", "model_type")):
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "config.json"
                path.write_text(text)
                line = self.refused(code, pattern, "explain", "--spec", path)
                self.assertIn(str(path), line)

    def test_files(self):
        layer = '{"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128}'
        for text, pattern in (
                ("", "spec.json"),
                ("[]", "spec.json"),
                ('{"experts": 8}', "top_k"),
                (layer.replace("256", "-1"), "hidden"),
                (layer.replace("top_k", "topk"), "'topk' is unknown"),
                ('{"layers": []}', "'layers' is empty"),
                ('{"layers": [3]}', "want objects"),
                ('{"layers": [{"layers": [], "spec": %s}]}' % layer, "is empty, want layer indices"),
                ('{"layers": [{"layers": [-1], "spec": %s}]}' % layer, "has -1"),
                ('{"layers": [{"layers": [0, 0], "spec": %s}]}' % layer, "layer 0 a second time"),
                ('{"layers": [{"layers": [0], "specs": %s}]}' % layer, "specs' is unknown"),
                ('{"layers": [{"layers": [0]}]}', "spec"),
                ('{"title": 1, "layers": []}', "title' is unknown")):
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "spec.json"
                path.write_text(text)
                line = self.refused("invalid_file", pattern, "explain", "--spec", path)
                self.assertIn(str(path), line)


class Rehearsal(CliTest):
    def run_verbose(self, *flags):
        outcome = self.cadre("run", "--model", demo(), "--chat", GOLD, "--max-tokens", "2", "--verbose", *flags,
                             env=AUTO)
        (line,) = [line for line in outcome.err.splitlines() if line.startswith("cadre: layers 0-3: ")]
        return line, outcome.err.splitlines()[-1]

    def test_run(self):
        line, last = self.run_verbose()
        self.assertRegex(line, r"cpu_\w+ by auto \(default\), rehearsed in [\d.]+ [mu]?s, error \S+ of a row's norm, "
                               r"8 rows took [\d.]+ [mu]s$")
        self.assertRegex(last, r"loaded in [\d.]+ s \(rehearsal [\d.]+ s\)$")
        line, last = self.run_verbose("--rehearse", "full")
        self.assertRegex(line, r", 8 rows took .*, 512 rows took ")
        line, last = self.run_verbose("--rehearse", "off")
        self.assertTrue(line.endswith("not rehearsed"), line)
        self.assertNotIn("rehearsal", last)

    def test_chat(self):
        for flags, wanted in (([], True), (["--rehearse", "off"], False)):
            outcome = self.cadre("chat", "--model", demo(), *flags, stdin="/explain\n", env=AUTO)
            self.assertEqual("rehearsed in" in outcome.out, wanted)
            self.assertLessEqual(max(map(len, outcome.out.splitlines())), 100)


class Check(CliTest):
    """`cadre adapter check` tells an adapter that was refused from one that is not there."""

    def check(self, adapter, **options):
        return self.cadre("adapter", "check", "--model", demo(), "--adapter", adapter, "--json", **options)

    def test_usable_is_always_there(self):
        value = json.loads(self.check(demo() / "adapters" / "elements").out)
        self.assertIs(value["usable"], True)
        value = json.loads(self.check(demo("nemotron_h") / "adapters" / "elements", code=1).out)
        self.assertIs(value["usable"], False)
        self.assertTrue(value["code"] and value["error"])

    def test_not_there(self):
        command = ["adapter", "check", "--model", demo(), "--adapter"]
        self.refused("not_found", "absent is not there; want a folder", *command, "absent")
        self.refused("usage", "is a file, want a folder", *command, demo() / "config.json")
        with tempfile.TemporaryDirectory() as folder:
            self.refused("not_found", "adapter_config.json", *command, folder)
        # Options are looked at first: nothing is opened for a wrong one.
        self.refused("usage", "orientation", "adapter", "check", "--model", "absent", "--adapter",
                     "absent,orientation=sideways")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("binary", "source", "goldens"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--update", action="store_true")
    known, rest = parser.parse_known_args()
    support.configure(known.binary, known.source, known.goldens)
    Snapshots.update = known.update
    if known.update:
        SNAPSHOTS.mkdir(exist_ok=True)
        for old in SNAPSHOTS.iterdir():
            old.unlink()
        rest = ["Snapshots"]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
