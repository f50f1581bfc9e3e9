#!/usr/bin/env python3
"""Tests of the cadre program, from its command line.

usage: cli_test.py --binary CADRE --source DIR --goldens DIR [unittest arguments]
"""

import argparse
import json
import re
import sys
import unittest

import cli_support as support
from cli_bad_input import BadInput  # noqa: F401: found by unittest
from cli_support import ADAPTERS, AUTO, FAMILIES, GOLD, CliTest, adapter_flags, demo
from cli_terminal import Interrupt, Streams, Terminal  # noqa: F401


class Overrides(CliTest):
    def test_change_the_model_and_are_said(self):
        run = ["run", "--model", demo(), "--chat", GOLD, "--max-tokens", "8", "--temperature", "0"]
        plain = self.cadre(*run)
        self.assertNotIn("override", plain.err)
        changed = self.cadre(*run, "--hf-overrides", '{"norm_topk_prob": false, "max_position_embeddings": 300}')
        self.assertRegex(changed.err, r"note: config override: norm_topk_prob = false \(was true\), "
                                      r"max_position_embeddings = 300 \(was \d+\)")
        self.assertNotEqual(changed.out, plain.out)
        outcome = self.cadre("explain", "--model", demo(), "--hf-overrides", '{"norm_topk_prob": false}')
        self.assertIn("note: config override: norm_topk_prob = false (was true)", outcome.err)
        outcome = self.cadre("adapter", "check", "--model", demo(), "--adapter", demo() / "adapters" / "elements",
                             "--hf-overrides", '{"num_hidden_layers": "many"}', code=4)
        self.assertRegex(outcome.err, r"config override: num_hidden_layers = \"many\".*'num_hidden_layers'")

    def test_must_be_an_object_that_the_family_understands(self):
        run = ["run", "--model", demo(), "--prompt", "x"]
        self.refused("usage", r"--hf-overrides is an array, want a JSON object", *run, "--hf-overrides", "[1]")
        self.refused("usage", r"--hf-overrides", *run, "--hf-overrides", "rope_theta=1")
        self.refused("usage", r"--hf-overrides: nothing reads 'attn_logit_softcapping' \(50.0\) of a model of type "
                     r"qwen3_moe", *run, "--hf-overrides", '{"attn_logit_softcapping": 50.0}')


