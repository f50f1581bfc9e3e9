"""What `cadre serve` answers is what `cadre run` answers: for the same seed, whatever else is in the batch, however
prompts are cut into chunks, with and without the prefix cache, when adapters take turns and when requests give way."""

import json
import random
import subprocess

import serve_support as support
from serve_support import ADAPTERS, Server, ServeTest

BASE = "base"
MODELS = (BASE, *ADAPTERS)
TEMPERATURES = (0, 0.9)
MAX_TOKENS = 20

# Several begin alike, for the prefix cache; one is longer than most chunks.
COMMON = "And it came to pass in those days, that there went out a decree from the king, that all the people "
PROMPTS = (
    ("prompt", COMMON + "should be numbered."),
    ("prompt", COMMON + "should be numbered. And all went, every one into his own city; " * 4),
    ("prompt", COMMON),
    ("prompt", "x"),
    ("chat", "Element: gold"),
    ("chat", "Element: silver"),
)


class Case:
    def __init__(self, index, kind, text, model, temperature):
        self.kind, self.text, self.model, self.temperature = kind, text, model, temperature
        self.seed = 1000 + index
        self.want = None

    def __str__(self):
        return f"{self.model} at {self.temperature}, seed {self.seed}, {self.kind} {self.text[:40]!r}"

    def ask(self, server, family, stream):
        body = {"model": family if self.model == BASE else self.model, "temperature": self.temperature,
                "seed": self.seed, "max_tokens": MAX_TOKENS, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        if self.kind == "chat":
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": self.text}]
        else:
            path, body["prompt"] = "/v1/completions", self.text
        reply = server.post(path, body)
        if not stream:
            choice = reply["choices"][0]
            text = choice["message"]["content"] if self.kind == "chat" else choice["text"]
            usage, reason = reply["usage"], choice["finish_reason"]
        else:
            choices = [choice for chunk in reply for choice in chunk["choices"]]
            text = "".join(c["delta"].get("content") or "" if self.kind == "chat" else c["text"] for c in choices)
            usage, reason = reply[-1]["usage"], choices[-1]["finish_reason"]
        return text, usage["prompt_tokens"], usage["completion_tokens"], reason


def cases_of(family):
    """All cases with the answers of `cadre run`."""
    cases = []
    for kind, text in PROMPTS:
        for temperature in TEMPERATURES:
            seed = 1000 + len(cases) // len(MODELS)
            words = [support.BINARY, "run", *map(str, support.model_flags(family)), "--use", "all", "--json",
                     f"--{kind}", text, "--temperature", temperature, "--seed", seed, "--max-tokens", MAX_TOKENS]
            done = subprocess.run([*map(str, words)], capture_output=True, check=True, env=support.environment(),
                                  timeout=support.TIMEOUT_S, encoding="utf-8")
            answers = {a["adapter"] or BASE: a for a in map(json.loads, done.stdout.splitlines())}
            for model in MODELS:
                case = Case(len(cases), kind, text, model, temperature)
                case.seed = seed
                answer = answers[model]
                case.want = (answer["text"], len(answer["prompt_ids"]), len(answer["ids"]), answer["finish_reason"])
                cases.append(case)
    return cases


class Equality(ServeTest):
    family = None  # of the subclasses

    @classmethod
    def setUpClass(cls):
        cls.cases = cases_of(cls.family)
        texts = [case.want[0] for case in cls.cases]
        # Otherwise equal answers would say little.
        assert len(set(texts)) > len(texts) * 3 / 4, texts

    def check(self, server, workers, cases=None):
        cases = list(cases or self.cases)
        random.Random(len(cases) * 64 + workers).shuffle(cases)
        jobs = [lambda case=case, stream=index % 2 == 1: case.ask(server, self.family, stream)
                for index, case in enumerate(cases)]
        for case, got in zip(cases, support.run_at_once(jobs, workers), strict=True):
            self.assertEqual(got, case.want, f"{case}, {workers} at once")

    def serve_all(self, *flags):
        return Server(*support.model_flags(self.family), "--no-enable-log-requests", *flags)

    def some(self):
        # The step is prime to the number of models and temperatures, so that all of them come.
        return self.cases[::5]

    def test_mixed(self):
        for budget in (4, 16, 512):
            for cached in (True, False):
                with self.subTest(budget=budget, cached=cached):
                    caching = "--enable-prefix-caching" if cached else "--no-enable-prefix-caching"
                    with self.serve_all("--max-num-batched-tokens", budget, caching) as server:
                        self.check(server, 32)
                        self.check(server, 1, self.some())
                        hits = server.wait_until_idle()["vllm:prefix_cache_hits_total"]
                        (self.assertGreater if cached else self.assertEqual)(hits, 0)

    def test_adapters_take_turns(self):
        with self.serve_all("--max-loras", 1) as server:
            self.assertEqual(server.metrics()["cadre_adapter_slots"], 1)
            self.check(server, 32)
            after = server.wait_until_idle()
            self.assertEqual(after["cadre_adapter_slots_used"], 1)
            for name in ADAPTERS:
                self.assertGreater(after[f'cadre_adapter_requests_total{{adapter="{name}"}}'], 0)

    def test_adapters_are_read_again(self):
        with self.serve_all("--max-loras", 1, "--max-cpu-loras", 0) as server:
            self.check(server, 32, self.some())

    def test_too_little_memory(self):
        for caching, memory in self.little_memory.items():
            with self.subTest(caching=caching, memory=memory):
                with self.serve_all("--kv-cache-memory", memory, "--max-model-len", 160, caching) as server:
                    self.check(server, 32)
                    self.assertGreater(server.wait_until_idle()["vllm:num_preemptions_total"], 0)

    def test_reference_backend(self):
        # What answered above was the fast backend; the plain one agrees with itself as well.
        cases = self.some()
        with self.serve_all("--backend", "require cpu_reference") as server:
            self.assertEqual(server.get("/explain")["layers"][0]["chosen"], "cpu_reference")
            alone = [case.ask(server, self.family, False) for case in cases]
            together = support.run_at_once([lambda c=c: c.ask(server, self.family, True) for c in cases], 32)
            self.assertEqual(together, alone)


class Qwen(Equality):
    family = "qwen3_moe"
    # Enough for one or two of the longest at the same time.
    little_memory = {"--enable-prefix-caching": "330K", "--no-enable-prefix-caching": "330K"}


class Nemotron(Equality):
    family = "nemotron_h"
    # Most of it is the states of Mamba layers, which have their size from the start.
    little_memory = {"--enable-prefix-caching": "5M", "--no-enable-prefix-caching": "3700K"}


del Equality  # only its subclasses are tests

if __name__ == "__main__":
    support.main()
