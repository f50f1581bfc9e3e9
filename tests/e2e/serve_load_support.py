"""What the tests of `cadre serve` under load share: the server as a process, an asyncio client that sees every byte,
and the texts that `cadre run` writes for the same questions. Standard library only."""

import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ADAPTERS = ("elements", "jargon", "spanish")
ADMIN = "admin-key-of-the-tests"
START_S = 60
WAIT_S = 60  # for anything that should take far less

BINARY = SOURCE = None


def configure(binary, source):
    global BINARY, SOURCE
    BINARY, SOURCE = os.path.abspath(binary), pathlib.Path(source).resolve()


def demo(family="qwen3_moe"):
    return SOURCE / "examples" / "models" / family


def adapter_folder(name, family="qwen3_moe"):
    return demo(family) / "adapters" / name


def elements():
    return json.loads((SOURCE / "examples" / "models" / "elements.json").read_text())


def adapter_flags(*names, family="qwen3_moe"):
    return [word for name in names for word in ("--adapter", f"{name}={adapter_folder(name, family)}")]


def temp_dir():
    return pathlib.Path(tempfile.mkdtemp(prefix="cadre-serve-"))


def put_folder(source, target):
    """Copies an adapter's folder to `target` as careful people do: made aside, then renamed."""
    target = pathlib.Path(target)
    new, old = target.parent / f".new-{target.name}", target.parent / f".old-{target.name}"
    shutil.copytree(source, new)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


class Server:
    """`cadre serve` on a free port of 127.0.0.1. Its standard error goes to a file, unless given."""

    def __init__(self, *flags, family="qwen3_moe", port=0, stderr=None, files=None, env=None):
        self.log_path = None
        if stderr is None:
            descriptor, name = tempfile.mkstemp(prefix="cadre-serve-", suffix=".log")
            self.log_path, stderr = pathlib.Path(name), descriptor
        self.port = port

        def prepare():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        variables = {k: v for k, v in os.environ.items() if not k.startswith("CADRE_")}
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", str(demo(family)), "--port", str(port), *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, preexec_fn=prepare,
            env={**variables, **(env or {})})
        if self.log_path is not None:
            os.close(stderr)
            self.wait_for_log(r"serving on http://\S+:(\d+)")
            self.port = int(re.search(r"serving on http://\S+:(\d+)", self.log()).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        if self.log_path is not None:
            self.log_path.unlink(missing_ok=True)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, pattern, seconds=START_S):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.log()):
            if self.process.poll() is not None or time.monotonic() > end:
                code = self.process.poll()
                self.kill()
                raise AssertionError(f"no '{pattern}' in the server's log (exit status {code}):\n{self.log()[-4000:]}")
            time.sleep(0.02)

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def wait(self, seconds=WAIT_S):
        return self.process.wait(timeout=seconds)

    def stop(self):
        """SIGTERM; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def rss(self):
        """Resident bytes."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    # --- one request at a time, blocking ---

    def call(self, method, path, body=None, key=None, headers=None):
        return call(self.port, method, path, body, key, headers)

    def get(self, path, key=None):
        return self.call("GET", path, key=key)

    def post(self, path, body, key=None):
        return self.call("POST", path, body, key)

    def complete(self, model, prompt, max_tokens=8, key=None, **more):
        return self.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": max_tokens,
                                             "temperature": 0, **more}, key)

    def load(self, name, path=None, replace=False, key=ADMIN, **more):
        body = {"lora_name": name, "lora_path": path or name, **more}
        if replace:
            body["load_inplace"] = True
        return self.post("/v1/load_lora_adapter", body, key)

    def unload(self, name, key=ADMIN):
        return self.post("/v1/unload_lora_adapter", {"lora_name": name}, key)

    def models(self, key=None):
        """id -> card"""
        return {card["id"]: card for card in self.get("/v1/models", key).json["data"]}

    def metrics(self, key=None):
        """Series without a label but the model's, by name; those with more as 'name{labels}' too."""
        series = {}
        for line in self.get("/metrics", key).text.splitlines():
            match = re.fullmatch(r"([\w:]+)(\{.*\})? (\S+)", line)
            if match:
                series[match.group(1) + (match.group(2) or "")] = float(match.group(3))
                series.setdefault(match.group(1), float(match.group(3)))
        return series

    def wait_until_idle(self, key=None, seconds=WAIT_S):
        """Waits until nothing runs or waits; then returns the metrics."""
        end = time.monotonic() + seconds
        while True:
            now = self.metrics(key)
            if now["vllm:num_requests_running"] + now["vllm:num_requests_waiting"] == 0:
                return now
            if time.monotonic() > end:
                raise AssertionError(f"still busy: {now}")
            time.sleep(0.05)


