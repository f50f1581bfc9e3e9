"""`cadre serve` in the hands of who runs it: flags, environment and file, addresses, signals, what HTTP shows."""

import http.client
import json
import signal
import socket
import subprocess
import time

import serve_support as support
from serve_support import Server, ServeTest, demo, model_flags

LONG = {"model": "qwen3_moe", "prompt": "x", "temperature": 0, "max_tokens": 400, "ignore_eos": True}
ANSWER = "Au, number 79"
GOLD = {"model": "elements", "messages": [{"role": "user", "content": "Element: gold"}]}


class Start(ServeTest):
    def refused(self, status, pattern, *flags, env=None):
        done = subprocess.run([support.BINARY, "serve", *map(str, flags)], env=support.environment(**(env or {})),
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              timeout=support.TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], "^cadre: error: " + pattern)
        return done.stderr

    def test_wrong_flags(self):
        model = ("--model", demo())
        self.refused(2, "--model .*is missing")
        self.refused(2, "unknown flag '--prot', did you mean '--port'", *model, "--prot", 1)
        self.refused(2, "--port is '99999', want an integer from 0 to 65535", *model, "--port", 99999)
        self.refused(2, "--api-key is not a key", *model, "--api-key", "two words")
        self.refused(2, "--tensor-parallel-size is '2'", *model, "--tensor-parallel-size", 2)
        self.refused(2, "two models are named 'x'", *model, "--served-model-name", "x", "--adapter",
                     f"x={demo()}/adapters/elements")
        self.refused(3, "cannot open 'absent/config.json'", "--model", "absent")
        self.refused(3, "--model: there is no folder 'some/model'.*hf download some/model", "--model", "some/model",
                     env={"HF_HUB_CACHE": str(self.temp_dir())})
        self.refused(3, ".*absent is not there", *model, "--lora-modules", "a=absent")
        self.refused(3, "absent: No such file", *model, "--port", 0, "--keys", "absent")
        self.refused(2, "cannot listen on 'no.such.host.invalid'", *model, "--port", 0, "--host",
                     "no.such.host.invalid")

    def test_secrets_stay_secret(self):
        said = self.refused(2, "--admin-key", "--model", demo(), "--admin-key", "sesame open", "--api-key", "other")
        self.assertNotIn("sesame", said)
        with Server(*model_flags(), "--api-key", "key-1234", "--admin-key", "key-5678") as server:
            for key in (None, "key-1234", "wrong"):
                server.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
            server.signal()
            self.assertEqual(server.end(), 0)
            self.assertNotRegex(server.text(), "key-1234|key-5678|wrong")

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refused(9, f"cannot listen on 127.0.0.1:{port}: Address already in use", "--model", demo(),
                         "--port", port)

    def test_addresses(self):
        hosts = ["localhost", "127.0.0.1"]
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
            hosts.append("::1")
        except OSError:
            print("this machine has no ::1")
        for host in hosts:
            with self.subTest(host=host):
                with Server("--model", demo(), "--host", host) as server:
                    self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_environment_and_file(self):
        config = self.temp_dir() / "serve.yaml"
        config.write_text(f"model: {demo()}\nport: 1\nmax_num_seqs: 5\nserved-model-name: [of-the-file, other]\n"
                          f"adapter:\n  - elements={demo()}/adapters/elements\n")
        variables = {"CADRE_SERVE_MAX_MODEL_LEN": "128", "CADRE_SERVE_API_KEY": "a-key", "CADRE_SERVE_FOO": "1"}
        with Server("--config", config, "--max-model-len", 64, "--port", 0, env=variables) as server:
            self.assertEqual(server.ask("GET", "/v1/models")[0], 401)
            models = server.get("/v1/models", headers={"Authorization": "Bearer a-key"})["data"]
            self.assertEqual([(m["id"], m["max_model_len"]) for m in models],
                             [("of-the-file", 64), ("other", 64), ("elements", 64)])
            self.assertIn("CADRE_SERVE_FOO is not looked at", server.text())
        variables = {"CADRE_SERVE_CONFIG": str(config), "CADRE_SERVE_SERVED_MODEL_NAME": "of-the-environment"}
        with Server("--port", 0, env=variables) as server:
            self.assertEqual(server.get("/v1/models")["data"][0]["id"], "of-the-environment")
        config.write_text(f"model: {demo()}\nprot: 0\n")
        self.refused(4, "serve.yaml:2: unknown key 'prot', did you mean 'port'", "--config", config)
        self.refused(2, "CADRE_SERVE_PORT: --port is 'many'", "--model", demo(), env={"CADRE_SERVE_PORT": "many"})

    def test_modules_as_vllm_has_them(self):
        folder = f"{demo()}/adapters"
        elements = {"name": "elements", "path": f"{folder}/elements", "base_model_name": "qwen3_moe"}
        with Server("--model", demo(), "--enable-lora", "--lora-modules", f"spanish={folder}/spanish",
                    json.dumps(elements)) as server:
            self.assertIn("--enable-lora has no effect", server.text())
            self.assertEqual(server.post("/v1/chat/completions", GOLD)["choices"][0]["message"]["content"], ANSWER)
            self.assertEqual({m["id"] for m in server.get("/v1/models")["data"]}, {"qwen3_moe", "spanish", "elements"})


