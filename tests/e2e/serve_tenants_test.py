"""Tenants of `cadre serve --keys`: what a key sees and uses, and that it can tell nothing of another's."""

import asyncio
import hashlib
import json
import re
import signal
import time

import serve_load_support as support
from serve_load_support import ADMIN, Case, Client, ServeTest, adapter_folder, chat_body, completion_body, put_folder

RED, BLUE, GREEN = "red-key-0123456789", "blue-key-0123456789", "green-key-0123456789"
KEYS = {"red": RED, "blue": BLUE, "green": GREEN}
GOLD = "Element: gold"
PROMPT = "Now therefore hear the word of the LORD, all ye of the land, and ye that dwell by the sea. " * 3


def entry(tenant, key=None, **more):
    return {"tenant": tenant, "sha256": hashlib.sha256((key or KEYS[tenant]).encode()).hexdigest(), **more}


class TenantsTest(ServeTest):
    def start(self, *entries, flags=(), **options):
        self.folder = self.temp_dir()
        self.root = self.folder / "adapters"
        for name in support.ADAPTERS:
            put_folder(adapter_folder(name), self.root / name)
        self.write_keys(*entries)
        return self.serve("--adapter-dir", self.root, "--keys", self.folder / "keys.json", "--max-loras", 3,
                          "--max-lora-rank", 16, *flags, env={"CADRE_SERVE_ADMIN_KEY": ADMIN}, **options)

    def write_keys(self, *entries):
        self.file(self.folder, "keys.json", json.dumps({"keys": list(entries)}))

    def shows_no_path(self, answer):
        for secret in (str(self.folder), str(support.SOURCE), "/proc/", "/tmp/"):
            self.assertNotIn(secret, answer.text)
            self.assertFalse([value for value in answer.headers.values() if secret in value])

    def without_name(self, answer, name):
        """What two refusals must have in common: all but the name that was asked for."""
        headers = {k: v for k, v in answer.headers.items() if k not in ("date", "x-request-id", "content-length")}
        return answer.status, answer.text.replace(name, "NAME"), headers


