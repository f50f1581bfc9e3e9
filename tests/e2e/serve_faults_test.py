"""Faults of the machine, of clients and of adapters while `cadre serve` answers: it neither ends nor hangs, nor gives
one client what is another's."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import threading
import time

import serve_load_support as support
from serve_load_support import (ADMIN, Case, Client, Closed, ServeTest, adapter_folder, chat_body, completion_body,
                                open_socket, put_folder, read_all, request_bytes)

GOLD = "Element: gold"
GOLD_TEXT = "Au, number 79"
ADMIN_ENV = {"CADRE_SERVE_ADMIN_KEY": ADMIN}
LONG = {"ignore_eos": True}


def free_port():
    with contextlib.closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class FaultsTest(ServeTest):
    def gold(self, server, model="elements", key=None):
        """The answer everybody knows."""
        answer = self.ok(server.post("/v1/chat/completions", chat_body(model, GOLD), key))
        return answer["choices"][0]["message"]["content"]

    def well(self, server, key=None):
        """Serves right answers, and ends with everything given back."""
        self.assertTrue(server.alive(), server.log()[-2000:])
        self.assertEqual(self.gold(server, key=key), GOLD_TEXT)
        self.finished(server, key)


class Shutdown(FaultsTest):
    async def streams(self, server, case, count, begun):
        async def one():
            client = Client(server.port)
            try:
                return await client.ask(case.path, case.body("spanish", stream=True))
            except Closed as error:
                return error
            finally:
                await client.close()

        tasks = [asyncio.create_task(one()) for _ in range(count)]
        while server.metrics()["vllm:generation_tokens_total"] < count:
            await asyncio.sleep(0.005)
        await begun()
        return await asyncio.gather(*tasks)

    def case(self):
        case = Case("Y dijo", False, 300, **LONG)
        case.compute()
        return case

    def test_sigterm_lets_running_replies_finish(self):
        case = self.case()
        server = self.serve(*support.adapter_flags("spanish"))
        idle = open_socket(server.port)
        late = []

        async def begun():
            server.signal(signal.SIGTERM)
            for _ in range(50):
                try:
                    late.append(support.call(server.port, "POST", "/v1/completions", completion_body("spanish", "Y")))
                except ConnectionError:  # refused, or accepted by the system alone and then dropped
                    late.append(None)
                await asyncio.sleep(0.002)

        replies = asyncio.run(self.streams(server, case, 24, begun))
        for reply in replies:
            self.assertTrue(getattr(reply, "complete", False), reply)
            self.assertEqual((reply.text, reply.finish[0]), case.want["spanish"])
        self.assertIsNone(late[-1], "still listening while it drains")
        for answer in late:
            if answer is not None and answer.status != 200:  # it came before the signal did
                self.refused(answer, 503)
        self.assertEqual(idle.recv(1), b"", "an idle connection stays open while it drains")
        self.assertEqual(server.wait(), 0, server.log()[-2000:])
        self.assertIn("all replies are complete", server.log())

    def test_a_second_sigterm_ends_it_at_once(self):
        server = self.serve(*support.adapter_flags("spanish"), "--max-num-seqs", 1)

        async def begun():
            server.signal(signal.SIGTERM)
            await asyncio.sleep(0.7)  # sooner it would count as the same wish
            self.assertTrue(server.alive())
            server.signal(signal.SIGTERM)

        replies = asyncio.run(self.streams(server, self.case(), 24, begun))
        self.assertEqual(server.wait(10), 128 + signal.SIGTERM)
        self.assertTrue(any(isinstance(reply, Closed) for reply in replies))

    def test_what_outlasts_the_drain_timeout_is_cut_off(self):
        server = self.serve(*support.adapter_flags("spanish"), "--max-num-seqs", 1, "--drain-timeout", 0.2)
        case = self.case()

        async def begun():
            server.signal(signal.SIGTERM)

        replies = asyncio.run(self.streams(server, case, 24, begun))
        self.assertEqual(server.wait(10), 1, server.log()[-2000:])
        cut = [reply for reply in replies if isinstance(reply, Closed)]
        self.assertTrue(cut)
        for reply in replies:
            if not isinstance(reply, Closed):
                self.assertEqual((reply.text, reply.finish[0]), case.want["spanish"])

    def test_killed_and_started_again_on_the_same_port(self):
        case = self.case()
        server = self.serve(*support.adapter_flags("spanish", "elements"))

        async def begun():
            server.signal(signal.SIGKILL)

        replies = asyncio.run(self.streams(server, case, 8, begun))
        self.assertTrue(all(isinstance(reply, Closed) for reply in replies), replies)
        self.assertEqual(server.wait(), -signal.SIGKILL)
        again = self.serve(*support.adapter_flags("spanish", "elements"), port=server.port)
        self.assertEqual(again.port, server.port)
        self.well(again)

    def test_a_port_that_is_taken(self):
        server = self.serve(*support.adapter_flags("elements"))
        with self.assertRaisesRegex(AssertionError, r"(?s)exit status 9.*cannot listen on 127\.0\.0\.1:\d+: Address"):
            self.serve(port=server.port)
        self.well(server)

    def test_a_log_that_cannot_be_written(self):
        port = free_port()
        with open("/dev/full", "wb", buffering=0) as full:
            server = self.serve(*support.adapter_flags("elements"), port=port, stderr=full)
        end = time.monotonic() + support.START_S
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                if server.get("/health").status == 200:
                    break
            self.assertTrue(server.alive())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        for _ in range(20):
            self.assertEqual(self.gold(server), GOLD_TEXT)
        self.refused(server.post("/v1/completions", "{"), 400)
        self.assertEqual(server.stop(), 0)

    def test_a_log_whose_reader_is_gone(self):
        port = free_port()
        reading, writing = os.pipe()
        server = self.serve(*support.adapter_flags("elements"), port=port, stderr=writing)
        os.close(writing)
        with open(reading, "rb", buffering=0) as log:
            text = b""
            while b"serving on" not in text:
                piece = log.read(4096)
                self.assertTrue(piece, text)
                text += piece
        for _ in range(5):
            self.assertEqual(self.gold(server), GOLD_TEXT)
        self.assertEqual(server.stop(), 0)


class Folder(FaultsTest):
    """What happens to an adapter's files."""

    def root(self, *names):
        root = self.temp_dir()
        for name in names:
            put_folder(adapter_folder(name), root / name)
        return root

    def test_files_that_change_while_they_are_read(self):
        root = self.root("elements", "jargon")
        server = self.serve("--adapter-dir", root, "--max-loras", 3, "--max-lora-rank", 16, env=ADMIN_ENV)
        want = {name: self.gold(server, name) for name in ("elements", "jargon")}
        victim, whole = root / "victim", {
            name: (adapter_folder(name) / "adapter_model.safetensors").read_bytes() for name in ("elements", "jargon")}
        put_folder(adapter_folder("elements"), victim)
        stop = threading.Event()
        rng = random.Random(5)

        def disturb():
            weights = victim / "adapter_model.safetensors"
            while not stop.is_set():
                with contextlib.suppress(FileNotFoundError):
                    kind = rng.randrange(5)
                    if kind == 0:
                        os.truncate(weights, rng.choice([0, 7, 8, 100, 5000, len(whole["elements"]) - 1]))
                    elif kind == 1:
                        weights.write_bytes(whole[rng.choice(["elements", "jargon"])])  # in place: torn for readers
                    elif kind == 2:
                        shutil.rmtree(victim)
                    elif kind == 3:
                        weights.write_bytes(rng.randbytes(64) + whole["elements"][64:])
                    elif kind == 4 and not victim.exists():
                        put_folder(adapter_folder(rng.choice(["elements", "jargon"])), victim)
                time.sleep(rng.random() * 0.004)

        thread = threading.Thread(target=disturb)
        thread.start()
        statuses = []
        try:
            for i in range(150):
                answer = server.load("victim", replace=True)
                statuses.append(answer.status)
                if answer.status == 200:
                    # Whole, of one of the two: its digest says which.
                    digests = {card["digest"]: name for name, card in server.models().items() if name in want}
                    name = digests.get(answer.json["digest"])
                    if name is not None:
                        self.assertEqual(self.gold(server, "victim"), want[name])
                else:
                    self.assertIn(self.refused(answer, answer.status)["code"],
                                  ("invalid_file", "not_found", "conflict", "invalid_argument"))
                if i % 10 == 0:
                    self.assertEqual(self.gold(server), GOLD_TEXT)
                    server.signal(signal.SIGHUP)
        finally:
            stop.set()
            thread.join()
        shutil.rmtree(victim, ignore_errors=True)
        put_folder(adapter_folder("jargon"), victim)
        self.ok(server.load("victim", replace=True))
        self.assertEqual(self.gold(server, "victim"), want["jargon"])
        self.assertGreater(len(set(statuses)), 1, statuses)
        self.well(server)

    def test_a_loaded_adapter_outlives_its_files(self):
        root = self.root("elements", "jargon")
        server = self.serve("--adapter-dir", root, env=ADMIN_ENV)
        os.truncate(root / "elements" / "adapter_model.safetensors", 0)
        self.assertEqual(self.gold(server), GOLD_TEXT)
        shutil.rmtree(root / "elements")
        self.assertEqual(self.gold(server), GOLD_TEXT)
        self.refused(server.load("elements", replace=True), 404)
        self.well(server)

    def test_files_cut_at_every_kind_of_place(self):
        root = self.root("elements")
        server = self.serve("--adapter-dir", root, "--max-loras", 2, "--max-lora-rank", 16, env=ADMIN_ENV)
        whole = (adapter_folder("elements") / "adapter_model.safetensors").read_bytes()
        config = (adapter_folder("elements") / "adapter_config.json").read_text()
        bad = root / "bad"
        put_folder(adapter_folder("elements"), bad)
        for size in (0, 1, 8, 9, 500, len(whole) // 2, len(whole) - 1):
            (bad / "adapter_model.safetensors").write_bytes(whole[:size])
            self.refused(server.load("bad"), 400, code="invalid_file")
        (bad / "adapter_model.safetensors").write_bytes(whole)
        for text in ("", "{", "[]", "null", config[: len(config) // 2], config.replace('"r"', '"q"')):
            (bad / "adapter_config.json").write_text(text)
            self.refused(server.load("bad"), 400)
        (bad / "adapter_config.json").unlink()
        self.refused(server.load("bad"), 404)
        (bad / "adapter_config.json").write_text(config)
        (bad / "adapter_model.safetensors").unlink()
        self.refused(server.load("bad"), server.load("bad").status)
        self.assertNotIn("bad", server.models())
        self.assertGreaterEqual(server.metrics()["cadre_adapter_load_failures_total"], 13)
        self.well(server)

    def test_an_adapter_on_disk_whose_folder_goes(self):
        root = self.root("elements", "jargon", "spanish")
        server = self.serve("--adapter-dir", root, "--max-loras", 1, "--max-lora-rank", 16, "--max-cpu-loras", 1,
                            env=ADMIN_ENV)
        jargon = self.gold(server, "jargon")
        spanish = self.gold(server, "spanish")
        self.assertEqual(self.gold(server), GOLD_TEXT)  # the others are on disk now
        self.assertEqual(server.metrics()['cadre_adapters{tier="disk"}'], 2)
        (root / "jargon").rename(root / ".away")
        answer = server.post("/v1/chat/completions", chat_body("jargon", GOLD))
        self.assertGreaterEqual(answer.status, 400, answer)
        self.assertNotIn(str(root), answer.text, "a path of the file system is shown to everybody")
        stream = server.post("/v1/chat/completions", chat_body("jargon", GOLD, stream=True))
        self.assertIn('"error"', stream.text)
        self.assertNotIn(str(root), stream.text, "a path of the file system is shown to everybody")
        self.assertEqual(self.gold(server), GOLD_TEXT)
        self.assertEqual(self.gold(server, "spanish"), spanish)
        (root / ".away").rename(root / "jargon")
        self.assertEqual(self.gold(server, "jargon"), jargon)
        self.assertEqual(self.gold(server), GOLD_TEXT)
        # Other content under the same name is not taken for the version that was loaded.
        put_folder(adapter_folder("spanish"), root / "jargon")
        answer = server.post("/v1/chat/completions", chat_body("jargon", GOLD))
        self.assertGreaterEqual(answer.status, 400, answer)
        self.assertNotIn(str(root), answer.text)
        self.ok(server.load("jargon", replace=True))
        self.assertEqual(self.gold(server, "jargon"), spanish)
        self.well(server)

    def test_hangup_reads_the_folder_again(self):
        root = self.root("elements", "jargon", "spanish")
        server = self.serve("--adapter-dir", root, "--max-loras", 4, "--max-lora-rank", 16, env=ADMIN_ENV)
        before = server.models()
        jargon = self.gold(server, "jargon")
        put_folder(adapter_folder("jargon"), root / "new")
        put_folder(adapter_folder("jargon"), root / "elements")  # changed
        shutil.rmtree(root / "spanish")
        put_folder(adapter_folder("spanish"), root / "broken")
        os.truncate(root / "broken" / "adapter_model.safetensors", 99)
        (root / "a name with spaces").mkdir()
        (root / "no-adapter").mkdir()
        (root / "out").symlink_to(adapter_folder("spanish"))
        server.signal(signal.SIGHUP)
        server.wait_for_log(r"adapter folder read.*unloaded=1")
        after = server.models()
        self.assertEqual(set(after), (set(before) | {"new"}) - {"spanish"})
        self.assertGreater(after["elements"]["version"], before["elements"]["version"])
        self.assertEqual(after["jargon"]["version"], before["jargon"]["version"])
        self.assertEqual(self.gold(server, "elements"), jargon)
        self.assertEqual(self.gold(server, "new"), jargon)
        self.refused(server.post("/v1/chat/completions", chat_body("spanish", GOLD)), 404)
        for name in ("broken", "a name with spaces", "no-adapter", "out"):
            self.assertRegex(server.log(), rf"adapter passed over.*{name}")
        put_folder(adapter_folder("elements"), root / "elements")
        self.ok(server.post("/v1/rescan_lora_adapters", {}, ADMIN))
        self.well(server)

    def test_names_and_paths(self):
        root = self.root("elements")
        (root / "link").symlink_to(adapter_folder("spanish"))
        put_folder(adapter_folder("spanish"), root / "half")
        weights = root / "half" / "adapter_model.safetensors"
        weights.unlink()
        weights.symlink_to(adapter_folder("spanish") / weights.name)
        (root / "inside").symlink_to("elements")
        server = self.serve("--adapter-dir", root, "--max-loras", 3, "--max-lora-rank", 16, env=ADMIN_ENV)
        for path in ("..", "../elements", "elements/../../x", "/", "/etc", str(adapter_folder("spanish")), ".", "./",
                     "link", "half", ".hidden", "a\0b", "a\nb", "x" * 5000, "/".join("a" * 30), "nothing", "%2e%2e/x",
                     f"{root}/../x", f"{root}", "elements/adapter_config.json"):
            self.assertIn(server.load("other", path).status, (400, 404), path)
        for name in ("", "..", ".", "a/b", "../x", "a b", "a\0", "x" * 129, ".x", "\u00e9", "a\"b", "qwen3_moe",
                     "base"):
            answer = server.load(name, "elements")
            self.assertIn(answer.status, (400, 409), (name, answer))
        self.assertEqual(set(server.models()), {"qwen3_moe", "elements", "inside"})
        self.ok(server.load("other", f"{root}/elements"))
        self.assertEqual(self.gold(server, "other"), GOLD_TEXT)
        self.assertEqual(self.gold(server, "inside"), GOLD_TEXT)
        for body in ("", "[]", "{}", '{"lora_name": 1, "lora_path": "x"}', '{"lora_name": "x"}',
                     '{"lora_name": "x", "lora_path": "elements", "unknown": 1}'):
            self.refused(server.post("/v1/load_lora_adapter", body, ADMIN), 400)
        self.refused(server.unload("nothing"), 404)
        self.refused(server.unload("qwen3_moe"), 404)
        self.well(server)

    def test_without_the_admin_key(self):
        root = self.root("elements")
        server = self.serve("--adapter-dir", root, env={**ADMIN_ENV, "CADRE_SERVE_API_KEY": "user-key"})
        for key, status in (("user-key", 403), (None, 401), ("wrong", 401)):
            self.refused(server.load("other", "elements", key=key), status)
            self.refused(server.unload("elements", key=key), status)
            self.refused(server.post("/v1/rescan_lora_adapters", {}, key), status)
        self.assertEqual(set(server.models("user-key")), {"qwen3_moe", "elements"})
        self.well(server, "user-key")
        off = self.serve("--adapter-dir", root)
        self.refused(off.load("other", "elements", key=None), 403, "off")
        self.refused(off.load("other", "elements", key="any"), 403, "off")
        self.well(off)

    def test_unloaded_while_it_answers(self):
        root = self.root("elements", "spanish")
        case = Case("Y dijo", False, 400, **LONG)
        case.compute()
        server = self.serve("--adapter-dir", root, "--max-loras", 2, "--max-lora-rank", 16, env=ADMIN_ENV)

        async def run():
            clients = [Client(server.port) for _ in range(8)]
            tasks = [asyncio.create_task(c.ask(case.path, case.body("spanish", stream=True))) for c in clients]
            while server.metrics()["vllm:generation_tokens_total"] < 16:
                await asyncio.sleep(0.002)
            self.ok(server.unload("spanish"))
            running = server.metrics()["vllm:num_requests_running"]
            self.refused(server.complete("spanish", "Y dijo"), 404, code="model_not_found")
            replies = await asyncio.gather(*tasks)
            for client in clients:
                await client.close()
            return running, replies

        running, replies = asyncio.run(run())
        self.assertGreater(running, 0, "all answers were complete before the adapter was unloaded")
        for reply in replies:
            self.assertEqual((reply.text, reply.finish.get(0)), case.want["spanish"])
        server.wait_until_idle()
        self.gold(server)  # after a step what nobody uses is gone
        self.assertEqual(server.metrics()["cadre_adapter_slots_used"], 1)
        self.well(server)


class Requests(FaultsTest):
    """What clients send."""

    def test_malformed_requests(self):
        server = self.serve(*support.adapter_flags("elements"), "--max-body-bytes", "64K")
        rng = random.Random(11)
        good = [request_bytes(path, body) for path, body in (
            ("/v1/chat/completions", chat_body("elements", GOLD, 4)),
            ("/v1/completions", completion_body("elements", "And", 2, stream=True, stop=["x"], logit_bias={"1": 2})),
            ("/tokenize", {"prompt": "And"}), ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}))]
        statuses = {}
        for i in range(2000):
            data = bytearray(rng.choice(good))
            for _ in range(rng.choice([1, 1, 2, 8])):
                at, kind = rng.randrange(len(data)), rng.randrange(5)
                if kind == 0:
                    data[at] = rng.randrange(256)
                elif kind == 1:
                    del data[at + 1 : at + rng.choice([2, 4, 20])]
                elif kind == 2:
                    data[at:at] = rng.choice([b"\0", b"\r\n", b"\r\n\r\n", b'"', b"{", b"]", b"\xff", b"9" * 30, b" ",
                                              b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"\\u0000"])
                elif kind == 3:
                    data = data[: at + 1]
                else:
                    data[at:at] = data[rng.randrange(len(data)) :]
            sock = open_socket(server.port)
            with contextlib.closing(sock):
                with contextlib.suppress(OSError):
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                # An answer in HTTP's form, or the end of the connection.
                answer = read_all(sock)
            if answer:
                self.assertRegex(answer[:13], rb"^HTTP/1\.[01] [1-5]\d\d", data)
                status = int(answer[9:12])
                statuses[status] = statuses.get(status, 0) + 1
                self.assertNotIn(status, (500, 502), (bytes(data), answer))
                self.assertNotIn(str(support.SOURCE).encode(), answer)
            if i % 200 == 0:
                self.assertEqual(self.gold(server), GOLD_TEXT)
        self.assertGreater(statuses.get(400, 0), 300, statuses)
        self.well(server)

    def test_bodies_beyond_measure(self):
        server = self.serve(*support.adapter_flags("elements"), "--max-body-bytes", "256K")
        path = "/v1/chat/completions"
        deep = b'{"model": "elements", "messages": ' + b"[" * 100000
        cases = [
            (deep, 400), (b'{"a":' * 20000, 400), (b"[" * 200000, 400), (b"", 400), (b"null", 400), (b'"x"', 400),
            (b'{"model": "elements", "messages": [{"role": "user", "content": "\xff\xfe"}]}', 400),
            (b'{"model": "elements", "messages": [{"role": "user", "content": "\xed\xa0\x80"}]}', 400),
            (b'{"model": "elements", "messages": [{"role": "user", "content": "\\ud800"}]}', 400),
            (json.dumps(chat_body("elements", GOLD)).encode() + b"{}", 400),
            (b'{"model": "elements", "model": "elements", "messages": []}', 400),
            (b" " * (256 * 1024 + 1), 413),
        ]
        for body, status in cases:
            self.refused(server.post(path, body), status)
        fields = [
            {"n": 129}, {"n": 0}, {"n": -1}, {"n": 1e9}, {"n": 2**70}, {"n": "2"}, {"stop": ["x"] * 100},
            {"stop": ["x" * 100000]}, {"stop": [""]}, {"stop": [1]}, {"max_tokens": -1}, {"max_tokens": 1e300},
            {"temperature": -1}, {"temperature": "hot"}, {"top_p": 2}, {"top_logprobs": 5}, {"logit_bias": {"x": 1}},
            {"logit_bias": {str(2**40): 1}}, {"logit_bias": {"99999999": 1}}, {"logit_bias": {"1": 1e9}},
            {"seed": 1.5}, {"stop_token_ids": [-1]}, {"stop_token_ids": [2**40]}, {"min_tokens": -5},
            {"stream_options": {"include_usage": True}}, {"response_format": {"type": "json_object"}},
            {"unheard_of": 1}, {"messages": []}, {"messages": "x"}, {"messages": [{"role": "user"}]},
            {"messages": [{"role": 1, "content": "x"}]}, {"messages": [{"role": "user", "content": "x"}] * 5000},
            {"model": 5}, {"chat_template_kwargs": []}, {"tools": [{}]}, {"priority": 2**40}, {"cache_salt": "x" * 999},
        ]
        for more in fields:
            error = self.refused(server.post(path, {**chat_body("elements", GOLD), **more}), 400)
            self.assertIn(next(iter(more)), error["message"] + str(error["param"]))
        for prompt in ([], [[]], [1, "x"], ["x"] * 300, {"a": 1}, None, [-1], [10**9], [2**40], [1.5], ""):
            self.refused(server.post("/v1/completions", {"model": "elements", "prompt": prompt}), 400)
        self.refused(server.post(path, chat_body("nothing", GOLD)), 404, code="model_not_found")
        self.refused(server.post(path, chat_body("../elements", GOLD)), 404, code="model_not_found")
        self.refused(server.post(path, chat_body("x" * 100000, GOLD)), 404, code="model_not_found")
        self.assertLess(len(server.post(path, chat_body("x" * 100000, GOLD)).data), 2000)
        # The most that is allowed.
        answer = self.ok(server.post(path, chat_body("elements", GOLD, 16, n=128)))
        self.assertEqual({choice["message"]["content"] for choice in answer["choices"]}, {GOLD_TEXT})
        self.assertEqual(len(answer["choices"]), 128)
        self.well(server)

    def test_a_prompt_at_and_over_the_limit(self):
        limit = 64
        server = self.serve(*support.adapter_flags("elements"), "--max-model-len", limit)
        ids = list(range(100, 100 + limit))

        def complete(length, max_tokens):
            return server.complete("elements", ids[:length], max_tokens, ignore_eos=True)

        for length, asked, got in ((limit - 1, 1, 1), (limit - 1, 50, 1), (limit - 8, 8, 8), (limit - 8, 9, 8),
                                   (1, limit - 1, limit - 1), (1, 1000, limit - 1)):
            answer = self.ok(complete(length, asked))
            self.assertEqual(answer["usage"]["prompt_tokens"], length)
            self.assertEqual(answer["usage"]["completion_tokens"], got, (length, asked))
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        for length in (limit, limit + 1, 5000):
            self.refused(server.complete("elements", (ids * 100)[:length], 1), 400, rf"{length} tokens.* {limit} ",
                         "context_length_exceeded")
        # The same with a chat, whose template adds tokens of its own.
        words, fitting = [], None
        while True:
            messages = [{"role": "user", "content": " ".join(words)}]
            count = self.ok(server.post("/tokenize", {"model": "elements", "messages": messages}))["count"]
            body = chat_body("elements", messages[0]["content"], 100, ignore_eos=True)
            if count >= limit:
                break
            words.append("the")
            fitting = (body, count)
        self.assertEqual(fitting[1], limit - 1)
        answer = self.ok(server.post("/v1/chat/completions", fitting[0]))
        self.assertEqual((answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]), (limit - 1, 1))
        self.refused(server.post("/v1/chat/completions", body), 400, rf"{count} tokens", "context_length_exceeded")
        stream = server.post("/v1/chat/completions", {**body, "stream": True})
        self.refused(stream, 400, code="context_length_exceeded")
        self.well(server)

    def test_more_than_the_queue_takes(self):
        server = self.serve(*support.adapter_flags("elements", "spanish"), "--max-num-seqs", 1,
                            "--max-queued-requests", 3)
        case = Case("Y dijo", False, 400, **LONG)
        case.compute()

        async def run():
            clients = [Client(server.port) for _ in range(40)]
            replies = await asyncio.gather(*(client.ask(case.path, case.body("spanish")) for client in clients))
            for client in clients:
                await client.close()
            return replies

        replies = asyncio.run(run())
        refused = [reply for reply in replies if reply.status == 429]
        self.assertGreater(len(refused), 5)
        self.assertGreaterEqual(len(replies) - len(refused), 4)
        for reply in replies:
            if reply.status == 429:
                self.assertRegex(reply.headers["retry-after"], r"^[1-9]\d*$")
                self.assertEqual(reply.json["error"]["type"], "rate_limit_error")
            else:
                self.assertEqual((reply.status, reply.text), (200, case.want["spanish"][0]))
        self.assertEqual(server.metrics()['cadre_rejected_total{reason="queue_full"}'], len(refused))
        self.well(server)

    def test_a_request_whose_time_is_over(self):
        server = self.serve(*support.adapter_flags("elements", "spanish"), "--max-num-seqs", 2, "--request-timeout",
                            0.25)
        case = Case("Y dijo", False, 450, **LONG)
        case.compute()

        async def run():
            clients = [Client(server.port) for _ in range(24)]
            bodies = [case.body("spanish", stream=i % 2 == 0) for i in range(len(clients))]
            replies = await asyncio.gather(*(client.ask(case.path, body) for client, body in zip(clients, bodies)))
            for client in clients:
                await client.close()
            return replies

        begin = time.monotonic()
        replies = asyncio.run(run())
        self.assertLess(time.monotonic() - begin, 10)
        late = [reply for reply in replies if reply.finish.get(0) != "length"]
        self.assertTrue(late)
        for reply in replies:
            self.assertEqual(reply.status, 200, reply)
            if reply in late:
                self.assertEqual(reply.finish[0], "abort", reply)
                self.assertTrue(case.want["spanish"][0].startswith(reply.text), reply)
            else:
                self.assertEqual(reply.text, case.want["spanish"][0])
        self.well(server)


if __name__ == "__main__":
    support.main(__doc__)
