"""Clients that misbehave while `cadre serve` answers others: malformed requests, slow readers, slow writers, idle
connections. Everybody else keeps getting the right answers."""

import asyncio
import contextlib
import random
import resource
import select
import socket
import time

import serve_load_support as support
from serve_faults_test import FaultsTest, GOLD, GOLD_TEXT, LONG
from serve_load_support import (Case, Client, chat_body, completion_body, open_socket, read_all, request_bytes)


class Clients(FaultsTest):
    """How clients behave."""

    def others_are_served(self, server, count=20):
        begin = time.monotonic()
        for _ in range(count):
            self.assertEqual(self.gold(server), GOLD_TEXT)
        self.assertLess(time.monotonic() - begin, 20)

    def test_streams_that_nobody_reads(self):
        server = self.serve(*support.adapter_flags("elements"), "--write-timeout", 1)
        before = server.rss()
        # Some 20 MiB each: far more than the kernel and the server keep for a client.
        body = completion_body("elements", "And", 400, n=24, stream=True, logprobs=20, temperature=1, seed=3, **LONG)
        socks = [open_socket(server.port, receive_buffer=4096) for _ in range(3)]
        for sock in socks:
            sock.sendall(request_bytes("/v1/completions", body))
        self.others_are_served(server, 10)
        metrics = server.wait_until_idle()
        self.assertLess(metrics["vllm:generation_tokens_total"], 3 * 24 * 400, "nobody was cut off")
        aborted = 'vllm:request_success_total{finished_reason="abort",model_name="qwen3_moe"}'
        self.assertGreaterEqual(metrics[aborted], 3)
        for sock in socks:
            data = read_all(sock)
            self.assertNotIn(b"[DONE]", data)
            self.assertFalse(data.endswith(b"0\r\n\r\n"))
            sock.close()
        self.assertLess(server.rss() - before, 96 << 20)
        self.well(server)

    def test_a_stream_that_is_read_slowly(self):
        case = Case("Y dijo", False, 60, **LONG)
        case.compute()
        server = self.serve(*support.adapter_flags("elements", "spanish"))

        async def run():
            slow, fast = Client(server.port), Client(server.port)
            task = asyncio.create_task(slow.ask(case.path, case.body("spanish", stream=True), read_delay=0.05))
            meanwhile = 0
            while not task.done():
                reply = await fast.ask(case.path, case.body("spanish", stream=True))
                self.assertEqual((reply.text, reply.finish[0]), case.want["spanish"])
                meanwhile += not task.done()
            self.assertGreater(meanwhile, 2)
            reply = await task
            self.assertEqual((reply.text, reply.finish[0]), case.want["spanish"])
            await slow.close()
            await fast.close()

        asyncio.run(run())
        self.well(server)

    def test_requests_that_arrive_drop_by_drop(self):
        server = self.serve(*support.adapter_flags("elements"), "--header-timeout", 1, "--body-timeout", 1,
                            "--idle-timeout", 2)
        request = request_bytes("/v1/chat/completions", chat_body("elements", GOLD))
        header_end = request.index(b"\r\n\r\n") + 4
        heads, bodies = ([open_socket(server.port) for _ in range(30)] for _ in range(2))
        for sock in bodies:
            sock.sendall(request[:header_end])
        silent = open_socket(server.port)
        end, at = time.monotonic() + 20, 0
        waiting = set(heads + bodies)
        answers = {}
        while waiting and time.monotonic() < end:
            for sock in list(waiting):
                offset = 0 if sock in heads else header_end
                with contextlib.suppress(OSError):
                    sock.send(request[offset + at : offset + at + 1])
            at += 1
            readable, _, _ = select.select(list(waiting), [], [], 0.1)
            for sock in readable:
                answers[sock] = read_all(sock)
                waiting.discard(sock)
            if at % 4 == 0:
                self.others_are_served(server, 1)
        self.assertFalse(waiting, "a client that sends a byte now and then holds its connection")
        for answer in answers.values():
            self.assertRegex(answer, rb"^HTTP/1\.1 408 ")
        silent.settimeout(10)
        self.assertEqual(silent.recv(1), b"", "a silent connection stays")
        for sock in heads + bodies + [silent]:
            sock.close()
        self.well(server)

    def test_a_thousand_idle_connections(self):
        count = 1000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2 * count:
            self.skipTest(f"the limit of open files is {hard}, want {2 * count}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = self.serve(*support.adapter_flags("elements"), files=2 * count)
        before, rss = server.descriptors(), server.rss()
        idle = [open_socket(server.port) for _ in range(count)]
        for sock in idle[::2]:  # half of them have been served and are kept alive
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        for sock in idle[::2]:
            self.assertTrue(sock.recv(4096).startswith(b"HTTP/1.1 200"))
        self.others_are_served(server)
        self.assertGreaterEqual(server.descriptors(), before + count)
        self.assertLess(server.rss() - rss, 48 << 20)
        for sock in idle[: count // 2]:
            sock.sendall(request_bytes("/v1/chat/completions", chat_body("elements", GOLD, 2)))
        for sock in idle[: count // 2]:
            self.assertTrue(sock.recv(65536).startswith((b"HTTP/1.1 200", b"HTTP/1.1 429")))
        for sock in idle:
            sock.close()
        end = time.monotonic() + 10
        while server.descriptors() > before + 5 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertLessEqual(server.descriptors(), before + 5)
        self.well(server)

    def test_more_connections_than_allowed(self):
        server = self.serve(*support.adapter_flags("elements"), "--max-connections", 8)
        idle = [open_socket(server.port) for _ in range(8)]
        time.sleep(0.1)
        over = open_socket(server.port)
        self.assertRegex(read_all(over), rb"^HTTP/1\.1 503 ")
        for sock in idle[:4] + [over]:
            sock.close()
        time.sleep(0.1)
        self.well(server)

    def test_more_connections_than_descriptors(self):
        server = self.serve(*support.adapter_flags("elements"), files=40)
        idle = [open_socket(server.port) for _ in range(80)]
        time.sleep(0.3)
        self.assertTrue(server.alive())
        for sock in idle:
            sock.close()
        self.well(server)

    def test_clients_that_leave_everywhere(self):
        server = self.serve(*support.adapter_flags("elements", "spanish"), "--max-num-seqs", 4)
        request = request_bytes("/v1/completions", completion_body("spanish", "Y dijo", 400, n=3, stream=True, **LONG))
        rng = random.Random(3)
        for i in range(150):
            sock = open_socket(server.port)
            if i % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.sendall(request[: rng.choice([0, 1, 50, len(request) - 1, len(request), len(request)])])
            if rng.random() < 0.5:
                time.sleep(rng.random() * 0.02)
            sock.close()
            if i % 25 == 0:
                self.others_are_served(server, 1)
        server.wait_until_idle()
        self.well(server)


if __name__ == "__main__":
    support.main(__doc__)
