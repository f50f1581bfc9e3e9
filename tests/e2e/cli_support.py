"""What the tests of the program share: running it, the demo models, safetensors files."""

import array
import contextlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

CODES = {"usage": 2, "not_found": 3, "invalid_file": 4, "unsupported": 5, "no_backend": 6, "limit": 7}
TIMEOUT_S = 300
FAMILIES = ("qwen3_moe", "nemotron_h")
ADAPTERS = ("spanish", "jargon", "elements")
GOLD = "Element: gold"

BINARY = SOURCE = GOLDENS = None


def configure(binary, source, goldens):
    global BINARY, SOURCE, GOLDENS
    BINARY = os.path.abspath(binary)
    SOURCE, GOLDENS = pathlib.Path(source).resolve(), pathlib.Path(goldens).resolve()


def demo(family="qwen3_moe"):
    return SOURCE / "examples" / "models" / family


def adapter_flags(family, *names):
    return [word for name in names for word in ("--adapter", f"{name}={demo(family)}/adapters/{name}")]


AUTO = {"CADRE_MOE_BACKEND": ""}


def environment(**extra):
    # Exact tokens are those of the reference; tests of the ordinary choice say env=AUTO.
    return {**os.environ, "CADRE_MOE_BACKEND": "require cpu_reference", **extra}


def take_signals():
    # A test that was started in the background may have inherited an ignored Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*args, **options):
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("env", environment())
    return subprocess.Popen([BINARY, *map(str, args)], preexec_fn=take_signals, **options)


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


class CliTest(unittest.TestCase):
    maxDiff = None

    def cadre(self, *args, stdin=None, code=0, env=None):
        """Runs the program and checks its exit status."""
        process = start(*args, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                        env=environment(**(env or {})))
        out, err = process.communicate(None if stdin is None else stdin.encode(), timeout=TIMEOUT_S)
        outcome = Outcome(process.returncode, out.decode(), err.decode())
        if code is not None:
            self.assertEqual(outcome.code, code, f"cadre {' '.join(map(str, args))}\n{outcome.out}\n{outcome.err}")
        return outcome

    def refused(self, code, pattern, *args, **options):
        """Wants exactly one line on standard error, of the documented form, and nothing on standard output."""
        outcome = self.cadre(*args, code=CODES[code] if isinstance(code, str) else code, **options)
        self.assertEqual(outcome.out, "")
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 1, outcome.err)
        self.assertRegex(lines[0], r"^cadre: error: ")
        self.assertRegex(lines[0], pattern)
        return lines[0]

    def answers(self, *args, **options):
        outcome = self.cadre("run", *args, "--json", **options)
        return [json.loads(line) for line in outcome.out.splitlines()]

    def answer(self, *args, **options):
        answers = self.answers(*args, **options)
        self.assertEqual(len(answers), 1)
        return answers[0]

    def temp_dir(self):
        path = pathlib.Path(tempfile.mkdtemp(prefix="cadre-cli-"))
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def model_copy(self, family="qwen3_moe", without=()):
        """A folder with links to the demo model's files, so that single ones can be replaced."""
        copy = self.temp_dir()
        for path in demo(family).iterdir():
            if path.name not in without:
                (copy / path.name).symlink_to(path)
        return copy

    def patched_json(self, path, **fields):
        """Replaces a linked JSON file by one with other fields; None removes a field."""
        value = json.loads(path.read_text())
        for key, field in fields.items():
            if field is None:
                value.pop(key, None)
            else:
                value[key] = field
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.write_text(json.dumps(value))


def read_safetensors(path):
    """name -> (shape, list of numbers) of the F32 and I32 tensors."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, info in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__" or info["dtype"] not in ("F32", "I32"):
            continue
        values = array.array("f" if info["dtype"] == "F32" else "i")
        begin, end = (8 + size + offset for offset in info["data_offsets"])
        values.frombytes(data[begin:end])
        tensors[name] = (info["shape"], values.tolist())
    return tensors


def write_nan(source, target, name):
    """A copy of a file whose BF16 tensor `name` begins with a NaN."""
    data = bytearray(pathlib.Path(source).read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    info = json.loads(data[8 : 8 + size])[name]
    assert info["dtype"] == "BF16", info
    begin = 8 + size + info["data_offsets"][0]
    data[begin : begin + 2] = b"\xc0\x7f"
    pathlib.Path(target).write_bytes(data)


def available_memory():
    """Bytes that the program may take, as it counts them."""
    (free,) = (int(line.split()[1]) * 1024 for line in pathlib.Path("/proc/meminfo").read_text().splitlines()
               if line.startswith("MemAvailable:"))
    group = pathlib.Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return free


def relative_error(got, want):
    difference = sum((a - b) ** 2 for a, b in zip(got, want, strict=True))
    return (difference / sum(b * b for b in want)) ** 0.5