class Http(ServeTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*model_flags(), "--request-timeout", 0.1)
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def test_health(self):
        for path in ("/health", "/ready"):
            for method in ("GET", "HEAD"):
                status, headers, body = self.server.ask(method, path)
                self.assertEqual((status, body), (200, b""))
                self.assertTrue(headers["X-Request-Id"])
        status, headers, body = self.server.ask("HEAD", "/v1/models")
        self.assertEqual((status, body), (200, b""))
        self.assertGreater(int(headers["Content-Length"]), 100)

    def test_request_ids(self):
        def echoed(sent, path="/version"):
            return self.server.ask("GET", path, headers={"X-Request-Id": sent})[1]["X-Request-Id"]

        self.assertEqual(echoed("mine_1.x-2"), "mine_1.x-2")
        self.assertEqual(echoed("mine", "/no/route"), "mine")
        for bad in ("two words", "x" * 65, "a\tb", ""):
            self.assertRegex(echoed(bad), r"^req-[0-9a-f]{32}$")
        for path, body in (("/v1/chat/completions", GOLD), ("/v1/chat/completions", {**GOLD, "stream": True}),
                           ("/v1/completions", {"prompt": 1})):
            _, headers, _ = self.server.ask("POST", path, body, headers={"X-Request-Id": "mine"})
            self.assertEqual(headers["X-Request-Id"], "mine")

    def test_methods_and_routes(self):
        status, headers, _ = self.server.ask("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        # No CORS is promised: a browser's question is a method that the route does not take.
        status, headers, _ = self.server.ask("OPTIONS", "/v1/completions", headers={"Origin": "http://a.example"})
        self.assertEqual(status, 405)
        self.assertIsNone(headers["Access-Control-Allow-Origin"])
        for path in ("/", "/v1", "/v1/embeddings", "//health", "/health/x"):
            status, _, body = self.server.ask("GET", path)
            self.assertEqual((status, json.loads(body)["error"]["type"]), (404, "not_found_error"))

    def test_one_connection(self):
        connection = self.server.connect()
        for _ in range(3):
            status, _, body = self.server.ask("POST", "/v1/chat/completions", {**GOLD, "stream": True},
                                              connection=connection)
            self.assertEqual(status, 200)
            self.assertTrue(body.endswith(b"data: [DONE]\n\n"))
            self.assertEqual(self.server.ask("POST", "/v1/completions", "not json", connection=connection)[0], 400)
        connection.close()

    def test_tokens(self):
        text = "Élement: gold\n"
        ids = self.server.post("/tokenize", {"prompt": text, "return_token_strs": True})
        self.assertEqual(ids["count"], len(ids["tokens"]))
        self.assertEqual(len(ids["token_strs"]), ids["count"])
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids["tokens"]})["prompt"], text)
        chat = self.server.post("/tokenize", {"messages": GOLD["messages"]})
        usage = self.server.post("/v1/chat/completions", GOLD)["usage"]
        self.assertEqual(chat["count"], usage["prompt_tokens"])

    def test_request_timeout(self):
        reply = self.server.post("/v1/completions", {**LONG, "n": 16, "max_tokens": 500})
        self.assertIn("abort", [choice["finish_reason"] for choice in reply["choices"]])
        self.assertGreater(reply["usage"]["completion_tokens"], 0)
        self.server.wait_until_idle()