class Answer:
    def __init__(self, status, headers, data):
        self.status, self.headers, self.data = status, headers, data

    @property
    def text(self):
        return self.data.decode()

    @property
    def json(self):
        return json.loads(self.data)

    def __repr__(self):
        return f"{self.status} {self.data[:500]!r}"


def call(port, method, path, body=None, key=None, headers=None, timeout=WAIT_S):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def request_bytes(path, body, key=None, method="POST", close=False):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def open_socket(port, timeout=WAIT_S, receive_buffer=None):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(timeout)
    sock.connect(("127.0.0.1", port))
    return sock


def read_all(sock):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            data += piece
    return data


# --- many requests at a time -----------------------------------------------------------------------------------------


class Closed(Exception):
    """The server ended the connection before the reply was complete."""


class Reply:
    """What came for one generating request. `texts` by choice; times of time.monotonic()."""

    def __init__(self):
        self.status, self.headers, self.body = 0, {}, b""
        self.texts, self.finish, self.usage, self.fingerprint = {}, {}, None, None
        self.sent = self.first = self.last = 0.0
        self.pieces, self.complete = 0, False

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.texts.get(0, "")

    def take(self, chunk):
        """A chunk of a stream, or the whole of another reply."""
        self.fingerprint = chunk.get("system_fingerprint", self.fingerprint)
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices", ()):
            index = choice["index"]
            piece = choice.get("text")
            if piece is None:
                piece = (choice.get("delta") or choice.get("message") or {}).get("content")
            if piece:
                self.pieces += 1
                self.texts[index] = self.texts.get(index, "") + piece
            else:
                self.texts.setdefault(index, "")
            if choice.get("finish_reason"):
                self.finish[index] = choice["finish_reason"]

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r} {self.texts} {self.finish} complete={self.complete}"


class Client:
    """One connection, kept open over requests."""

    def __init__(self, port, key=None):
        self.port, self.key = port, key
        self.reader = self.writer = None
        self.on_first = None  # called once with a stream's first piece of text

    async def close(self, reset=False):
        if self.writer is None:
            return
        if reset:  # as a killed client does
            sock = self.writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.close()
        with contextlib.suppress(Exception):
            await self.writer.wait_closed()
        self.reader = self.writer = None

    async def ask(self, path, body, leave_after=None, read_delay=0.0):
        """Sends and reads one request. With `leave_after`, of a stream, hangs up after so many pieces of text."""
        reply = Reply()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        reply.sent = time.monotonic()
        try:
            self.writer.write(request_bytes(path, body, self.key))
            await self.writer.drain()
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            reply.status = int(head[0].split(" ")[1])
            reply.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
            if reply.headers.get("transfer-encoding") == "chunked":
                if await self.read_stream(reply, leave_after, read_delay):
                    return reply
            else:
                reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
                reply.first = time.monotonic()
                if reply.status == 200:
                    reply.take(reply.json)
                reply.complete = True
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.close()
            raise Closed(f"{error!r} after {reply!r}") from error
        reply.last = time.monotonic()
        if reply.headers.get("connection") == "close":
            await self.close()
        return reply

    async def read_stream(self, reply, leave_after, read_delay):
        """True where the client left."""
        buffer, done = b"", False
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
            if size == 0:
                break
            buffer += data[:-2]
            while b"\n\n" in buffer:
                event, buffer = buffer.split(b"\n\n", 1)
                if event == b"data: [DONE]":
                    done = True
                    continue
                if not event.startswith(b"data: "):
                    raise AssertionError(f"not an event of OpenAI's form: {event!r}")
                chunk = json.loads(event[6:])
                if "error" in chunk:
                    reply.body = event
                    continue
                reply.take(chunk)
                if reply.pieces and not reply.first:
                    reply.first = time.monotonic()
                    if self.on_first is not None:
                        self.on_first()
            if leave_after is not None and reply.pieces >= leave_after:
                await self.close(reset=reply.pieces % 2 == 0)
                return True
            if read_delay:
                await asyncio.sleep(read_delay)
        if not done and not reply.body:
            raise AssertionError(f"a stream ended without [DONE]: {reply!r}")
        reply.complete = done and not buffer
        return False


