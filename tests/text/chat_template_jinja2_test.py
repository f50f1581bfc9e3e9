#!/usr/bin/env python3
"""Renders templates and snippets with Jinja2 and with cadre, and compares.

Usage: chat_template_jinja2_test.py PATH_OF_chat_template_render [LARGEST_NUMBER_OF_DIFFERENCES_SHOWN]
The environment is the one Hugging Face transformers sets up. Where Jinja2 fails, cadre has to fail too.
"""
import copy
import datetime
import json
import pathlib
import subprocess
import sys

try:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.nodes import CallBlock
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("skipped: Python has no jinja2")
    sys.exit(77)

from chat_template_snippets import snippets

HERE = pathlib.Path(__file__).resolve().parent
NOW = 1_735_693_509  # 2025-01-01 01:05:09 UTC
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_call"), [], [], body).set_lineno(line)

    @staticmethod
    def _call(caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime.datetime.fromtimestamp(
        NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(fmt)
    return env


def expected(env, case, compiled):
    variables = dict(case["special_tokens"], messages=case["messages"], tools=case["tools"], documents=None,
                     add_generation_prompt=case["add_generation_prompt"])
    # A copy, because Jinja2's filter indent changes a list it is given by mistake.
    variables.update(copy.deepcopy(case["extra"]))
    try:
        source = case["template"]
        if source not in compiled:
            compiled[source] = env.from_string(source)
        return {"text": compiled[source].render(**variables)}
    except Exception as e:  # whatever Python raises, cadre has to refuse
        return {"error": f"{type(e).__name__}: {e}"}


def case(template, messages, tools=None, extra=None, prompt=True, name=""):
    return {"name": name, "template": template, "messages": messages, "tools": tools, "extra": extra or {},
            "special_tokens": SPECIAL, "add_generation_prompt": prompt, "now": NOW}


def all_cases():
    data = json.loads((HERE / "chat_templates" / "conversations.json").read_text(encoding="utf-8"))
    files = sorted((HERE / "chat_templates").glob("*.jinja"))
    assert len(files) >= 25, len(files)
    files += sorted((HERE.parents[1] / "examples" / "models").glob("*/chat_template.jinja"))
    for file in files:
        source = file.read_text(encoding="utf-8")
        for name, messages in data["conversations"].items():
            for tools in (None, data["tools"]):
                for extra in data["extras"]:
                    for prompt in (True, False):
                        label = f"{file.parent.name}/{file.name} on {name}, tools {tools is not None}, {extra}"
                        yield case(source, messages, tools, extra, prompt, label)
    for i, (template, extra) in enumerate(snippets()):
        yield case(template, data["conversations"]["plain"], data["tools"], extra, True, f"snippet {i}: {template!r}")


def main():
    cases = list(all_cases())
    lines = "".join(json.dumps(c) + "\n" for c in cases)
    run = subprocess.run([sys.argv[1]], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in run.stdout.decode("utf-8").split("\n")[:-1]]
    assert len(answers) == len(cases), f"{len(answers)} answers for {len(cases)} cases"
    env = environment()
    compiled = {}
    wrong = texts = 0
    for c, got in zip(cases, answers):
        want = expected(env, c, compiled)
        texts += "text" in want
        if want.get("text") == got.get("text"):
            continue
        wrong += 1
        if wrong <= int(sys.argv[2] if len(sys.argv) > 2 else 40):
            print(f"FAIL {c['name']}\n  jinja2: {want!r}\n  cadre:  {got!r}")
    print(f"{len(cases)} cases, {texts} rendered by Jinja2, {len(cases) - texts} refused, {wrong} differ")
    assert texts > len(cases) // 2, "most cases have to render, or the comparison says little"
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
