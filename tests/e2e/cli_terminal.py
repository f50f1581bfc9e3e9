"""Terminals, Ctrl-C and closed pipes."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import cli_support as support
from cli_support import ADAPTERS, GOLD, CliTest, adapter_flags, demo, start

LONG = ["--ignore-eos", "--max-tokens", "400"]


class Screen:
    """The program on a terminal of its own."""

    def __init__(self, *args, columns=60):
        self.text = ""
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            os.execve(support.BINARY, [support.BINARY, *map(str, args)], support.environment())

    def wait_for(self, pattern, after=0):
        """Reads until the text after that position has the pattern; returns where it ends."""
        deadline = time.monotonic() + support.TIMEOUT_S
        while True:
            found = re.search(pattern, self.text[after:])
            if found:
                return after + found.end()
            if time.monotonic() > deadline or not self.read():
                raise AssertionError(f"no {pattern!r} in {self.text[after:]!r}")

    def read(self):
        if not select.select([self.fd], [], [], 1)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the program has ended
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        while self.read():
            pass
        _, self.status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(self.status)


class Terminal(CliTest):
    def test_progress_and_columns(self):
        screen = Screen("run", "--model", demo(), *adapter_flags("qwen3_moe", *ADAPTERS), "--use", "all", "--chat",
                        GOLD, "--max-tokens", "32")
        self.assertEqual(screen.end(), 0)
        self.assertIn("loading [", screen.text)
        shown = screen.text.split("\r\x1b[K")[-1].replace("\r\n", "\n")
        answers = shown[: shown.index("cadre: ")].splitlines()
        self.assertLessEqual(max(map(len, answers)), 60)
        self.assertIn("elements  Au, number 79", answers)
        # Long answers go on under their text, not under the name.
        self.assertTrue([line for line in answers if line.startswith(" " * 10) and line.strip()])
        self.assertEqual([line.split()[0] for line in answers if not line.startswith(" ")], ["base", *ADAPTERS])

    def test_errors_leave_a_clean_line(self):
        screen = Screen("run", "--model", demo(), "--prompt-ids", "99999")
        self.assertEqual(screen.end(), 2)
        self.assertRegex(screen.text.split("\x1b[K")[-1], r"\Acadre: error: [^\r\n]*\r\n\Z")

    def test_chat(self):
        screen = Screen("chat", "--model", demo(), *adapter_flags("qwen3_moe", "elements"), "--temperature", "0", *LONG)
        at = screen.wait_for(r"> $")
        # On a busy machine a long answer may be complete before Ctrl-C reaches it: then once more.
        for _ in range(20):
            screen.type(GOLD + "\n")
            at = screen.wait_for(r"Au, number 79", at)
            screen.type("\x03")
            before, at = at, screen.wait_for(r"cadre: (interrupted|Ctrl-D or /exit ends)\r\n", at)
            at = screen.wait_for(r"> $", at)
            if "cadre: interrupted" in screen.text[before:at]:
                break
            screen.type("/reset\n")
            at = screen.wait_for(r"conversation\r\n> $", at)
        else:
            self.fail("no answer was interrupted")
        screen.type("/adapter\n")
        at = screen.wait_for(r"\* elements\r\n> $", at)
        screen.type("\x03")
        at = screen.wait_for(r"ends\r\n> $", at)
        screen.type("\x04")
        self.assertEqual(screen.end(), 0)


class Interrupt(CliTest):
    def test_while_generating(self):
        process = start("run", "--model", demo(), "--prompt", "In the beginning", *LONG)
        first = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue((first + out).decode().startswith(" of the creation"[: len(first + out) - 1]))
        self.assertTrue(out.endswith(b"\n"))
        self.assertRegex(err.decode(), r"(?m)^cadre: interrupted$")

    def test_json_keeps_what_was_generated(self):
        # The stop text ends the base's answer at once and not the other, which then is being generated.
        process = start("run", "--model", demo(), "--prompt", "In the beginning", "--json", *LONG, "--stop", "creation",
                        *adapter_flags("qwen3_moe", "spanish"), "--use", "all")
        base = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual((base["adapter"], base["text"], base["finish_reason"]), (None, " of the ", "stop"))
        (cut,) = (json.loads(line) for line in out.decode().splitlines())
        self.assertEqual((cut["adapter"], cut["finish_reason"]), ("spanish", "cancelled"))
        self.assertTrue(cut["text"].startswith(", hacia el que se hace."[: len(cut["text"])]))
        self.assertGreater(len(cut["ids"]), 0)

    def test_a_second_one_kills(self):
        # A pipe that nobody reads keeps the program in a write, where the first Ctrl-C cannot end it.
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        size = fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
        os.write(write_end, b"x" * size)
        process = start("run", "--model", demo(), "--prompt", "In the beginning", *LONG, stdout=write_end)
        os.close(write_end)
        self.assertTrue(self.in_call(process, "pipe_write"))
        process.send_signal(signal.SIGINT)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(support.TIMEOUT_S), -signal.SIGINT)
        process.stderr.close()

    def takes_signals(self, process):
        """Waits until the program handles Ctrl-C itself."""
        deadline = time.monotonic() + support.TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as file:
                caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", file.read(), re.M)
            if caught and int(caught[1], 16) >> (signal.SIGINT - 1) & 1:
                return True
            time.sleep(0.01)
        return False

    def in_call(self, process, name):
        """Waits until the program's first thread waits in this function of the kernel; where the kernel does not tell,
        until it has had the time."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and process.poll() is None:
            with open(f"/proc/{process.pid}/wchan", encoding="ascii") as file:
                if name in file.read():
                    return True
            time.sleep(0.05)
        return process.poll() is None

    def test_chat_at_its_prompt(self):
        process = start("chat", "--model", demo(), "--max-tokens", "4", stdin=subprocess.PIPE)
        process.stdin.write(b"Element: gold\n")
        process.stdin.flush()
        process.stdout.readline()  # the answer is complete, it waits for the next message
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual((process.returncode, err), (130, b"cadre: interrupted\n"))

    def test_before_the_model_is_there(self):
        process = start("run", "--model", demo(), "--file", "-", stdin=subprocess.PIPE)
        self.assertTrue(self.takes_signals(process))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual((process.returncode, out, err), (130, b"", b"cadre: interrupted\n"))