def chat_body(model, message, max_tokens=16, **more):
    return {"model": model, "messages": [{"role": "user", "content": message}], "max_tokens": max_tokens,
            "temperature": 0, **more}


def completion_body(model, prompt, max_tokens=16, **more):
    return {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}


# --- what is right ---------------------------------------------------------------------------------------------------


class Case:
    """A question, as the server and as `cadre run` take it."""

    def __init__(self, prompt, chat, max_tokens, **sampling):
        self.prompt, self.chat, self.max_tokens, self.sampling = prompt, chat, max_tokens, sampling
        self.sampling.setdefault("temperature", 0)
        self.want = {}  # model -> (text, finish reason)

    @property
    def path(self):
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, model, **more):
        make = chat_body if self.chat else completion_body
        return make(model, self.prompt, self.max_tokens, **{**self.sampling, **more})

    def compute(self, family="qwen3_moe", *flags):
        """Asks `cadre run`, for the base and all adapters."""
        words = ["--chat" if self.chat else "--prompt", self.prompt, "--max-tokens", self.max_tokens]
        for name, value in self.sampling.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                words.append(flag)
            else:
                for each in value if isinstance(value, list) else [value]:
                    words += [flag, each]
        outcome = subprocess.run(
            [BINARY, "run", "--model", str(demo(family)), *adapter_flags(*ADAPTERS, family=family), "--use", "all",
             *map(str, words), "--json", "--rehearse", "off", *map(str, flags)],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=False,
            env={k: v for k, v in os.environ.items() if not k.startswith("CADRE_")})
        if outcome.returncode != 0:
            raise AssertionError(f"cadre run: {outcome.stderr.decode()}")
        for line in outcome.stdout.decode().splitlines():
            answer = json.loads(line)
            self.want[answer["adapter"] or "base"] = (answer["text"], answer["finish_reason"])
        if set(self.want) != {"base", *ADAPTERS}:
            raise AssertionError(f"cadre run answered for {sorted(self.want)}")

    def __repr__(self):
        return f"{'chat' if self.chat else 'text'} {self.prompt!r} {self.max_tokens} {self.sampling}"


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class ServeTest(unittest.TestCase):
    maxDiff = None

    def serve(self, *flags, **options):
        server = Server(*flags, **options)
        self.addCleanup(server.__exit__)
        return server

    def temp_dir(self):
        path = temp_dir()
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def file(self, folder, name, text, mode=0o600):
        path = pathlib.Path(folder) / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def ok(self, answer):
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def refused(self, answer, status, pattern=None, code=None):
        """An error in OpenAI's form."""
        self.assertEqual(answer.status, status, answer)
        error = answer.json["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"}, answer)
        if pattern is not None:
            self.assertRegex(error["message"], pattern)
        if code is not None:
            self.assertEqual(error["code"], code)
        return error

    def finished(self, server, key=None):
        """The server is well: nothing runs, all pages are back, and it ends with 0 on SIGTERM."""
        metrics = server.wait_until_idle(key)
        self.assertEqual(metrics["vllm:kv_cache_usage_perc"], 0, metrics)
        self.assertEqual(server.stop(), 0, server.log()[-2000:])


def main(module_doc):
    """`TEST --binary CADRE --source DIR [TestClass...]`"""
    import argparse

    parser = argparse.ArgumentParser(description=module_doc)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--source", required=True)
    arguments, rest = parser.parse_known_args()
    configure(arguments.binary, arguments.source)
    unittest.main(module="__main__", argv=["test", *rest])