class Sees(TenantsTest):
    def test_only_its_own_adapters(self):
        server = self.start(entry("red", adapters=["el*"]), entry("blue", adapters=["jargon"], base=False),
                            entry("green"))
        for key, names in ((RED, {"qwen3_moe", "elements"}), (BLUE, {"jargon"}), (GREEN, {"qwen3_moe"}),
                           (ADMIN, {"qwen3_moe", *support.ADAPTERS})):
            self.assertEqual(set(server.models(key)), names)
        self.assertEqual(self.ok(server.post("/v1/chat/completions", chat_body("elements", GOLD), RED))["model"],
                         "elements")
        for name in ("jargon", "spanish", "qwen3_moe:jargon"):
            self.like_unknown(server, RED, name)
        for name in ("elements", "qwen3_moe", "qwen3_moe:elements"):
            self.like_unknown(server, BLUE, name)
        # A request that names no model asks for the base.
        body = completion_body("", "And")
        del body["model"]
        self.assertEqual(server.post("/v1/completions", body, BLUE).status, 404)
        self.ok(server.post("/v1/completions", body, RED))
        self.finished(server, ADMIN)

    def like_unknown(self, server, key, name):
        """On every route the answer for `name` is that for a name that nobody has."""
        unknown = "x" * len(name)
        for method, path, body in (
                ("GET", "/v1/models/{}", None),
                ("POST", "/v1/chat/completions", chat_body("{}", GOLD)),
                ("POST", "/v1/chat/completions", chat_body("{}", GOLD, stream=True)),
                ("POST", "/v1/completions", completion_body("{}", "And")),
                # Refused for another reason too: that must not tell one from the other.
                ("POST", "/v1/completions", completion_body("{}", [99999999])),
                ("POST", "/v1/completions", completion_body("{}", [1] * 5000)),
                ("POST", "/tokenize", {"model": "{}", "prompt": "x"}),
                ("POST", "/detokenize", {"model": "{}", "tokens": [1]}),
                ("POST", "/v1/load_lora_adapter", {"lora_name": "{}", "lora_path": "{}"}),
                ("POST", "/v1/unload_lora_adapter", {"lora_name": "{}"})):
            answers = []
            for asked in (name, unknown):
                text = None if body is None else json.dumps(body).replace("{}", asked)
                answer = server.call(method, path.replace("{}", asked), text, key)
                self.shows_no_path(answer)
                answers.append(self.without_name(answer, asked))
            self.assertEqual(answers[0], answers[1])
            self.assertEqual(answers[0][0], 403 if "lora" in path else 404, answers[0])

    def test_no_path_of_the_file_system(self):
        server = self.start(entry("red", adapters=["*"], metrics=True))
        bodies = {
            "/v1/chat/completions": [chat_body("elements", GOLD), chat_body("elements", GOLD, stream=True),
                                     chat_body("none", GOLD), chat_body("elements", "long " * 600), "{", "[]",
                                     chat_body("../elements", GOLD), chat_body("/etc/passwd", GOLD),
                                     {**chat_body("elements", GOLD), "chat_template_kwargs": {"a": [[]]}},
                                     {"model": "elements", "messages": [{"role": "x" * 99, "content": None}]}],
            "/v1/completions": [completion_body("elements", [10**8]), completion_body("elements", "And", logprobs=5)],
            "/tokenize": [{"prompt": "x"}, {"model": "elements", "messages": [{"role": "user", "content": "x"}]}],
            "/detokenize": [{"tokens": [1, 2]}, {"tokens": [-1]}, {"tokens": [10**8]}],
            "/v1/load_lora_adapter": [{"lora_name": "x", "lora_path": path} for path in ("elements", "no", "../x")],
            "/v1/unload_lora_adapter": [{"lora_name": "elements"}], "/v1/rescan_lora_adapters": [{}],
        }
        for key in (RED, None, "wrong"):
            for path in ("/health", "/ready", "/version", "/metrics", "/explain", "/v1/models", "/v1/models/elements",
                         "/nothing", "/v1/models/../../etc/passwd", "/v1/models/%2e%2e%2fetc"):
                self.shows_no_path(server.get(path, key))
            for path, sent in bodies.items():
                for body in sent:
                    self.shows_no_path(server.post(path, body, key))
        self.assertIn(str(self.root / "elements"), server.get("/v1/models/elements", ADMIN).text)
        self.finished(server, ADMIN)

    def test_keys_cover_every_route_but_health(self):
        server = self.start(entry("red"))
        self.assertEqual(server.get("/health").status, 200)
        routes = [("GET", path) for path in ("/ready", "/version", "/metrics", "/explain", "/v1/models", "/nothing",
                                             "/v1/models/x")]
        routes += [("POST", path) for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
                                               "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                                               "/v1/rescan_lora_adapters")]
        for method, path in routes:
            for key in (None, "wrong", RED[:-1], RED + "x", ""):
                answer = server.call(method, path, "{}" if method == "POST" else None, key)
                self.refused(answer, 401)
                self.assertIn("Bearer", answer.headers["www-authenticate"])
        self.finished(server, ADMIN)

    def test_metrics_and_the_selection(self):
        server = self.start(entry("red", adapters=["elements"]), entry("blue", adapters=["*"], metrics=True))
        self.ok(server.complete("elements", "And", key=RED))
        self.refused(server.get("/metrics", RED), 403)
        for key in (BLUE, ADMIN):
            self.assertIn('tenant="red"', server.get("/metrics", key).text)
        for key in (RED, BLUE, ADMIN):
            answer = server.get("/explain", key)
            if key == RED:
                # The selection names layers and backends; never adapters, which may be another's.
                self.assertIn(answer.status, (200, 403))
            else:
                self.ok(answer)
            for name in ("jargon", "spanish"):
                self.assertNotIn(name, answer.text)
        self.finished(server, ADMIN)

    def test_expired_and_changed_keys(self):
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        server = self.start(entry("red", expires=soon), entry("blue", expires="2020-01-01"), entry("green"))
        self.refused(server.get("/v1/models", BLUE), 401)
        unknown = server.get("/v1/models", "never-a-key")
        expired = server.get("/v1/models", BLUE)
        self.assertEqual(self.without_name(unknown, ""), self.without_name(expired, ""))
        end = time.monotonic() + 10
        while server.get("/v1/models", RED).status != 401:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        # Reading the file again: a key goes, one comes; a broken file changes nothing.
        self.write_keys(entry("red"), entry("blue"))
        server.signal(signal.SIGHUP)
        server.wait_for_log(r"keys read")
        for key, status in ((RED, 200), (BLUE, 200), (GREEN, 401)):
            self.assertEqual(server.get("/v1/models", key).status, status)
        for number, text in enumerate(("", "{", '{"keys": [{}]}', '{"keys": 5}')):
            self.file(self.folder, "keys.json", text)
            server.signal(signal.SIGHUP)
            server.wait_for_log(rf"(?s)(keys stay as they were.*){{{number + 1}}}")
            self.assertEqual(server.get("/v1/models", RED).status, 200)
            self.assertEqual(server.get("/v1/models", GREEN).status, 401)
        (self.folder / "keys.json").unlink()
        server.signal(signal.SIGHUP)
        server.wait_for_log(r"(?s)(keys stay as they were.*){5}")
        self.assertEqual(server.get("/v1/models", RED).status, 200)
        self.finished(server, ADMIN)

    def test_a_running_answer_keeps_the_rights_it_came_with(self):
        server = self.start(entry("red", adapters=["spanish"]))
        case = Case("Y dijo", False, 400, ignore_eos=True)
        case.compute()

        async def run():
            clients = [Client(server.port, RED) for _ in range(6)]
            tasks = [asyncio.create_task(c.ask(case.path, case.body("spanish", stream=True))) for c in clients]
            while server.metrics(ADMIN)["vllm:generation_tokens_total"] < 6:
                await asyncio.sleep(0.002)
            self.write_keys(entry("blue"))
            server.signal(signal.SIGHUP)
            while server.get("/v1/models", RED).status != 401:
                await asyncio.sleep(0.002)
            replies = await asyncio.gather(*tasks)
            for client in clients:
                await client.close()
            return replies

        for reply in asyncio.run(run()):
            self.assertEqual((reply.text, reply.finish[0]), case.want["spanish"])
        self.finished(server, ADMIN)


class Cache(TenantsTest):
    def cached(self, server, key, prompt=PROMPT, model="elements", **more):
        usage = self.ok(server.complete(model, prompt, 1, key=key, **more))["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    def start_two(self, *flags):
        return self.start(entry("red", adapters=["*"]), entry("blue", adapters=["*"]), flags=flags)

    def test_nothing_of_anothers_prompt(self):
        server = self.start_two()
        self.assertEqual(self.cached(server, RED), 0)
        own = self.cached(server, RED)
        self.assertGreater(own, 0)
        self.assertEqual(self.cached(server, BLUE), 0, "a tenant can tell that another sent the same prompt")
        self.assertEqual(self.cached(server, BLUE), own)
        self.assertEqual(self.cached(server, ADMIN), 0)
        # A salt of the client's own cannot reach another's either.
        for salt in ("3:red", "red", "0:", "4:blue3:red", "\u00003:red"):
            self.assertEqual(self.cached(server, BLUE, cache_salt=salt), 0)
        self.assertEqual(self.cached(server, RED, model="jargon"), 0)
        self.finished(server, ADMIN)

    def test_shared_where_asked_for(self):
        server = self.start_two("--share-prefix-cache")
        self.assertEqual(self.cached(server, RED), 0)
        self.assertGreater(self.cached(server, BLUE), 0)
        self.assertEqual(self.cached(server, BLUE, cache_salt="own"), 0)
        self.finished(server, ADMIN)

    def test_off(self):
        server = self.start_two("--no-enable-prefix-caching")
        for _ in range(2):
            self.assertEqual(self.cached(server, RED), 0)
        self.finished(server, ADMIN)


class Limits(TenantsTest):
    def limited(self, answer, reason):
        error = self.refused(answer, 429, reason)
        self.assertEqual(error["type"], "rate_limit_error")
        self.assertRegex(answer.headers["retry-after"], r"^[1-9]\d*$")
        return int(answer.headers["retry-after"])

    def test_requests_and_tokens_a_minute(self):
        server = self.start(entry("red", adapters=["*"], requests_per_minute=5),
                            entry("blue", adapters=["*"], tokens_per_minute=60), entry("green", adapters=["*"]))
        for _ in range(5):
            self.ok(server.complete("elements", "And", 1, key=RED))
        wait = self.limited(server.complete("elements", "And", 1, key=RED), "5 requests a minute")
        self.assertLessEqual(wait, 12)
        # Looking costs nothing, and a refusal tells nothing of the model.
        self.assertEqual(server.get("/v1/models", RED).status, 200)
        self.ok(server.complete("elements", list(range(100, 130)), 20, key=BLUE, ignore_eos=True))
        self.limited(server.complete("elements", list(range(100, 130)), 1, key=BLUE), "60 a minute")
        self.refused(server.complete("elements", list(range(100, 200)), 1, key=BLUE), 400, "100 tokens",
                     "prompt_over_token_limit")
        for _ in range(8):
            self.ok(server.complete("elements", list(range(100, 130)), 8, key=GREEN))
        self.assertEqual(server.metrics(ADMIN)['cadre_rejected_total{reason="requests_per_minute"}'], 1)
        self.finished(server, ADMIN)

    def test_requests_at_a_time(self):
        server = self.start(entry("red", adapters=["*"], max_concurrency=2), entry("blue", adapters=["*"]))
        case = Case("Y dijo", False, 400, ignore_eos=True)
        case.compute()

        async def run():
            clients = [Client(server.port, key) for key in [RED] * 6 + [BLUE] * 6]
            replies = await asyncio.gather(*(client.ask(case.path, case.body("spanish")) for client in clients))
            # The places come free again.
            again = await clients[0].ask(case.path, case.body("spanish"))
            for client in clients:
                await client.close()
            return replies[:6], replies[6:], again

        red, blue, again = asyncio.run(run())
        self.assertEqual(sorted(reply.status for reply in red), [200] * 2 + [429] * 4)
        for reply in red:
            if reply.status == 429:
                self.assertRegex(reply.json["error"]["message"], "limit is 2 requests at a time")
                self.assertIn("retry-after", reply.headers)
        self.assertEqual({reply.status for reply in blue}, {200})
        for reply in [reply for reply in red + blue + [again] if reply.status == 200]:
            self.assertEqual(reply.text, case.want["spanish"][0])
        self.finished(server, ADMIN)

    def test_one_after_the_other(self):
        """Who has its answer has its place back: the next request never finds the last one still counted."""
        server = self.start(entry("red", adapters=["*"], max_concurrency=1))

        async def run():
            client = Client(server.port, RED)
            for i in range(300):
                body = completion_body("elements", "And", 1 + i % 2, stream=i % 3 == 0)
                reply = await client.ask("/v1/completions", body)
                self.assertEqual(reply.status, 200, f"request {i}: {reply!r}")
            await client.close()

        asyncio.run(run())
        self.finished(server, ADMIN)

    def test_priority(self):
        """A key's own priority goes before; asking for a better one than the key has changes nothing."""
        server = self.start(entry("red", adapters=["*"], priority=5), entry("blue", adapters=["*"], priority=-5),
                            flags=["--max-num-seqs", 1])

        async def run():
            done = []

            async def ask(client, label, **more):
                reply = await client.ask("/v1/completions",
                                         completion_body("elements", "And", 40, ignore_eos=True, **more))
                self.assertEqual(reply.status, 200, reply)
                done.append(label)
                await client.close()

            tasks = [asyncio.create_task(ask(Client(server.port, RED), "red", priority=-1000)) for _ in range(12)]
            while server.metrics(ADMIN)["vllm:num_requests_waiting"] < 9:
                await asyncio.sleep(0.001)
            tasks += [asyncio.create_task(ask(Client(server.port, BLUE), "blue")) for _ in range(4)]
            await asyncio.gather(*tasks)
            return done

        done = asyncio.run(run())
        self.assertEqual(done.count("blue"), 4)
        last_blue = len(done) - done[::-1].index("blue")
        self.assertLessEqual(done[:last_blue].count("red"), 7, done)
        self.assertEqual(done[-5:], ["red"] * 5, done)
        self.finished(server, ADMIN)

    def test_one_tenant_cannot_fill_the_queue(self):
        server = self.start(entry("red", adapters=["*"]), entry("blue", adapters=["*"]),
                            flags=["--max-num-seqs", 1, "--max-queued-requests", 20])

        async def run():
            flood = [Client(server.port, RED) for _ in range(60)]
            body = completion_body("spanish", "Y", 200, ignore_eos=True)
            tasks = [asyncio.create_task(client.ask("/v1/completions", body)) for client in flood]
            while server.metrics(ADMIN).get('cadre_rejected_total{reason="queue_full"}', 0) < 5:
                await asyncio.sleep(0.002)
            other = Client(server.port, BLUE)
            answers = [await other.ask("/v1/completions", completion_body("elements", "And", 2)) for _ in range(12)]
            pending = sum(not task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for client in [*flood, other]:
                await client.close()
            return answers, pending

        answers, pending = asyncio.run(run())
        self.assertEqual([answer.status for answer in answers], [200] * 12, answers)
        self.assertGreater(pending, 0, "the flood was over before the other tenant was served")
        self.finished(server, ADMIN)


if __name__ == "__main__":
    support.main(__doc__)
