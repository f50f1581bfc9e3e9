"""Models, adapters and prompts that cannot be honoured: each with its own error and exit status."""

import json
import struct

from cli_support import CliTest, adapter_flags, demo


class BadInput(CliTest):
    def run_on(self, model, *flags):
        return ["run", "--model", model, "--prompt-ids", "1,2,3", "--max-tokens", "1", *flags]

    def replaced(self, name, content, family="qwen3_moe"):
        model = self.model_copy(family, without=(name,))
        if isinstance(content, bytes):
            (model / name).write_bytes(content)
        return model

    def header(self, family="qwen3_moe"):
        data = (demo(family) / "model.safetensors").read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        return json.loads(data[8 : 8 + size]), data[8 + size :]

    def with_header(self, header, data):
        text = json.dumps(header).encode()
        return self.replaced("model.safetensors", struct.pack("<Q", len(text)) + text + data)

    # ---- folders and files ----

    def test_no_such_folder(self):
        self.refused("not_found", "absent", *self.run_on("absent"))
        self.refused("not_found", "absent", "explain", "--model", "absent")
        self.refused("not_found", "absent", "chat", "--model", "absent")
        self.refused("not_found", r"config\.json", *self.run_on(self.temp_dir()))
        self.refused("not_found", "absent.txt", "run", "--model", demo(), "--file", "absent.txt")

    def test_no_weights(self):
        self.refused("not_found", "safetensors", *self.run_on(self.replaced("model.safetensors", None)))

    def test_truncated_weights(self):
        data = (demo() / "model.safetensors").read_bytes()
        for size in (0, 5, 8, 1000, len(data) // 2, len(data) - 1):
            model = self.replaced("model.safetensors", data[:size])
            self.refused("invalid_file", r"model\.safetensors", *self.run_on(model))

    def test_lying_headers(self):
        header, data = self.header()
        name = next(n for n in header if n != "__metadata__")
        for change in ({"shape": [1 << 40, 1 << 40]}, {"data_offsets": [0, 1 << 60]}, {"dtype": "BF15"},
                       {"shape": "x"}):
            lying = dict(header)
            lying[name] = {**header[name], **change}
            outcome = self.cadre(*self.run_on(self.with_header(lying, data)), code=None)
            self.assertIn(outcome.code, (4, 5), outcome.err)
            self.assertIn("model.safetensors", outcome.err)
        huge = struct.pack("<Q", 1 << 62) + b"{}"
        self.refused("invalid_file", r"model\.safetensors", *self.run_on(self.replaced("model.safetensors", huge)))

    def test_missing_and_extra_tensors(self):
        header, data = self.header()
        name = max((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"][1])
        renamed = {("model.odd.weight" if key == name else key): value for key, value in header.items()}
        outcome = self.cadre(*self.run_on(self.with_header(renamed, data)), code=4)
        self.assertTrue(name in outcome.err or "model.odd.weight" in outcome.err, outcome.err)

    def test_wrong_shape(self):
        header, data = self.header()
        name = next(n for n in header if n != "__metadata__" and len(header[n]["shape"]) == 2)
        header[name]["shape"] = header[name]["shape"][::-1]
        if header[name]["shape"][0] != header[name]["shape"][1]:
            outcome = self.cadre(*self.run_on(self.with_header(header, data)), code=4)
            self.assertIn(name, outcome.err)

    def test_weights_that_are_not_numbers(self):
        header, data = self.header()
        name = next(n for n in header if n.endswith("norm.weight"))
        begin = header[name]["data_offsets"][0]
        broken = bytearray(data)
        broken[begin : begin + 2] = b"\xc0\x7f"  # BF16 NaN
        model = self.with_header(header, bytes(broken))
        self.refused("invalid_file", name.replace(".", r"\."), *self.run_on(model, "--check-weights"))

    def test_missing_shard(self):
        model = self.replaced("model.safetensors", None)
        header, _ = self.header()
        index = {"metadata": {}, "weight_map": {n: "model-00001-of-00002.safetensors" for n in header}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.refused("not_found", r"model-00001-of-00002\.safetensors", *self.run_on(model))

    # ---- configs ----

    def patched(self, **fields):
        model = self.model_copy()
        self.patched_json(model / "config.json", **fields)
        return model

    def test_unknown_family_lists_the_known(self):
        self.refused("unsupported", "qwen9.*(known|want).*qwen3_moe", *self.run_on(self.patched(model_type="qwen9")))

    def test_unknown_activation_and_rope(self):
        self.refused("unsupported", "swoosh", *self.run_on(self.patched(hidden_act="swoosh")))
        rope = {"rope_type": "spiral", "rope_theta": 10000.0}
        self.refused("unsupported", "spiral", *self.run_on(self.patched(rope_parameters=rope)))

    def test_quantised_checkpoints_are_refused_by_name(self):
        self.refused("unsupported", "gptq", *self.run_on(self.patched(quantization_config={"quant_method": "gptq"})))

    def test_malformed_configs(self):
        for content in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 20):
            self.refused("invalid_file", r"config\.json", *self.run_on(self.replaced("config.json", content)))
        self.refused("limit", r"config\.json.*deep", *self.run_on(self.replaced("config.json", b"[" * 100000)))
        self.refused("invalid_file", r"config\.json.*num_local_experts|config\.json.*experts",
                     *self.run_on(self.patched(num_local_experts=-3)))

    def test_malformed_tokenizers(self):
        for content in (b"", b"{}", b"[1]"):
            model = self.replaced("tokenizer.json", content)
            self.refused("invalid_file", r"tokenizer\.json", "run", "--model", model, "--prompt", "x")

    def test_template_that_cannot_be_used(self):
        model = self.replaced("chat_template.jinja", b"{% for m in %}")
        outcome = self.cadre("run", "--model", model, "--chat", "x", code=None)
        self.assertIn(outcome.code, (4, 5))
        self.assertIn("chat_template", outcome.err)

    # ---- prompts ----

    def test_stop_texts_need_a_tokenizer(self):
        model = self.model_copy(without=("tokenizer.json",))
        self.refused("usage", r"--stop ends an answer by its text, and .* has no tokenizer\.json",
                     *self.run_on(model, "--stop", "x"))

    def test_ids_out_of_range(self):
        for ids in ("4096", "1,2,1000000", "-1"):
            self.refused("usage", ids.split(",")[-1], "run", "--model", demo(), "--prompt-ids", ids)
        self.refused("usage", "not a token id", "run", "--model", demo(), "--prompt-ids", "99999999999")

    def test_prompt_too_long(self):
        ids = ",".join(["5"] * 512)
        self.refused("limit", "512", "run", "--model", demo(), "--prompt-ids", ids)
        self.refused("limit", "16", "run", "--model", demo(), "--prompt-ids", ",".join(["5"] * 16), "--max-model-len",
                     "16")

    def test_the_context_ends_an_answer(self):
        answer = self.answer("--model", demo(), "--prompt-ids", "5,6,7,8", "--max-model-len", "16", "--ignore-eos")
        self.assertEqual((answer["finish_reason"], len(answer["ids"])), ("length", 12))

    # ---- adapters ----

    def adapter_copy(self, without=()):
        copy = self.temp_dir()
        for path in (demo() / "adapters" / "elements").iterdir():
            if path.name not in without:
                (copy / path.name).symlink_to(path)
        return copy

    def patched_adapter(self, **fields):
        adapter = self.adapter_copy()
        self.patched_json(adapter / "adapter_config.json", **fields)
        return adapter

    def refused_adapter(self, codes, pattern, adapter):
        outcome = self.cadre(*self.run_on(demo(), "--adapter", f"x={adapter}"), code=None)
        self.assertIn(outcome.code, codes, outcome.err)
        self.assertRegex(outcome.err, r"\Acadre: error: [^\n]*\n\Z")
        self.assertRegex(outcome.err, pattern)

    def test_adapter_of_another_model(self):
        self.refused_adapter((4, 5), "elements|tensor|module|shape", demo("nemotron_h") / "adapters" / "elements")

    def test_adapter_folders(self):
        self.refused_adapter((3,), "absent", "absent")
        self.refused_adapter((3,), "adapter_config", self.adapter_copy(without=("adapter_config.json",)))
        self.refused_adapter((3,), "adapter_model", self.adapter_copy(without=("adapter_model.safetensors",)))

    def test_pickles(self):
        adapter = self.adapter_copy(without=("adapter_model.safetensors",))
        (adapter / "adapter_model.bin").write_bytes(b"\x80\x02}q\x00.")
        self.refused_adapter((5,), r"adapter_model\.bin|pickle", adapter)

    def test_what_adapters_cannot_ask(self):
        self.refused_adapter((5,), "(?i)dora", self.patched_adapter(use_dora=True))
        self.refused_adapter((5,), "bias", self.patched_adapter(bias="all"))
        self.refused_adapter((4, 5), r"\br\b|rank", self.patched_adapter(r=0))
        self.refused_adapter((5,), "modules_to_save|score", self.patched_adapter(modules_to_save=["score"]))

    def test_an_error_names_its_adapter_once(self):
        outcome = self.cadre(*self.run_on(demo(), "--adapter", "gold=absent"), code=3)
        self.assertEqual(outcome.err.count("adapter 'gold'"), 1, outcome.err)

    def test_saved_modules_that_are_not_in_the_file(self):
        self.refused_adapter((4,), "modules_to_save lists 'lm_head', and .*holds no tensor of it",
                             self.patched_adapter(modules_to_save=["lm_head"]))

    def test_an_adapter_of_scale_zero_is_told(self):
        adapter = self.patched_adapter(lora_alpha=0)
        outcome = self.cadre(*self.run_on(demo(), "--adapter", f"x={adapter}"))
        self.assertRegex(outcome.err, r"note: adapter 'x': the scale is 0 in .*lora_alpha is 0.*changes nothing there")

    def test_truncated_adapter(self):
        adapter = self.adapter_copy(without=("adapter_model.safetensors",))
        data = (demo() / "adapters" / "elements" / "adapter_model.safetensors").read_bytes()
        (adapter / "adapter_model.safetensors").write_bytes(data[: len(data) // 2])
        self.refused_adapter((4,), r"adapter_model\.safetensors", adapter)

    def test_adapter_options(self):
        self.refused("usage", "sideways", *self.run_on(
            demo(), "--adapter", f"x={demo()}/adapters/elements,orientation=sideways"))
        self.refused("usage", "colour", *self.run_on(demo(), "--adapter", f"x={demo()}/adapters/elements,colour=red"))
        self.cadre(*self.run_on(demo(), *adapter_flags("qwen3_moe", "elements")[:1],
                                f"x={demo()}/adapters/elements,check_weights=true"))
