"""Mixed load on `cadre serve` while adapters come, change and go, with every answer checked.

usage: soak.py --binary CADRE --source DIR [--seconds N] [--family NAME] [--workers N] [--seed N]

The texts that are right come from `cadre run`. `swap` is one name whose folder alternates between the adapters
elements and jargon: a reply must be one version's text from its first token to its last, that version must have been
the present one at some moment while the request was sent, and the fingerprint must name it. Standard library only.
"""

import argparse
import asyncio
import collections
import pathlib
import random
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import serve_load_support as support  # noqa: E402
from serve_load_support import ADMIN, Case, Client, Closed, Server, percentile  # noqa: E402

MAX_GROWTH = 16 << 20
STEP_S = 1.0         # between two changes of the adapters
WARM_S = 120.0       # after which memory may grow no more; a third of shorter runs
SEQUENCES = 16       # in a batch; fewer than the workers' requests, so that some always wait
SWAP = ("elements", "jargon")
TEXT = ("In the beginning", "And it came to pass", "The LORD said to Moses", "En el principio", "Y dijo",
        "Now therefore hear the word of the LORD, all ye of the land, and ye that dwell by the sea: " * 3)


def cases(rng):
    """Questions of all kinds. Few, so that the prefix cache is hit, evicted and hit again."""
    made = []
    for element in rng.sample(support.elements(), 12):
        made.append(Case(f"Element: {element['element']}", True, rng.choice([16, 20, 32])))
    for word in ("hack", "kernel", "bug"):
        made.append(Case(f"Define: {word}", True, rng.choice([12, 40])))
    for text in TEXT:
        made.append(Case(text, False, rng.choice([1, 7, 24])))
        made.append(Case(text, False, rng.choice([48, 100]), ignore_eos=True))
        made.append(Case(text, False, 32, temperature=0.9, seed=rng.randrange(1 << 31)))
    made.append(Case(TEXT[1], False, 48, stop=["people", "number", " y "]))
    made.append(Case("Element: gold", True, 24, stop=["number"]))
    made.append(Case("Element: iron", True, 24, temperature=0.7, top_p=0.9, top_k=50, seed=7))
    made.append(Case(TEXT[2], False, 40, repetition_penalty=1.3, presence_penalty=0.5))
    return made


class Versions:
    """What a name stands for, over time: None where it is not loaded."""

    def __init__(self, first):
        self.present, self.next, self.changes = first, first, 0
        self.asked = {}  # request -> what it may have met

    def begin(self, then):
        self.next = then
        for met in self.asked.values():
            met.add(then)

    def done(self):
        self.present = self.next
        self.changes += 1

    def watch(self, key):
        self.asked[key] = {self.present, self.next}
        return self.asked[key]


