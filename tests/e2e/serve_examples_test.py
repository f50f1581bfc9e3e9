"""The fenced examples of README.md's section "Serve" and of docs/serving.md, executed as they stand there.

A bash block with `cadre serve` starts the server, on a free port instead of 8000. Other bash and python blocks run
against it, and a json or text block right after one is what it prints: white space counts as one blank, "..." is
anything."""

import os
import re
import shutil
import subprocess
import sys

import serve_support as support
from serve_support import ServeTest

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = ("bash", "python", "json", "text")


class Example:
    def __init__(self, where, language, text):
        self.where, self.language, self.text, self.output = where, language, text, None

    @property
    def starts(self):
        return self.language == "bash" and re.search(r"\bcadre serve\b", self.text) is not None


def examples(path, heading=None):
    text = path.read_text(encoding="utf-8")
    begin, end = 0, len(text)
    if heading is not None:
        begin = text.index(f"\n## {heading}\n")
        end = text.find("\n## ", begin + 1)
    found, last_end = [], None
    for match in FENCE.finditer(text, begin, end):
        language, block = match.groups()
        where = f"{path.name}, line {text.count(chr(10), 0, match.start()) + 1}"
        if language not in LANGUAGES:
            raise AssertionError(f"{where}: a block of '{language}'")
        if language in ("json", "text"):
            if last_end is None or text[last_end:match.start()].strip():
                raise AssertionError(f"{where}: an output without an example before it")
            found[-1].output = block
            last_end = None
        else:
            found.append(Example(where, language, block))
            last_end = match.end()
    return found


def words(text):
    return " ".join(text.split())


def pattern(output):
    parts = [re.escape(part) for part in words(output).split("...")]
    return ".*".join(parts)


class Examples(ServeTest):
    language = None  # of the subclasses
    server = None

    def command(self, text):
        raise NotImplementedError

    def run_all(self, found):
        folder = self.temp_dir()
        for family in support.FAMILIES:
            (folder / family).symlink_to(support.demo(family))
        path = os.path.dirname(support.BINARY) + os.pathsep + os.environ["PATH"]
        env = support.environment(PATH=path, PYTHONDONTWRITEBYTECODE="1")
        ran = 0
        for example in found:
            if example.starts:
                self.server = self.start(example, folder)
            elif example.language == self.language:
                ran += 1
                self.assertIsNotNone(self.server, f"{example.where}: no server was started before")
                text = example.text.replace("127.0.0.1:8000", f"127.0.0.1:{self.server.port}")
                done = subprocess.run(self.command(text), cwd=folder, env=env, encoding="utf-8", capture_output=True,
                                      stdin=subprocess.DEVNULL, timeout=support.TIMEOUT_S)
                self.assertEqual(done.returncode, 0, f"{example.where}: {done.stderr}\n{done.stdout}")
                if example.output is not None:
                    self.assertRegex(words(done.stdout), "^" + pattern(example.output) + "$", example.where)
        return ran

    def start(self, example, folder):
        """The server of the example: its flags and the variables before them."""
        (line,) = [line for line in example.text.replace("\\\n", " ").splitlines() if "cadre serve" in line]
        before, flags = line.split("cadre serve", 1)
        env = dict(word.split("=", 1) for word in before.split())
        return self.serve(*flags.split(), env=env, cwd=folder)

    def test_readme(self):
        found = examples(support.SOURCE / "README.md", "Serve")
        self.assertGreaterEqual(self.run_all(found), 1)

    def test_guide(self):
        found = examples(support.SOURCE / "docs" / "serving.md")
        ran = self.run_all(found)
        self.assertEqual(ran, sum(e.language == self.language and not e.starts for e in found))


class Shell(Examples):
    language = "bash"

    def setUp(self):
        if shutil.which("curl") is None:
            support.skip("curl is not installed")

    def command(self, text):
        return ["bash", "-euo", "pipefail", "-c", text]


class Python(Examples):
    language = "python"

    def setUp(self):
        try:
            import openai  # noqa: F401
        except ImportError:
            support.skip("the Python package openai is not installed")

    def command(self, text):
        return [sys.executable, "-c", text]


del Examples  # only its subclasses are tests

if __name__ == "__main__":
    support.main()