class Streams(CliTest):
    def test_text_arrives_while_it_is_made(self):
        process = start("run", "--model", demo(), "--prompt", "In the beginning", *LONG)
        pieces = 0
        while os.read(process.stdout.fileno(), 65536):
            pieces += 1
        process.communicate(timeout=support.TIMEOUT_S)
        self.assertGreater(pieces, 10)

    def test_closed_output(self):
        for args in (["run", "--model", demo(), "--prompt", "In the beginning", *LONG], ["--help"],
                     ["explain", "--model", demo()], ["tokenize", "--model", demo(), "--text", "x"]):
            read_end, write_end = os.pipe()
            os.close(read_end)
            process = start(*args, stdout=write_end)
            os.close(write_end)
            _, err = process.communicate(timeout=support.TIMEOUT_S)
            self.assertEqual((process.returncode, err), (141, b""), args)

    def test_reader_that_goes_away(self):
        process = start("run", "--model", demo(), "--prompt", "In the beginning", *LONG)
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual((process.wait(support.TIMEOUT_S), err), (141, b""))

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            process = start("--help", stdout=full)
            _, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(process.returncode, 74)
        self.assertRegex(err.decode(), r"\Acadre: error: writing standard output: No space left on device\n\Z")

    def test_only_answers_on_standard_output(self):
        outcome = self.cadre("run", "--model", demo(), *adapter_flags("qwen3_moe", "elements"), "--chat", GOLD)
        self.assertEqual(outcome.out, "Au, number 79\n")
        self.assertNotIn("\x1b", outcome.err)  # no progress bar without a terminal