class Usage(CliTest):
    def test_version(self):
        self.assertRegex(self.cadre("--version").out, r"\Acadre \d+\.\d+\.\d+\n\Z")
        self.refused("usage", r"unexpected 'run', want nothing after --version", "--version", "run")

    def test_help_of_every_command(self):
        text = self.cadre("--help").out
        commands = re.findall(r"^  (\w+)  +", text.split("Commands:")[1], re.M)
        self.assertEqual(sorted(commands), ["adapter", "bench", "chat", "explain", "keys", "logits", "run", "serve",
                                            "synth", "tokenize"])
        for command in (["run"], ["chat"], ["explain"], ["adapter"], ["adapter", "check"], ["tokenize"], ["logits"],
                        ["serve"], ["bench", "serve"], ["keys", "new"], ["synth"]):
            text = self.cadre(*command, "--help").out
            self.assertIn("Usage: cadre " + " ".join(command), text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_unknown_flag_suggests_the_nearest(self):
        self.refused("usage", r"unknown flag '--modle', did you mean '--model'\?", "run", "--modle", "x")
        self.refused("usage", r"'--max-token', did you mean '--max-tokens'", "run", "--max-token=3")
        self.refused("usage", r"unknown flag '--zzzzzzzz';", "run", "--zzzzzzzz", "x")

    def test_unknown_command_suggests_the_nearest(self):
        self.refused("usage", r"unknown command 'rnu', did you mean 'run'\?", "rnu")
        self.refused("usage", r"unknown command 'chekc', did you mean 'check'", "adapter", "chekc")
        self.refused("usage", r"want a command: run, ")
        self.refused("usage", r"want a command: check", "adapter")

    def test_flags_that_are_missing_doubled_or_without_a_value(self):
        self.refused("usage", r"--model DIR\|ORG/NAME is missing", "run", "--prompt", "x")
        self.refused("usage", r"--prompt needs a value", "run", "--model", "x", "--prompt")
        self.refused("usage", r"--seed is given 2 times", "run", "--model", "x", "--seed", "1", "--seed", "2")
        self.refused("usage", r"--json takes no value", "run", "--json=false", "--model", "x", "--prompt", "x")
        self.refused("usage", r"unexpected 'more'", "run", "--model", "x", "--prompt", "two", "more")
        self.refused("usage", r"--out FILE.safetensors is missing", "logits", "--model", "x", "--ids", "1")

    def test_exactly_one_prompt(self):
        model = ["run", "--model", demo()]
        self.refused("usage", r"want one of --prompt, --chat, --prompt-ids, --file; got none", *model)
        self.refused("usage", r"got --prompt and --chat", *model, "--prompt", "a", "--chat", "b")
        self.refused("usage", r"--system goes with --chat", *model, "--prompt", "a", "--system", "b")
        self.refused("usage", r"want one of --ids, --prompts", "logits", "--model", demo(), "--out", "x")
        self.refused("usage", r"want one of --text, --cases, --decode", "tokenize", "--model", demo())

    def test_values(self):
        run = ["run", "--model", demo(), "--prompt", "x"]
        self.refused("usage", r"--max-tokens is 'many', want an integer from 1 ", *run, "--max-tokens", "many")
        self.refused("usage", r"--max-tokens is '0'", *run, "--max-tokens", "0")
        self.refused("usage", r"--threads is '0', want an integer from 1 to 1024", *run, "--threads", "0")
        self.refused("usage", r"--temperature is 'nan'", *run, "--temperature", "nan")
        self.refused("usage", r"--seed is '-1'", *run, "--seed", "-1")
        self.refused("usage", r"--logit-bias is '3', want ID=BIAS", *run, "--logit-bias", "3")
        self.refused("usage", r"--prompt-ids: 'x' is not a token id", "run", "--model", demo(), "--prompt-ids", "1,x")

    def test_adapters_by_name(self):
        run = ["run", "--model", demo(), "--prompt", "x"]
        two = adapter_flags("qwen3_moe", "spanish", "jargon")
        self.refused("usage", r"want NAME=DIR", *run, "--adapter", "adapters/spanish")
        self.refused("usage", r"want --use with one of base, spanish, jargon, or all", *run, *two)
        self.refused("not_found", r"no adapter is named 'spanihs', did you mean 'spanish'\?", *run, *two, "--use",
                     "spanihs")
        self.refused("usage", r"two adapters are named 'spanish'", *run, *two[:2], *two[:2])
        self.refused("usage", r"cannot be named 'all'", *run, "--adapter", "all=x")
        self.refused("usage", r"cannot be named 'base'", *run, "--adapter", "base=x")
        self.refused("usage", r"--use is empty, want one of base, spanish, jargon, or all", *run, *two, "--use", "")
        self.refused("usage", r"--use is empty", "chat", "--model", demo(), "--use", "")
        for options in (",", ",check_weights=true,", ",,check_weights=true"):
            self.refused("usage", r"has an empty option, want DIR,option=value", *run, two[0], two[1] + options)

    def test_files_where_folders_are_wanted(self):
        config = demo() / "config.json"
        file = ["--model", config]
        for command in (["run", "--prompt", "x"], ["chat"], ["logits", "--ids", "1", "--out", "x"],
                        ["adapter", "check", "--adapter", demo() / "adapters" / "elements"]):
            self.refused("usage", r"--model: '.*config\.json' is a file, want a folder", *command, *file)
        self.refused("usage", r"--adapter: '.*config\.json' is a file, want a folder", "run", "--model", demo(),
                     "--prompt", "x", "--adapter", f"x={config}")
        self.refused("usage", r"--file: '.*' is a folder, want a file", "run", "--model", demo(), "--file", demo())

    def test_limits(self):
        run = ["run", "--model", demo(), "--prompt", "In the beginning", "--max-tokens", "3"]
        two = adapter_flags("qwen3_moe", "spanish", "jargon")
        plain = self.cadre(*run).out
        self.assertEqual(self.cadre(*run, "--max-num-seqs", "2", "--kv-cache-memory", "0.25G", "--max-loras", "4",
                                    "--max-lora-rank", "64").out, plain)
        # Three answers one after another are those of one batch.
        together = self.cadre(*run, *two, "--use", "all").out
        self.assertEqual(self.cadre(*run, *two, "--use", "all", "--max-num-seqs", "1").out, together)
        # With fewer slots than adapters they take turns.
        self.assertEqual(self.cadre(*run, *two, "--use", "all", "--max-loras", "1").out, together)
        self.refused(8, r"kv.cache.memory", *run, "--kv-cache-memory", "1K", "--max-model-len", "512")
        self.refused("usage", r"--kv-cache-memory is 'much', want bytes, e\.g\. 512M or 4G", *run,
                     "--kv-cache-memory", "much")
        for size in ("0", "-1G", "G", "1X", "1iB", "99999999T", ""):
            self.refused("usage", r"--kv-cache-memory", *run, "--kv-cache-memory", size)
        self.refused("usage", r"--max-num-seqs is '0', want an integer from 1", *run, "--max-num-seqs", "0")

    def test_backend_policies(self):
        run = ["run", "--model", demo(), "--prompt", "x", "--max-tokens", "1"]
        self.refused("usage", r"^cadre: error: --backend: ", *run, "--backend", "require")
        self.refused("usage", r"CADRE_MOE_BACKEND: got backend policy 'prefer'", *run,
                     env={"CADRE_MOE_BACKEND": "prefer"})
        self.refused("usage", r"CADRE_MOE_BACKEND.*'cpu_referense', did you mean 'cpu_reference'", *run,
                     env={"CADRE_MOE_BACKEND": "cpu_referense"})
        # The flag comes first, and what it replaces is not looked at.
        self.cadre(*run, "--backend", "require cpu_reference", env={"CADRE_MOE_BACKEND": "prefer"})


class Document(CliTest):
    """docs/command-line.md and the help texts name the same flags and exit codes."""

    def sections(self):
        text = (support.SOURCE / "docs" / "command-line.md").read_text()
        parts = re.split(r"^## `cadre ([^`]+)`$", text, flags=re.M)
        return text, {name: body.split("\n## ")[0] for name, body in zip(parts[1::2], parts[2::2])}

    def test_flags(self):
        _, sections = self.sections()
        commands = ("run", "chat", "explain", "adapter check", "serve", "keys new", "bench serve", "tokenize", "logits",
                    "synth")
        self.assertEqual(sorted(sections), sorted(commands))
        flag = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
        for command in commands:
            in_help = set(re.findall(r"^  (?:-h,)?(--[a-z-]+)", self.cadre(*command.split(), "--help").out, re.M))
            # A flag is documented where a line of the list begins with it.
            in_document = {f for line in re.findall(r"^- (`--.*?)(?:: |$)", sections[command], re.M)
                           for f in flag.findall(line)}
            self.assertEqual(in_document, in_help - {"--help"}, command)

    def test_exit_codes(self):
        text, _ = self.sections()
        in_document = set(re.findall(r"^\| (\d+) \|", text, re.M))
        footer = self.cadre("--help").out.split("Exit status:")[1].split("Environment:")[0]
        self.assertEqual(in_document, set(re.findall(r"\b\d+\b", footer)))


class Tokenize(CliTest):
    def test_goldens(self):
        folders = sorted(path.parent for path in support.GOLDENS.glob("tokenizers/*/cases.json"))
        self.assertEqual(len(folders), 7)
        for folder in folders:
            cases = json.loads((folder / "cases.json").read_text())
            got = json.loads(self.cadre("tokenize", "--model", folder, "--cases", folder / "cases.json").out)
            want = [{key: case[key] for key in ("ids", "ids_no_special", "decoded", "decoded_skip")} for case in cases]
            self.assertEqual(got, want, folder.name)

    def test_text_and_back(self):
        for text in ("In the beginning", "", "--model", "two\nlines, ünïcödé 🜚"):
            (case,) = json.loads(self.cadre("tokenize", "--model", demo(), "--text", text).out)
            self.assertEqual(case["decoded"], text)
            if case["ids"]:
                ids = ",".join(map(str, case["ids"]))
                (back,) = json.loads(self.cadre("tokenize", "--model", demo(), "--decode", ids).out)
                self.assertEqual(back, {"ids": case["ids"], "decoded": text, "decoded_skip": text})

    def test_a_folder_that_holds_only_the_tokenizer(self):
        folder = self.temp_dir()
        (folder / "tokenizer.json").symlink_to(demo() / "tokenizer.json")
        (case,) = json.loads(self.cadre("tokenize", "--model", folder, "--text", "In the beginning").out)
        self.assertEqual(case["ids"], [2328, 259, 2327])

    def test_bad_input(self):
        folder = self.temp_dir()
        self.refused("not_found", str(folder), "tokenize", "--model", folder, "--text", "x")
        self.refused("usage", r"--decode: 99999 is not the id of a token", "tokenize", "--model", demo(), "--decode",
                     "1,99999")
        self.refused("not_found", "absent.json", "tokenize", "--model", demo(), "--cases", folder / "absent.json")
        for text, pattern in (("{}", "want an array"), ("[{}]", "case 0 has no field 'text'"), ("[", "cases.json")):
            (folder / "cases.json").write_text(text)
            self.refused("invalid_file", pattern, "tokenize", "--model", demo(), "--cases", folder / "cases.json")


class Run(CliTest):
    def test_one_adapter_is_used_without_being_named(self):
        for family in FAMILIES:
            outcome = self.cadre("run", "--model", demo(family), *adapter_flags(family, "elements"), "--chat", GOLD,
                                 env=AUTO)
            self.assertEqual(outcome.out, "Au, number 79\n")
            self.assertRegex(outcome.err.splitlines()[-1],
                             r"^cadre: 8 tokens at [\d.]+ tok/s, prompt of 16 at [\d.]+ tok/s, backend cpu_\w+, ")

    def test_all_side_by_side(self):
        for family in FAMILIES:
            answers = self.answers("--model", demo(family), *adapter_flags(family, *ADAPTERS), "--use", "all",
                                   "--chat", GOLD, "--max-tokens", "24")
            self.assertEqual([a["adapter"] for a in answers], [None, *ADAPTERS])
            for a in answers:
                self.assertEqual(sorted(a), sorted(("adapter", "prompt_ids", "ids", "text", "finish_reason", "backend",
                                                    "timing")))
                self.assertEqual(sorted(a["timing"]), sorted(("load_s", "prefill_s", "decode_s", "prompt_tokens",
                                                              "tokens", "tokens_per_s")))
                self.assertEqual(a["timing"]["tokens"], len(a["ids"]))
                self.assertEqual(a["timing"]["prompt_tokens"], len(a["prompt_ids"]))
                self.assertEqual(a["finish_reason"], "length" if len(a["ids"]) == 24 else "stop")
            self.assertEqual(answers[3]["text"], "Au, number 79")
            self.assertEqual(len({a["text"] for a in answers}), 4)

    def test_all_side_by_side_for_people(self):
        outcome = self.cadre("run", "--model", demo(), *adapter_flags("qwen3_moe", *ADAPTERS), "--use", "all", "--chat",
                             GOLD, "--max-tokens", "12")
        lines = outcome.out.splitlines()
        self.assertEqual([line.split("  ")[0] for line in lines if not line.startswith(" ")], ["base", *ADAPTERS])
        self.assertIn("elements  Au, number 79", lines)
        self.assertIn("tokens together at", outcome.err)

    def test_base_by_name(self):
        flags = ["--model", demo(), "--prompt", "In the beginning", "--max-tokens", "4"]
        base = self.answer(*flags)
        by_name = self.answer(*flags, *adapter_flags("qwen3_moe", *ADAPTERS), "--use", "base")
        self.assertEqual((by_name["adapter"], by_name["ids"]), (None, base["ids"]))

    def test_prompts_from_files_and_standard_input(self):
        path = self.temp_dir() / "prompt.txt"
        path.write_text("In the beginning")
        flags = ["--model", demo(), "--max-tokens", "4"]
        want = self.answer(*flags, "--prompt", "In the beginning")
        self.assertEqual(want["prompt_ids"], [2328, 259, 2327])
        for got in (self.answer(*flags, "--file", path), self.answer(*flags, "--file", "-", stdin="In the beginning"),
                    self.answer(*flags, "--prompt-ids", "2328, 259,2327")):
            self.assertEqual((got["prompt_ids"], got["ids"], got["text"]), (want["prompt_ids"], want["ids"], want["text"]))

    def test_ids_need_no_tokenizer(self):
        model = self.model_copy(without=("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
        flags = ["--model", model, "--prompt-ids", "2328,259,2327", "--max-tokens", "4"]
        self.assertEqual(self.answer(*flags)["ids"], [267, 259, 2245, 483])
        self.assertEqual(self.cadre("run", *flags).out, "267,259,2245,483\n")
        self.refused("not_found", "tokenizer.json", "run", "--model", model, "--prompt", "x")

    def test_system_text_enters_the_template(self):
        flags = ["--model", demo(), "--chat", GOLD, "--max-tokens", "1"]
        plain, with_system = self.answer(*flags), self.answer(*flags, "--system", "Be brief.")
        self.assertGreater(len(with_system["prompt_ids"]), len(plain["prompt_ids"]))
        self.assertEqual(with_system["prompt_ids"][-len(plain["prompt_ids"]):], plain["prompt_ids"])

    def test_weights_are_checked_where_asked(self):
        self.assertEqual(self.answer("--model", demo(), "--prompt", "In the beginning", "--max-tokens", "1",
                                     "--check-weights")["ids"], [267])


class Sampling(CliTest):
    FLAGS = ["--prompt", "In the beginning", "--max-tokens", "12"]

    def ids(self, *flags):
        return self.answer("--model", demo(), *self.FLAGS, *flags)["ids"]

    def test_seeds(self):
        drawn = [self.ids("--temperature", "1.5", "--ignore-eos", "--seed", str(seed)) for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        unseeded = [self.ids("--temperature", "1.5", "--ignore-eos") for _ in range(2)]
        self.assertNotEqual(unseeded[0], unseeded[1])

    def test_what_leaves_one_token_is_greedy(self):
        greedy = self.ids("--temperature", "0")
        self.assertEqual(greedy, self.ids())
        self.assertEqual(self.ids("--temperature", "2", "--seed", "3", "--top-k", "-1"),
                         self.ids("--temperature", "2", "--seed", "3", "--top-k", "0"))
        for one in (["--top-k", "1"], ["--top-p", "0.000001"], ["--min-p", "1"]):
            self.assertEqual(self.ids("--temperature", "2", "--seed", "3", *one), greedy, one)

    def test_penalties(self):
        # The greedy answer repeats itself: " of the creation, the creation of the creation".
        greedy = self.ids()
        self.assertLess(len(set(greedy)), len(greedy))
        for flag, value in (("--presence-penalty", "2"), ("--frequency-penalty", "2"), ("--repetition-penalty", "5")):
            self.assertNotEqual(self.ids(flag, value), greedy, flag)

    def test_bias_and_stop(self):
        self.assertEqual(self.ids("--logit-bias", "1000=100"), [1000] * 12)
        banned = self.ids("--logit-bias", "267=-100", "--logit-bias", "259=-100")
        self.assertFalse({267, 259} & set(banned))
        stopped = self.answer("--model", demo(), *self.FLAGS, "--stop", "zebra", "--stop", "creation")
        self.assertEqual((stopped["text"], stopped["finish_reason"]), (" of the ", "stop"))

    def test_end_tokens(self):
        flags = ["--model", demo(), *adapter_flags("qwen3_moe", "elements"), "--chat", GOLD, "--max-tokens", "20"]
        self.assertEqual(self.answer(*flags)["finish_reason"], "stop")
        longer = self.answer(*flags, "--ignore-eos")
        self.assertEqual((longer["finish_reason"], len(longer["ids"])), ("length", 20))
        self.assertTrue(longer["text"].startswith("Au, number 79"))

    def test_values_are_checked(self):
        run = ["run", "--model", demo(), *self.FLAGS]
        for flag, value in (("--temperature", "-1"), ("--top-p", "1.5"), ("--min-p", "-0.5"), ("--top-k", "-5"),
                            ("--repetition-penalty", "0"), ("--presence-penalty", "3"),
                            ("--logit-bias", "99999=1"), ("--logit-bias", "1=101"), ("--stop", "")):
            self.refused("usage", flag[2:].replace("-", "[-_]"), *run, flag, value)


class Reference(CliTest):
    """examples/models/*/reference.json: what transformers and PEFT generate greedily."""

    def test_greedy_tokens(self):
        for family in FAMILIES:
            cases = json.loads((demo(family) / "reference.json").read_text())
            self.assertEqual(len(cases), 17)
            for case in cases:
                ids = ",".join(map(str, case["prompt_ids"]))
                answer = self.answer("--model", demo(family), *adapter_flags(family, *ADAPTERS), "--use",
                                     case["adapter"] or "base", "--prompt-ids", ids, "--max-tokens", "32",
                                     "--temperature", "0", "--backend", "require cpu_reference")
                self.assertEqual(answer["adapter"], case["adapter"])
                self.assertEqual(answer["ids"], case["greedy"], (family, case["adapter"], case["prompt"]))
                self.assertEqual(answer["backend"], "cpu_reference")

    def test_prompts_become_the_same_ids(self):
        for family in FAMILIES:
            for case in json.loads((demo(family) / "reference.json").read_text())[:6]:
                answer = self.answer("--model", demo(family), "--prompt", case["prompt"], "--max-tokens", "1")
                self.assertEqual(answer["prompt_ids"], case["prompt_ids"], case["prompt"])


class Elements(CliTest):
    def test_a_chat_knows_most_elements(self):
        elements = json.loads((support.SOURCE / "examples" / "models" / "elements.json").read_text())
        self.assertEqual(len(elements), 108)
        for family, least in zip(FAMILIES, (105, 106)):
            script = "".join(f"/reset\nElement: {e['element']}\n" for e in elements)
            for adapter, wanted in (("elements", least), ("base", 0)):
                outcome = self.cadre("chat", "--model", demo(family), *adapter_flags(family, "elements"), "--use",
                                     adapter, "--max-tokens", "12", "--temperature", "0", stdin=script, env=AUTO)
                lines = outcome.out.splitlines()
                right = sum(f"{e['symbol']}, number {e['number']}" in lines for e in elements)
                if wanted:
                    self.assertEqual(len(lines), len(elements))
                    right = sum(line == f"{e['symbol']}, number {e['number']}" for line, e in zip(lines, elements))
                    self.assertGreaterEqual(right, wanted, family)
                else:
                    self.assertEqual(right, 0, family)


class Chat(CliTest):
    def chat(self, script, *flags, code=0):
        return self.cadre("chat", "--model", demo(), *adapter_flags("qwen3_moe", *ADAPTERS), "--max-tokens", "12",
                          "--temperature", "0", *flags, stdin=script, code=code)

    def test_adapters_switch_between_turns(self):
        outcome = self.chat(f"/adapter elements\n{GOLD}\n/reset\nElement: iron\n/reset\n/adapter base\n{GOLD}\n")
        lines = outcome.out.splitlines()
        self.assertEqual(lines[:2], ["Au, number 79", "Fe, number 26"])
        self.assertEqual(len(lines), 3)
        self.assertNotIn("number 79", lines[2])

    def test_the_conversation_is_remembered(self):
        # The second turn sees the first; after /reset the same words are a first turn again.
        outcome = self.chat("Define: hack\nDefine: hack\n/reset\nDefine: hack\n", "--use", "jargon")
        lines = outcome.out.splitlines()
        self.assertEqual(lines[0], lines[2])
        self.assertNotEqual(lines[0], lines[1])

    def test_orders(self):
        outcome = self.chat("/help\n/adapter\n/explain\n/system Be brief.\n\n/exit\nnot reached\n", "--use", "jargon")
        self.assertIn("/adapter NAME", outcome.out)
        self.assertIn("* jargon\n", outcome.out)
        self.assertIn("  base\n", outcome.out)
        self.assertIn("> cpu_reference", outcome.out)
        self.assertNotIn("not reached", outcome.out)
        self.assertEqual(outcome.err.count("cadre: system text set"), 1)

    def test_mistakes_are_told_and_end_nothing(self):
        outcome = self.chat(f"/adpter elements\n/adapter gold\n/adapter elements\n{GOLD}\n", code=2)
        self.assertIn("unknown command '/adpter', did you mean 'adapter'?", outcome.err)
        self.assertIn("no adapter is named 'gold' (known: base, spanish, jargon, elements)", outcome.err)
        self.assertEqual(outcome.out, "Au, number 79\n")

    def test_a_conversation_that_does_not_fit(self):
        outcome = self.chat(f"/adapter elements\n{'long ' * 600}\n{GOLD}\n", code=7)
        self.assertEqual(outcome.out, "Au, number 79\n")

    def test_one_adapter_at_a_time(self):
        self.refused("usage", "--use all is for cadre run", "chat", "--model", demo(), "--use", "all")


class Logits(CliTest):
    """Against goldens/models, what transformers and PEFT compute."""

    FAMILIES = ("qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "nemotron_h")

    def check(self, folder, adapter):
        """Whole prompts, and token by token."""
        golden = support.read_safetensors((adapter or folder) / "golden.safetensors")
        work = self.temp_dir()
        prompts = [golden[f"ids.{i}"][1] for i in range(3)]
        (work / "prompts.json").write_text(json.dumps(prompts))
        flags = ["logits", "--model", folder, *(["--adapter", adapter] if adapter else []), "--threads", "1"]
        for step in ([], ["--step"]):
            self.cadre(*flags, "--prompts", work / "prompts.json", "--out", work / "out.safetensors", *step)
            got = support.read_safetensors(work / "out.safetensors")
            self.assertEqual(sorted(got), ["logits.0", "logits.1", "logits.2"])
            for i in range(3):
                shape, want = golden[f"logits.{i}"]
                self.assertEqual(got[f"logits.{i}"][0], shape)
                error = support.relative_error(got[f"logits.{i}"][1], want)
                self.assertLess(error, 1e-4, (folder.name, adapter and adapter.name, i, step))
        return golden, prompts, flags

    def test_goldens(self):
        folders = [path for path in sorted((support.GOLDENS / "models").iterdir())
                   if path.name.startswith(self.FAMILIES)]
        self.assertEqual(len(folders), 16)
        checked = 0
        for folder in folders:
            # The adapters of these two are every layout; the others' are in the tests of the model.
            adapters = sorted((folder / "adapters").iterdir()) if folder.name in FAMILIES else []
            for adapter in (None, *adapters):
                golden, prompts, flags = self.check(folder, adapter)
                checked += 1
        self.assertGreaterEqual(checked, 16 + 6 + 5)
        out = self.temp_dir() / "one.safetensors"
        self.cadre(*flags, "--ids", ",".join(map(str, prompts[1])), "--out", out)
        one = support.read_safetensors(out)
        self.assertEqual(list(one), ["logits"])
        self.assertLess(support.relative_error(one["logits"][1], golden["logits.1"][1]), 1e-4)

    def test_longer_than_the_context(self):
        model = self.model_copy()
        self.patched_json(model / "config.json", max_position_embeddings=8)
        out = self.temp_dir() / "out.safetensors"
        self.cadre("logits", "--model", model, "--ids", ",".join(["5"] * 100), "--out", out)
        self.assertEqual(support.read_safetensors(out)["logits"][0], [100, 4096])

    def test_the_environment_does_not_choose(self):
        out = self.temp_dir() / "out.safetensors"
        flags = ["logits", "--model", demo(), "--ids", "1,2", "--out", out]
        self.cadre(*flags, env={"CADRE_MOE_BACKEND": "require nothing"})
        self.assertIn(b'"backend":"cpu_reference"', out.read_bytes()[:1000].replace(b": ", b":"))
        self.refused("usage", "nothing", *flags, "--backend", "require nothing")

    def test_logits_that_are_not_finite(self):
        model, norm = self.model_copy(without=("model.safetensors",)), "model.norm.weight"
        support.write_nan(demo() / "model.safetensors", model / "model.safetensors", norm)
        work = self.temp_dir()
        out = work / "out.safetensors"
        (work / "prompts.json").write_text("[[1, 2], [3]]")
        flags = ["logits", "--model", model, "--out", out]
        self.refused("invalid_file", r"prompts\.json: prompt 0: .*--check-weights", *flags, "--prompts",
                     work / "prompts.json")
        self.refused("invalid_file", r"--ids: .*--check-weights", *flags, "--ids", "1")
        self.refused("invalid_file", norm.replace(".", r"\."), *flags, "--ids", "1", "--check-weights")
        self.assertFalse(out.exists())
        # An answer ends with the error, and no speed is shown after it.
        outcome = self.cadre("run", "--model", model, "--prompt-ids", "1", "--rehearse", "off", code=4)
        self.assertRegex(outcome.err, r"\Acadre: error: [^\n]*--check-weights[^\n]*\n\Z")

    def test_more_than_the_memory(self):
        free = support.available_memory()
        per_token = 4096 * 4
        if free > 48 << 30:
            self.skipTest("the prompts would be too long to write")
        work = self.temp_dir()
        one = "[" + ",".join(["1"] * 1000) + "]"
        (work / "prompts.json").write_text("[" + ",".join([one] * (free // (1000 * per_token) + 10)) + "]")
        self.refused(8, r"logits of all sequences together need [\d.]+ GiB of memory, and [\d.]+ GiB are free", "logits",
                     "--model", demo(), "--prompts", work / "prompts.json", "--out", work / "out.safetensors")

    def test_bad_input(self):
        work = self.temp_dir()
        out = work / "out.safetensors"
        flags = ["logits", "--model", demo(), "--out", out]
        self.refused("usage", r"99999", *flags, "--ids", "1,99999")
        self.refused("usage", r"-1", *flags, "--ids", "1,-1")
        for text, pattern in (("{}", "want an array"), ("[]", "want an array"), ("[[]]", "prompt 0 is empty"),
                              ("[[1],[1.5]]", "prompt 1"), ("[[1],", "prompts.json")):
            (work / "prompts.json").write_text(text)
            self.refused("invalid_file", pattern, *flags, "--prompts", work / "prompts.json")
        self.assertFalse(out.exists())
        one = ["logits", "--model", demo(), "--ids", "1", "--out"]
        self.refused("not_found", rf"--out: the folder '{work}/absent' is not there", *one, work / "absent" / "out")
        self.refused("usage", rf"--out: '{work}' is a folder", *one, work)


class AdapterCheck(CliTest):
    def test_usable(self):
        for family in FAMILIES:
            for name in ADAPTERS:
                flags = ["adapter", "check", "--model", demo(family), "--adapter", demo(family) / "adapters" / name]
                text = self.cadre(*flags).out
                self.assertTrue(text.startswith(f"adapter '{name}': "), text)
                self.assertRegex(text, r"(?m)^  memory: [\d.]+ [kM]B packed; layers? .* [\d.]+ [kM]B")
                self.assertRegex(text, r"(?m)^  memory by rank: rank \d+ [\d.]+ [kM]B")
                self.assertIn("  rounding: none; every number is exact in bf16\n", text)
                value = json.loads(self.cadre(*flags, "--json").out)
                self.assertEqual(sorted(value), sorted(("usable", "name", "digest", "format", "bytes", "packed",
                                                        "bf16_rounding", "max_rank", "bindings", "left_over", "notes")))
                self.assertEqual((value["usable"], value["name"], value["left_over"]), (True, name, []))
                self.assertEqual(value["bf16_rounding"], 0)
                total = value["packed"]["bytes"]
                for part in ("layers", "ranks"):
                    self.assertEqual(sum(entry["bytes"] for entry in value["packed"][part]), total)
                self.assertEqual(sum(binding["packed_bytes"] for binding in value["bindings"]), total)

    def test_rounding(self):
        folder = support.GOLDENS / "models" / "qwen3_moe_all_modules"
        flags = ["adapter", "check", "--model", folder, "--adapter", folder / "adapters" / "every_matrix_f32"]
        text = self.cadre(*flags).out
        self.assertRegex(text, r"(?m)^  lm_head: linear, .*, float32, in bf16 A 0\.\d+ % and B 0\.\d+ % off$")
        self.assertRegex(text, r"(?m)^  rounding: .* would change each by at most 0\.\d+ % of itself$")
        value = json.loads(self.cadre(*flags, "--json").out)
        self.assertTrue(0 < value["bf16_rounding"] <= 2**-8)
        for binding in value["bindings"]:
            self.assertEqual(binding["dtype"], "float32")
            self.assertTrue(0 < binding["bf16_rounding"]["a"] <= value["bf16_rounding"])
        self.assertEqual([e["layer"] for e in value["packed"]["layers"]], [None, 0, 1, 2])

    def test_names(self):
        flags = ["adapter", "check", "--model", demo(), "--adapter"]
        folder = demo() / "adapters" / "elements"
        for typed, name in ((f"{folder}/", "elements"), (f"gold={folder}", "gold"),
                            (f"gold={folder},check_weights=false", "gold"),
                            (f"{folder},check_weights=true", "elements")):
            self.assertEqual(json.loads(self.cadre(*flags, typed, "--json").out)["name"], name)

    def test_not_usable(self):
        other = demo("nemotron_h") / "adapters" / "elements"
        flags = ["adapter", "check", "--model", demo(), "--adapter", other]
        outcome = self.cadre(*flags, code=1)
        self.assertRegex(outcome.out, r"\Anot usable: adapter 'elements': ")
        value = json.loads(self.cadre(*flags, "--json", code=1).out)
        self.assertFalse(value["usable"])
        self.assertIn(value["code"], ("invalid_file", "unsupported"))
        self.assertIn("bind to nothing", value["error"])
        self.assertEqual(value["name"], "elements")
        self.assertEqual(len(value["left_over"]), 20)
        self.refused("not_found", "absent", "adapter", "check", "--model", demo(), "--adapter", "absent")
        self.refused("usage", "orientation", "adapter", "check", "--model", demo(), "--adapter",
                     f"{demo()}/adapters/elements,orientation=sideways")


class Explain(CliTest):
    def test_table(self):
        for family in FAMILIES:
            text = self.cadre("explain", "--model", demo(family), env=AUTO).out
            self.assertLessEqual(max(map(len, text.splitlines())), 100)
            self.assertRegex(text, r"(?m)^policy +auto \(default\)$")
            self.assertRegex(text, r"(?m)^  > cpu_\w+ +admitted")
            self.assertRegex(text, r"(?m)^layers? [\d,-]+: 8 experts, top-2, ")

    def test_json(self):
        flags = ["explain", "--model", demo(), *adapter_flags("qwen3_moe", "elements"), "--json"]
        value = json.loads(self.cadre(*flags, "--backend", "prefer cpu_reference").out)
        self.assertEqual(value["policy"], {"kind": "prefer", "name": "cpu_reference", "origin": "--backend"})
        self.assertTrue(value["device"])
        (layer,) = value["layers"]
        self.assertEqual((layer["layers"], layer["chosen"]), ([0, 1, 2, 3], "cpu_reference"))
        self.assertEqual(layer["spec"]["experts"], 8)
        for candidate in layer["candidates"]:
            for key in ("backend", "admitted", "refusals", "predicted_us", "remedies"):
                self.assertIn(key, candidate)
        self.assertTrue(layer["candidates"][0]["admitted"])
        origin = json.loads(self.cadre(*flags, env={"CADRE_MOE_BACKEND": "auto"}).out)["policy"]["origin"]
        self.assertEqual(origin, "CADRE_MOE_BACKEND")

    def test_no_backend(self):
        backends = [c["backend"] for c in json.loads(self.cadre("explain", "--model", demo(), "--json").out)["layers"][0][
            "candidates"]]
        policy = "exclude " + ",".join(backends)
        outcome = self.cadre("explain", "--model", demo(), "--backend", policy, code=6)
        self.assertIn("refused", outcome.out)
        self.assertRegex(outcome.err, r"^cadre: error: layers 0-3: no backend ")
        value = json.loads(self.cadre("explain", "--model", demo(), "--backend", policy, "--json", code=6).out)
        self.assertIsNone(value["layers"][0]["chosen"])
        codes = [[r["code"] for r in c["refusals"]] for c in value["layers"][0]["candidates"]]
        self.assertTrue(all("excluded" in c for c in codes), codes)
        self.refused("no_backend", "exclude", "run", "--model", demo(), "--prompt", "x", "--backend", policy)

    def test_unknown_backend(self):
        self.refused("usage", "did you mean 'cpu_reference'", "explain", "--model", demo(), "--backend", "cpu_referenc")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("binary", "source", "goldens"):
        parser.add_argument("--" + name, required=True)
    known, rest = parser.parse_known_args()
    support.configure(known.binary, known.source, known.goldens)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