class Soak:
    def __init__(self, arguments):
        self.family, self.seconds = arguments.family, arguments.seconds
        self.workers, self.rng = arguments.workers, random.Random(arguments.seed)
        self.cases = cases(self.rng)
        self.counts = collections.Counter()
        self.failures = []
        self.seen = {}    # (case, model) -> texts of the further choices, which cadre run does not show
        self.first = []   # times to the first text
        self.memory = []  # (seconds, bytes)
        self.over = False
        self.root = support.temp_dir()
        self.swap, self.extra = Versions("elements"), Versions(None)
        self.digests = {}

    # --- the server ---

    def start(self):
        begin = time.monotonic()
        for case in self.cases:
            case.compute(self.family)
        for case in self.cases:
            if case.want["elements"] == case.want["jargon"]:
                raise AssertionError(f"elements and jargon answer alike: {case}")
        say(f"{len(self.cases)} questions answered by cadre run in {time.monotonic() - begin:.1f} s")
        support.put_folder(self.folder("elements"), self.root / "swap")
        self.server = Server(
            *support.adapter_flags(*support.ADAPTERS, family=self.family), "--adapter-dir", self.root,
            "--max-loras", 4, "--max-lora-rank", 16, "--max-num-seqs", SEQUENCES, "--max-num-batched-tokens", 96,
            "--kv-cache-memory", "12M", "--served-model-name", "base",
            env={"CADRE_SERVE_ADMIN_KEY": ADMIN}, family=self.family)
        models = self.server.models()
        if set(models) != {"base", "swap", *support.ADAPTERS}:
            raise AssertionError(f"models at the start: {sorted(models)}")
        self.digests = {name: models[name]["digest"] for name in support.ADAPTERS}

    def folder(self, name):
        return support.adapter_folder(name, self.family)

    # --- requests ---

    def fail(self, text):
        self.failures.append(text)
        if len(self.failures) >= 20:
            self.over = True

    async def worker(self, number):
        rng = random.Random(self.rng.random())
        client = Client(self.server.port)
        count = 0
        while not self.over:
            count += 1
            try:
                await self.one(client, rng, (number, count))
            except Closed as error:
                self.fail(f"the server closed a connection: {error}")
            if rng.random() < 0.05:
                await client.close()
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() * 0.05)
        await client.close()

    async def one(self, client, rng, key):
        case = rng.choice(self.cases)
        model = rng.choice(["base", "elements", "jargon", "spanish", "swap", "swap", "swap", "extra"])
        watched = {"swap": self.swap, "extra": self.extra}.get(model)
        asked = f"base:{model}" if model != "base" and rng.random() < 0.1 else model
        more = {"priority": rng.choice([0, 0, 0, -1, 5])}
        if rng.random() < 0.15:
            more["n"] = rng.choice([2, 3])
        stream = rng.random() < 0.6
        if stream:
            more |= {"stream": True, "stream_options": {"include_usage": True}}
        leave = rng.choice([1, 1, 2, 5, 9]) if stream and rng.random() < 0.15 else None
        met = watched.watch(key) if watched else {model}
        reply = await client.ask(case.path, case.body(asked, **more), leave_after=leave,
                                 read_delay=0.01 if rng.random() < 0.02 else 0.0)
        if watched:
            del watched.asked[key]
        what = f"{model} {case} {more} after {self.counts['requests']} requests"
        self.counts["requests"] += 1
        if reply.status == 404 and None in met:
            self.counts["of an adapter that was away"] += 1
        elif reply.status != 200:
            self.fail(f"{what}: {reply!r}")
        elif not reply.complete:
            self.counts["left in mid-stream"] += 1
            self.check_part(what, case, met, reply)
        else:
            self.check(what, case, model, met, reply, more.get("n", 1))

    def check_part(self, what, case, met, reply):
        """What came before the client left begins a right answer."""
        for index, text in reply.texts.items():
            if index == 0 and not any(case.want[version][0].startswith(text) for version in met if version):
                self.fail(f"{what}: got {text!r}, which begins no answer of {met}: "
                          f"{[case.want[version] for version in met if version]}")

    def check(self, what, case, model, met, reply, n):
        fits = [version for version in met if version and case.want[version] == (reply.text, reply.finish.get(0))]
        if not fits:
            return self.fail(f"{what}: got {reply!r}, want one of "
                             f"{[(version, case.want[version]) for version in met if version]}")
        version = fits[0]
        if model != "base" and not any(reply.fingerprint.endswith(self.digests[v][:12]) for v in fits):
            self.fail(f"{what}: the text is of {fits}, the fingerprint {reply.fingerprint} of another")
        if sorted(reply.texts) != list(range(n)) or sorted(reply.finish) != list(range(n)):
            self.fail(f"{what}: choices {sorted(reply.texts)} {reply.finish}, want {n}")
        for index in range(1, n):
            known = self.seen.setdefault((id(case), version, index), (reply.texts[index], reply.finish[index]))
            want = case.want[version] if case.sampling["temperature"] == 0 else known
            if (reply.texts[index], reply.finish[index]) != want:
                self.fail(f"{what}: choice {index} is {reply.texts[index]!r}, want {want!r}")
        if reply.usage is None or not 0 < reply.usage["completion_tokens"] <= n * case.max_tokens:
            self.fail(f"{what}: usage {reply.usage}")
        self.counts["right answers"] += 1
        if reply.pieces and n == 1:
            self.first.append(reply.first - reply.sent)

    # --- adapters ---

    async def changes(self):
        admin = Client(self.server.port, ADMIN)
        steps = [self.replace_by_request, self.load_extra, self.replace_by_signal, self.unload_extra,
                 self.replace_by_rescan, self.refused, self.unload_and_load_swap]
        at = time.monotonic()
        number = 0
        while not self.over:
            at += STEP_S
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if self.over:
                break
            await steps[number % len(steps)](admin)
            number += 1
            self.memory.append((time.monotonic() - self.begin, self.server.rss()))
        await admin.close()

    async def admin(self, client, path, body, want=200):
        reply = await client.ask(path, body)
        if reply.status != want:
            self.fail(f"{path} {body}: {reply!r}, want {want}")
        self.counts["changes"] += 1
        return reply

    def next_swap(self):
        then = SWAP[SWAP.index(self.swap.present) ^ 1]
        support.put_folder(self.folder(then), self.root / "swap")
        self.swap.begin(then)

    async def replace_by_request(self, client):
        self.next_swap()
        await self.admin(client, "/v1/load_lora_adapter",
                         {"lora_name": "swap", "lora_path": "swap", "load_inplace": True})
        self.swap.done()

    async def replace_by_rescan(self, client):
        self.next_swap()
        reply = await self.admin(client, "/v1/rescan_lora_adapters", {})
        if reply.status == 200 and "swap" not in reply.json["replaced"]:
            self.fail(f"a rescan did not see the new folder: {reply.json}")
        self.swap.done()

    async def replace_by_signal(self, client):
        self.next_swap()
        self.server.signal(signal.SIGHUP)
        self.counts["changes"] += 1
        want = self.digests[self.swap.next]
        end = time.monotonic() + support.WAIT_S
        while (await self.digest_of_swap()) != want:
            if time.monotonic() > end:
                self.fail("SIGHUP did not bring the new folder")
                break
            await asyncio.sleep(0.02)
        self.swap.done()

    async def digest_of_swap(self):
        models = await asyncio.to_thread(self.server.models)
        return models["swap"]["digest"]

    async def load_extra(self, client):
        self.extra.begin("spanish")
        support.put_folder(self.folder("spanish"), self.root / "extra")
        await self.admin(client, "/v1/load_lora_adapter", {"lora_name": "extra", "lora_path": "extra"})
        self.extra.done()

    async def unload_extra(self, client):
        self.extra.begin(None)
        shutil.rmtree(self.root / "extra")
        await self.admin(client, "/v1/unload_lora_adapter", {"lora_name": "extra"})
        self.extra.done()

    async def unload_and_load_swap(self, client):
        present = self.swap.present
        self.swap.begin(None)
        await self.admin(client, "/v1/unload_lora_adapter", {"lora_name": "swap"})
        self.swap.done()
        await asyncio.sleep(0.1)
        self.swap.begin(present)
        await self.admin(client, "/v1/load_lora_adapter", {"lora_name": "swap", "lora_path": "swap"})
        self.swap.done()

    async def refused(self, client):
        """Changes that must change nothing."""
        await self.admin(client, "/v1/load_lora_adapter", {"lora_name": "swap", "lora_path": "swap"}, 409)
        await self.admin(client, "/v1/load_lora_adapter", {"lora_name": "other", "lora_path": "../swap"}, 400)
        await self.admin(client, "/v1/unload_lora_adapter", {"lora_name": "other"}, 404)

    # --- the whole ---

    async def load(self):
        self.begin = time.monotonic()
        tasks = [asyncio.create_task(self.worker(i)) for i in range(self.workers)]
        tasks.append(asyncio.create_task(self.changes()))
        while time.monotonic() - self.begin < self.seconds and not self.over and self.server.alive():
            done, _ = await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                self.fail(f"a client ended: {task.exception()!r}")
                self.over = True
        self.over = True
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                self.fail(f"a client ended: {result!r}")

    def finish(self):
        """What must be true at the end."""
        growth = 0
        if not self.server.alive():
            self.fail(f"the server ended with status {self.server.process.returncode}")
        else:
            metrics = self.server.wait_until_idle()
            if metrics["vllm:kv_cache_usage_perc"] != 0:
                self.fail(f"requests still hold {metrics['vllm:kv_cache_usage_perc']:.3f} of the cache's pages")
            # Also what the prefix cache keeps belongs to somebody who is still there.
            for name in support.ADAPTERS + ("swap",) * (self.swap.present is not None):
                answer = self.server.complete(name, "And", max_tokens=1)
                if answer.status != 200:
                    self.fail(f"{name} at the end: {answer!r}")
            self.wait_for_slots()
            growth = self.growth()
            self.counts["preemptions"] = int(metrics["vllm:num_preemptions_total"])
            self.counts["prefix hits"] = int(metrics["vllm:prefix_cache_hits_total"])
            if self.server.stop() != 0:
                self.fail(f"exit status {self.server.process.returncode} after SIGTERM")
        return growth

    def wait_for_slots(self):
        """Versions that were replaced have left their slots: as many are used as adapters are loaded."""
        end = time.monotonic() + support.WAIT_S
        want = len(self.server.models()) - 1
        while (used := self.server.metrics()["cadre_adapter_slots_used"]) > want:
            if time.monotonic() > end:
                return self.fail(f"{used:.0f} slots are used, and {want} adapters are loaded")
            time.sleep(0.05)

    def growth(self):
        warm = min(WARM_S, self.seconds / 3)
        later = [size for at, size in self.memory if at >= warm]
        if len(later) < 4:
            self.fail(f"memory was read {len(later)} times after {warm:.0f} s")
            return 0
        # From the level after warming up to the highest ever seen.
        level = percentile(later[: max(1, len(later) // 8)], 0.5)
        growth = max(later) - level
        if growth >= MAX_GROWTH:
            self.fail(f"resident memory grew by {growth / 2**20:.1f} MiB after {warm:.0f} s: "
                      f"{[round(size / 2**20, 1) for _, size in self.memory[:: max(1, len(self.memory) // 40)]]}")
        return growth

    def run(self):
        try:
            self.start()
            asyncio.run(self.load())
            seconds = time.monotonic() - self.begin
            growth = self.finish()
            for name, least in (("right answers", 50), ("left in mid-stream", 3), ("changes", self.seconds / 3)):
                if self.counts[name] < least:
                    self.fail(f"only {self.counts[name]} {name} in {seconds:.0f} s")
        finally:
            if hasattr(self, "server"):
                if self.failures:
                    print(self.server.log()[-3000:])
                self.server.__exit__()
            shutil.rmtree(self.root, ignore_errors=True)
        for failure in self.failures:
            print(f"soak: FAILED: {failure[:2000]}")
        rss = [size / 2**20 for _, size in self.memory] or [0]
        times = "/".join(f"{percentile(self.first or [0], share) * 1e3:.0f}" for share in (0.5, 0.95)) + " ms"
        say(f"{self.family}: {seconds:.0f} s, {self.workers} clients, "
            + ", ".join(f"{count} {name}" for name, count in self.counts.items())
            + f", {self.swap.changes} versions of one name, first text p50/p95 {times}, "
            f"memory {rss[0]:.1f} to {rss[-1]:.1f} MiB, growth after warming up {growth / 2**20:.1f} MiB, "
            f"{len(self.failures)} failures")
        return 1 if self.failures else 0


def say(text):
    print(f"soak: {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--family", default="qwen3_moe")
    parser.add_argument("--workers", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    support.configure(arguments.binary, arguments.source)
    return Soak(arguments).run()


if __name__ == "__main__":
    sys.exit(main())
