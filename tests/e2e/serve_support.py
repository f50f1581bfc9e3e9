"""What the tests of `cadre serve` share: a server on a free port, plain HTTP, what is in its metrics."""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

FAMILIES = ("qwen3_moe", "nemotron_h")
ADAPTERS = ("spanish", "jargon", "elements")
TIMEOUT_S = 120
SKIPPED = 77  # with a line "skipped: REASON"

BINARY = SOURCE = None


def main(**further):
    """Runs the tests of the calling file; `further` are options of its own with what they are for."""
    global BINARY, SOURCE
    parser = argparse.ArgumentParser()
    for name, text in {"binary": "the program", "source": "the project's folder", **further}.items():
        parser.add_argument("--" + name, required=name not in further, help=text)
    known, rest = parser.parse_known_args()
    BINARY, SOURCE = os.path.abspath(known.binary), pathlib.Path(known.source).resolve()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # nothing here leaves the machine
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


def demo(family="qwen3_moe"):
    return SOURCE / "examples" / "models" / family


def model_flags(family="qwen3_moe", adapters=ADAPTERS):
    flags = ["--model", demo(family)]
    for name in adapters:
        flags += ["--adapter", f"{name}={demo(family)}/adapters/{name}"]
    return flags


def environment(**extra):
    """The caller's, without what would change the server; None removes a variable."""
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith("CADRE_") and not name.lower().endswith("_proxy")}
    return {name: value for name, value in {**inherited, **extra}.items() if value is not None}


def take_signals():
    # A test that was started in the background may have inherited an ignored Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Server:
    """`cadre serve` with these flags, from the line "serving on" to its end, which has to be a good one."""

    def __init__(self, *flags, env=None, wait=True, cwd=None):
        self.log = tempfile.TemporaryFile("w+")
        words = [BINARY, "serve", *map(str, flags)]
        if "--port" not in words:
            words += ["--port", "0"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=environment(**(env or {})), cwd=cwd, preexec_fn=take_signals)
        self.host = self.port = None
        self.good_status = 0  # that it has to end with
        if wait:
            self.wait_until_serving()

    def text(self):
        # Read by position: the server writes with the same offset.
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def wait_for(self, pattern, timeout_s=TIMEOUT_S):
        end = time.monotonic() + timeout_s
        while True:
            over = self.process.poll() is not None
            found = re.search(pattern, self.text())
            if found:
                return found
            if over or time.monotonic() > end:
                self.kill()
                text = self.text()
                self.log.close()
                raise AssertionError(f"no '{pattern}' in what the server said (status {self.process.poll()}):\n{text}")
            time.sleep(0.01)

    def wait_until_serving(self):
        found = self.wait_for(r"serving on http://(\[[^\]]+\]|[^:]+):(\d+)\n")
        self.host, self.port = found[1].strip("[]"), int(found[2])

    @property
    def url(self):
        return f"http://{'[' + self.host + ']' if ':' in self.host else self.host}:{self.port}"

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self):
        """Waits for the end and returns the exit status; negative: the signal that ended it."""
        return self.process.wait(TIMEOUT_S)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if self.process.poll() is None:
                self.signal()
            status = self.end()
            if kind is None and status != self.good_status:
                raise AssertionError(f"the server ended with {status}:\n{self.text()}")
        finally:
            self.kill()
            if kind is not None:
                print("what the server said:\n" + self.text()[-20_000:], file=sys.stderr)
            self.log.close()

    # --- asking it -----------------------------------------------------------------------------------------------

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)

    def ask(self, method, path, body=None, headers=None, connection=None):
        """(status, headers, body as bytes)"""
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(contextlib.closing(self.connect()))
            if isinstance(body, (dict, list)):
                body, headers = json.dumps(body), {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()

    def get(self, path, **options):
        status, _, body = self.ask("GET", path, **options)
        if status != 200:
            raise AssertionError(f"GET {path}: {status} {body!r}")
        return body.decode() if path == "/metrics" else json.loads(body or "null")

    def post(self, path, body, **options):
        status, _, reply = self.ask("POST", path, body, **options)
        if status != 200:
            raise AssertionError(f"POST {path} {body!r}: {status} {reply!r}")
        if body.get("stream"):
            return events(reply.decode())
        return json.loads(reply)

    def metrics(self, **options):
        return parse_metrics(self.get("/metrics", **options))

    def wait_until_idle(self, **options):
        end = time.monotonic() + 30
        while True:
            now = self.metrics(**options)
            busy = now["vllm:num_requests_running"] + now["vllm:num_requests_waiting"]
            if busy == 0:
                return now
            if time.monotonic() > end:
                raise AssertionError(f"{busy} requests still run or wait")
            time.sleep(0.02)


def events(text):
    """The JSON values of a stream of server-sent events, which ends with [DONE]."""
    values = []
    lines = text.split("\n\n")
    if lines[-1] != "" or lines[-2] != "data: [DONE]":
        raise AssertionError(f"the stream ends with {lines[-2:]}")
    for line in lines[:-2]:
        if not line.startswith("data: "):
            raise AssertionError(f"no event: {line!r}")
        values.append(json.loads(line[len("data: "):]))
    return values


def parse_metrics(text):
    """Series of Prometheus' text format by name, and by name{labels}; those of one name are summed under it."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        found = re.fullmatch(r"([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)( \d+)?", line)
        if not found:
            raise AssertionError(f"no metric: {line!r}")
        name, labels, value = found[1], found[2], float(found[3])
        values[name] = values.get(name, 0) + value
        if labels:
            values[name + labels] = value
    return values


def run_at_once(jobs, workers):
    """Calls each job in one of so many threads, in order; returns the results in the order of the jobs."""
    results, failures = [None] * len(jobs), []
    left = iter(range(len(jobs)))
    lock = threading.Lock()

    def work():
        while not failures:
            with lock:
                index = next(left, None)
            if index is None:
                return
            try:
                results[index] = jobs[index]()
            except BaseException as failure:
                failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


class ServeTest(unittest.TestCase):
    maxDiff = None

    def temp_dir(self):
        folder = tempfile.TemporaryDirectory(prefix="cadre-serve-")
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def serve(self, *flags, **options):
        """A server until the end of the test."""
        server = Server(*flags, **options)
        self.addCleanup(server.__exit__, None, None, None)
        return server