class Signals(ServeTest):
    def stream(self, server, **fields):
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True, **fields}))
        reply = connection.getresponse()
        self.assertEqual(reply.status, 200)
        return reply, reply.readline()

    def test_end_without_requests(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server(*model_flags()) as server:
                server.signal(number)
                self.assertEqual(server.end(), 0)
                self.assertIn("all replies are complete", server.text())

    def test_running_replies_finish(self):
        with Server(*model_flags(), "--max-num-seqs", 2) as server:
            streams = [self.stream(server) for _ in range(2)]
            idle = server.connect()
            self.addCleanup(idle.close)
            server.ask("GET", "/health", connection=idle)
            server.signal()
            server.wait_for("shutting down")
            with self.assertRaises((ConnectionError, http.client.HTTPException, OSError)):
                server.ask("GET", "/health")
                raise AssertionError("a new connection was taken")
            for reply, first in streams:
                chunks = support.events((first + reply.read()).decode())
                self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
            self.assertEqual(server.end(), 0)

    def test_drain_timeout(self):
        with Server(*model_flags(), "--drain-timeout", 0) as server:
            server.good_status = 1
            replies = [self.stream(server)[0] for _ in range(16)]
            server.signal()
            self.assertEqual(server.end(), 1)
            self.assertIn("cut off", server.text())
            # A client can tell: the chunked body has no end.
            with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
                for reply in replies:
                    reply.read()

    def test_twice(self):
        for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
            server = Server(*model_flags())
            self.addCleanup(server.log.close)
            self.addCleanup(server.kill)
            for _ in range(16):
                self.stream(server)
            server.signal(first)
            server.wait_for("shutting down")
            time.sleep(0.7)  # sooner it would count as the same wish
            server.signal(second)
            self.assertEqual(server.end(), 128 + second)
            self.assertIn("stopped at once", server.text())

    def test_while_loading(self):
        # A rehearsal of very large batches takes a while.
        flags = ("--model", demo(), "--rehearse", "full", "--max-num-batched-tokens", 200_000)
        for number in (signal.SIGINT, signal.SIGTERM):
            server = Server(*flags, wait=False)
            self.addCleanup(server.log.close)
            self.addCleanup(server.kill)
            time.sleep(0.5)
            server.signal(signal.SIGHUP)  # is for later
            server.signal(number)
            self.assertEqual(server.end(), 128 + number, server.text())
            self.assertEqual(server.text(), "cadre: interrupted while starting\n")

    def test_hangup(self):
        root = self.temp_dir()
        (root / "one").symlink_to(demo() / "adapters" / "elements")
        adapters = root / "adapters"
        adapters.mkdir()

        def copy(name, source):
            (adapters / name).mkdir(exist_ok=True)
            for path in (demo() / "adapters" / source).iterdir():
                (adapters / name / path.name).write_bytes(path.read_bytes())

        def known(server):
            return {m["id"]: m.get("digest") for m in server.get("/v1/models")["data"]}

        copy("a", "elements")
        with Server("--model", demo(), "--adapter-dir", adapters) as server:
            first = known(server)
            self.assertEqual(set(first), {"qwen3_moe", "a"})
            copy("a", "jargon")
            copy("b", "elements")
            reply, start = self.stream(server, model="a")
            server.signal(signal.SIGHUP)
            server.wait_for(r"loaded=1 replaced=1 unloaded=0 failed=0")
            self.assertTrue((start + reply.read()).endswith(b"[DONE]\n\n"))
            second = known(server)
            self.assertEqual((set(second), second["b"]), ({"qwen3_moe", "a", "b"}, first["a"]))
            self.assertNotEqual(second["a"], first["a"])
            answer = server.post("/v1/chat/completions", {**GOLD, "model": "b"})["choices"][0]["message"]["content"]
            self.assertEqual(answer, ANSWER)
            for path in (adapters / "a").iterdir():
                path.unlink()
            (adapters / "a").rmdir()
            server.signal(signal.SIGHUP)
            server.wait_for(r"loaded=0 replaced=0 unloaded=1 failed=0")
            self.assertEqual(set(known(server)), {"qwen3_moe", "b"})


if __name__ == "__main__":
    support.main()
