"""The official openai client against `cadre serve`: everything of the OpenAI routes that such a client can ask for."""

import asyncio
import hashlib
import json
import math
import pathlib
import tempfile
import time

import serve_support as support
from serve_support import ADAPTERS, Server, ServeTest, demo, model_flags

try:
    import openai
except ImportError:
    support.skip("the Python package openai is not installed")

KEY, ADMIN_KEY = "key-of-a-client", "key-of-the-admin"
GOLD = [{"role": "user", "content": "Element: gold"}]
ANSWER = "Au, number 79"
STORY = "And it came to pass"


def client_of(server, key=KEY, kind=openai.OpenAI, **options):
    # Retries of the client would hide what the server answered.
    return kind(base_url=server.url + "/v1", api_key=key, **{"max_retries": 0, "timeout": support.TIMEOUT_S, **options})


class OpenAiTest(ServeTest):
    @classmethod
    def flags(cls):
        return (*model_flags(), "--api-key", KEY, "--admin-key", ADMIN_KEY)

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags())
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.client = client_of(cls.server)
        cls.addClassCleanup(cls.client.close)

    def chat(self, messages=GOLD, model="elements", **options):
        return self.client.chat.completions.create(model=model, messages=messages, **options)

    def complete(self, prompt=STORY, model="qwen3_moe", **options):
        return self.client.completions.create(model=model, prompt=prompt, **{"temperature": 0, **options})

    def metrics(self):
        return self.server.metrics(headers={"Authorization": f"Bearer {KEY}"})

    def tokens(self, text):
        reply = self.server.post("/tokenize", {"prompt": text}, headers={"Authorization": f"Bearer {KEY}"})
        return reply["tokens"]

    def refused(self, kind, call, *words, param=None, code=None):
        with self.assertRaises(kind) as caught:
            call()
        failure = caught.exception
        for word in words:
            self.assertIn(word, failure.message)
        if param is not None:
            self.assertEqual(failure.param, param)
            self.assertIn(param, failure.message)
        if code is not None:
            self.assertEqual(failure.code, code)
        return failure


class Chat(OpenAiTest):
    def test_whole(self):
        reply = self.chat()
        (choice,) = reply.choices
        self.assertEqual((choice.message.role, choice.message.content), ("assistant", ANSWER))
        self.assertIsNone(choice.message.tool_calls)
        self.assertEqual((choice.index, choice.finish_reason, choice.logprobs), (0, "stop", None))
        self.assertEqual((reply.object, reply.model), ("chat.completion", "elements"))
        self.assertTrue(reply.id.startswith("chatcmpl-"))
        self.assertLess(abs(reply.created - time.time()), 60)
        usage = reply.usage
        self.assertGreater(min(usage.prompt_tokens, usage.completion_tokens), 0)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertIsNotNone(usage.prompt_tokens_details.cached_tokens)

    def test_stream(self):
        chunks = list(self.chat(stream=True))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), ANSWER)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks], [None] * (len(chunks) - 1) + ["stop"])
        self.assertEqual({(c.object, c.id, c.model) for c in chunks},
                         {("chat.completion.chunk", chunks[0].id, "elements")})
        self.assertEqual({c.usage for c in chunks}, {None})
        self.assertGreater(len(chunks), 3)

    def test_stream_with_usage(self):
        *chunks, last = self.chat(stream=True, stream_options={"include_usage": True})
        self.assertEqual(last.choices, [])
        self.assertEqual({c.usage for c in chunks}, {None})
        whole = self.chat().usage
        self.assertEqual((last.usage.prompt_tokens, last.usage.completion_tokens),
                         (whole.prompt_tokens, whole.completion_tokens))

    def test_stream_helper(self):
        with self.client.chat.completions.stream(model="elements", messages=GOLD) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        self.assertEqual((text, final.choices[0].message.content), (ANSWER, ANSWER))

    def test_every_model(self):
        answers = {}
        for model in ("qwen3_moe", *ADAPTERS):
            answers[model] = self.chat(model=model, temperature=0, max_tokens=16).choices[0].message.content
        self.assertEqual(answers["elements"], ANSWER)
        self.assertEqual(len(set(answers.values())), 4, answers)
        named = self.chat(model="qwen3_moe:elements")
        self.assertEqual((named.choices[0].message.content, named.model), (ANSWER, "qwen3_moe:elements"))

    def test_messages(self):
        parts = self.chat([{"role": "user", "content": [{"type": "text", "text": "Element: gold"}]}])
        self.assertEqual(parts.choices[0].message.content, ANSWER)
        talk = [{"role": "developer", "content": "Answer."}, *GOLD, self.chat().choices[0].message,
                {"role": "user", "content": "Element: iron"}]
        longer = self.chat(talk, max_completion_tokens=8)
        self.assertGreater(longer.usage.prompt_tokens, self.chat().usage.prompt_tokens * 2)

    def test_n(self):
        def ask(**options):
            return self.chat(model="qwen3_moe", n=4, temperature=1, seed=5, max_tokens=12, **options)

        reply = ask()
        texts = [choice.message.content for choice in reply.choices]
        self.assertEqual([choice.index for choice in reply.choices], [0, 1, 2, 3])
        self.assertEqual(len(set(texts)), 4, texts)
        streamed = [""] * 4
        for chunk in ask(stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual(streamed, texts)
        self.assertEqual(self.chat(n=2).usage.prompt_tokens, self.chat().usage.prompt_tokens)

    def test_logprobs(self):
        reply = self.chat(logprobs=True, top_logprobs=3)
        content = reply.choices[0].logprobs.content
        self.assertEqual(len(content), reply.usage.completion_tokens)
        shown = content[:-1] if content[-1].token.startswith("<|") else content
        self.assertEqual(b"".join(bytes(token.bytes) for token in shown).decode(), ANSWER)
        for token in content:
            top = token.top_logprobs
            self.assertEqual(len(top), 3)
            # Greedy: the token is the most likely one.
            self.assertEqual((top[0].token, top[0].logprob), (token.token, token.logprob))
            self.assertEqual(sorted(top, key=lambda t: -t.logprob), top)
            self.assertLessEqual(sum(math.exp(t.logprob) for t in top), 1.0001)
        self.assertEqual(self.chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs, [])
        streamed = [token for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True)
                    if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.content]
        self.assertEqual([t.token for t in streamed], [t.token for t in content])
        for one, other in zip(streamed, content, strict=True):
            self.assertEqual(one.logprob, other.logprob)

    def test_stop(self):
        for stop in (" number", ["nothing", " number"]):
            choice = self.chat(stop=stop).choices[0]
            self.assertEqual((choice.message.content, choice.finish_reason), ("Au,", "stop"))
            self.assertEqual(choice.model_extra["stop_reason"], " number")
        # In the middle of tokens, and nothing of it in the stream.
        text = "".join(chunk.choices[0].delta.content or "" for chunk in self.chat(stop="umbe", stream=True))
        self.assertEqual(text, "Au, n")
        kept = self.chat(stop=" number", extra_body={"include_stop_str_in_output": True})
        self.assertEqual(kept.choices[0].message.content, "Au, number")

    def test_seed(self):
        def ask(seed):
            return self.chat(model="jargon", seed=seed, temperature=1, max_tokens=16).choices[0].message.content

        self.assertEqual(ask(1), ask(1))
        self.assertGreater(len({ask(seed) for seed in range(6)}), 3)

    def test_lengths(self):
        for options in ({"max_tokens": 3}, {"max_completion_tokens": 3}, {"max_tokens": 3, "max_completion_tokens": 3}):
            reply = self.chat(**options)
            self.assertEqual((reply.usage.completion_tokens, reply.choices[0].finish_reason), (3, "length"))
        self.refused(openai.BadRequestError, lambda: self.chat(max_tokens=3, max_completion_tokens=4),
                     param="max_completion_tokens")

    def test_request_id(self):
        reply = self.client.chat.completions.create(model="elements", messages=GOLD,
                                                    extra_headers={"X-Request-Id": "mine-1"})
        self.assertEqual(reply._request_id, "mine-1")
        self.assertTrue(self.chat()._request_id)


class Sampling(OpenAiTest):
    def text(self, **options):
        return self.complete(max_tokens=16, **options).choices[0].text

    def test_only_the_best(self):
        greedy = self.text()
        drawn = {self.text(temperature=1.5, seed=seed) for seed in range(3)}
        self.assertEqual(len(drawn), 3)
        for one in ({"top_p": 1e-6}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}):
            self.assertEqual(self.text(temperature=1.5, **one), greedy, one)

    def test_logit_bias(self):
        token, = self.tokens(" king")
        self.assertEqual(self.text(logit_bias={token: 100}), " king" * 16)
        first = self.complete(max_tokens=1).choices[0].text
        other = self.complete(max_tokens=1, logit_bias={self.tokens(first)[0]: -100}).choices[0].text
        self.assertNotEqual(other, first)

    def test_penalties(self):
        def repeats(**options):
            tokens = self.complete(max_tokens=64, logprobs=0, **options).choices[0].logprobs.tokens
            return len(tokens) - len(set(tokens))

        plain = repeats()
        self.assertGreater(plain, 8)
        for one in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"extra_body": {"repetition_penalty": 1.8}}):
            self.assertLess(repeats(**one), plain, one)

    def test_past_the_end(self):
        reply = self.chat(max_tokens=24, extra_body={"ignore_eos": True})
        self.assertEqual((reply.usage.completion_tokens, reply.choices[0].finish_reason), (24, "length"))
        self.assertTrue(reply.choices[0].message.content.startswith(ANSWER))
        longer = self.chat(max_tokens=24, extra_body={"min_tokens": 12})
        self.assertGreaterEqual(longer.usage.completion_tokens, 12)


class Completions(OpenAiTest):
    def test_whole_and_stream(self):
        reply = self.complete(max_tokens=12)
        (choice,) = reply.choices
        self.assertEqual((choice.finish_reason, reply.object, reply.usage.completion_tokens),
                         ("length", "text_completion", 12))
        chunks = list(self.complete(max_tokens=12, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].text for c in chunks[:-1]), choice.text)
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 12))
        self.assertEqual(self.complete().usage.completion_tokens, 16)  # OpenAI's default

    def test_prompts(self):
        prompts = [STORY, "In the beginning", "The king"]
        alone = [self.complete(prompt, max_tokens=8).choices[0].text for prompt in prompts]
        together = self.complete(prompts, max_tokens=8)
        self.assertEqual([choice.text for choice in together.choices], alone)
        ids = self.complete([self.tokens(prompt) for prompt in prompts], max_tokens=8)
        self.assertEqual([choice.text for choice in ids.choices], alone)
        self.assertEqual(self.complete(self.tokens(STORY), max_tokens=8).choices[0].text, alone[0])
        many = self.complete(prompts, n=2, temperature=1, seed=3, max_tokens=8)
        self.assertEqual([choice.index for choice in many.choices], list(range(6)))
        self.assertEqual(many.usage.prompt_tokens, sum(len(self.tokens(prompt)) for prompt in prompts))

    def test_logprobs(self):
        choice = self.complete(max_tokens=6, logprobs=2).choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        self.assertEqual([len(top) for top in logprobs.top_logprobs], [2] * 6)
        for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
            self.assertEqual(max(top, key=top.get), token)
            self.assertEqual(top[token], value)
        self.assertEqual(logprobs.text_offset[0], 0)

    def test_echo(self):
        plain = self.complete(max_tokens=4).choices[0].text
        self.assertEqual(self.complete(max_tokens=4, echo=True).choices[0].text, STORY + plain)
        streamed = self.complete(max_tokens=4, echo=True, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), STORY + plain)
        scored = self.complete(STORY + plain, max_tokens=0, echo=True, logprobs=1)
        logprobs = scored.choices[0].logprobs
        self.assertEqual((scored.choices[0].text, scored.usage.completion_tokens), (STORY + plain, 0))
        self.assertEqual("".join(logprobs.tokens), STORY + plain)
        self.assertEqual((logprobs.token_logprobs[0], logprobs.top_logprobs[0]), (None, None))
        self.assertEqual(logprobs.text_offset, [len("".join(logprobs.tokens[:i])) for i in range(len(logprobs.tokens))])
        # What was written greedily scores as the most likely.
        known = self.complete(max_tokens=4, logprobs=1).choices[0].logprobs
        if logprobs.tokens[-4:] == known.tokens:  # the text may be cut into other tokens
            for one, other in zip(logprobs.token_logprobs[-4:], known.token_logprobs, strict=True):
                self.assertAlmostEqual(one, other, delta=1e-3)
        whole = self.complete(max_tokens=4, echo=True, logprobs=1).choices[0].logprobs
        self.assertEqual(whole.tokens[-4:], known.tokens)
        self.assertEqual(whole.token_logprobs[-4:], known.token_logprobs)


class Models(OpenAiTest):
    def test_models(self):
        models = {model.id: model for model in self.client.models.list()}
        self.assertEqual(set(models), {"qwen3_moe", *ADAPTERS})
        for name in ADAPTERS:
            extra = self.client.models.retrieve(name).model_extra
            self.assertEqual(extra["parent"], "qwen3_moe")
            self.assertRegex(extra["digest"], r"^[0-9a-f]{32}$")
            self.assertGreaterEqual(extra["version"], 1)
            self.assertEqual(extra, models[name].model_extra)
            self.assertNotIn("/", extra["root"])
        self.assertEqual(len({models[name].model_extra["digest"] for name in ADAPTERS}), 3)
        base = self.client.models.retrieve("qwen3_moe")
        self.assertIsNone(base.model_extra["parent"])
        self.assertNotIn("digest", base.model_extra)
        # The operator sees where an adapter is.
        root = client_of(self.server, ADMIN_KEY).models.retrieve("elements").model_extra["root"]
        self.assertEqual(root, str(demo() / "adapters" / "elements"))

    def test_versions(self):
        root = demo() / "adapters"
        with Server(*model_flags(adapters=("elements",)), "--adapter-dir", root, "--admin-key", ADMIN_KEY) as server:
            with client_of(server, ADMIN_KEY) as admin:
                before = admin.models.retrieve("elements").model_extra
                body = {"lora_name": "one", "lora_path": "jargon"}
                admin.post("/load_lora_adapter", body=body, cast_to=object)
                first = admin.models.retrieve("one").model_extra
                self.refused(openai.ConflictError,
                             lambda: admin.post("/load_lora_adapter", body=body, cast_to=object), "one")
                admin.post("/load_lora_adapter", cast_to=object,
                           body={"lora_name": "one", "lora_path": "elements", "load_inplace": True})
                second = admin.models.retrieve("one").model_extra
                self.assertEqual(second["digest"], before["digest"])
                self.assertNotEqual(second["digest"], first["digest"])
                self.assertGreater(second["version"], first["version"])
                reply = admin.chat.completions.create(model="one", messages=GOLD)
                self.assertEqual(reply.choices[0].message.content, ANSWER)
                admin.post("/unload_lora_adapter", body={"lora_name": "one"}, cast_to=object)
                self.refused(openai.NotFoundError, lambda: admin.models.retrieve("one"), "one")
            with client_of(server, "sk-some-word") as other:  # without --api-key everybody may ask, and no more
                reply = other.chat.completions.create(model="elements", messages=GOLD)
                self.assertEqual(reply.choices[0].message.content, ANSWER)
                call = lambda: other.post("/unload_lora_adapter", body={"lora_name": "elements"}, cast_to=object)
                self.refused((openai.AuthenticationError, openai.PermissionDeniedError), call)
                self.assertIn("elements", {model.id for model in other.models.list()})


class Errors(OpenAiTest):
    def test_fields(self):
        bad = openai.BadRequestError
        for options, param in (
            ({"temperature": -1}, "temperature"),
            ({"top_p": 2}, "top_p"),
            ({"n": 0}, "n"),
            ({"max_completion_tokens": 0}, "max_completion_tokens"),
            ({"top_logprobs": 3}, "top_logprobs"),
            ({"logit_bias": {"gold": 1}}, "logit_bias"),
            ({"presence_penalty": 3}, "presence_penalty"),
            ({"stop": [""]}, "stop"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"tool_choice": "required",
              "tools": [{"type": "function", "function": {"name": "lookup"}}]}, "tool_choice"),
            ({"functions": [{"name": "lookup"}]}, "functions"),
            ({"extra_body": {"min_p": 2}}, "min_p"),
            ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty"),
            ({"extra_body": {"guided_json": {"type": "object"}}}, "guided_json"),
            ({"extra_body": {"chat_template": "{{ 1 }}"}}, "chat_template"),
            ({"extra_body": {"unheard_of": 1}}, "unheard_of"),
        ):
            with self.subTest(options=options):
                failure = self.refused(bad, lambda: self.chat(**options), param=param)
                self.assertEqual(failure.type, "invalid_request_error")
                self.refused(bad, lambda: list(self.chat(stream=True, **options)), param=param)
        self.refused(bad, lambda: self.chat([{"role": "king", "content": "x"}]), "messages[0].role")
        self.refused(bad, lambda: self.chat([]), param="messages")
        picture = [{"type": "image_url", "image_url": {"url": "data:,"}}]
        self.refused(bad, lambda: self.chat([{"role": "user", "content": picture}]), "messages[0].content[0].type")
        self.refused(bad, lambda: self.complete(suffix="end"), param="suffix")
        self.refused(bad, lambda: self.complete([]), param="prompt")
        self.refused(bad, lambda: self.complete([[99999]]), "99999")
        self.refused(bad, lambda: self.complete(max_tokens=0), param="max_tokens")

    def test_too_long(self):
        message = {"role": "user", "content": "x " * 2000}
        for call in (lambda: self.complete("king " * 2000), lambda: self.chat([message])):
            failure = self.refused(openai.BadRequestError, call, "512", code="context_length_exceeded")
            self.assertEqual(failure.status_code, 400)

    def test_not_found(self):
        missing = openai.NotFoundError
        for model in ("gpt-4o", "qwen3_moe:gpt", "nobody:elements"):
            self.refused(missing, lambda: self.chat(model=model), model, param="model", code="model_not_found")
        self.refused(missing, lambda: self.client.models.retrieve("gpt-4o"), "gpt-4o", code="model_not_found")
        self.refused(missing, lambda: self.client.embeddings.create(model="elements", input="x"), "/v1/embeddings")
        self.refused(missing, lambda: self.client.responses.create(model="elements", input="x"), "/v1/responses")

    def test_keys(self):
        for key in ("wrong", "key-of-a-clien", KEY + "x"):
            with client_of(self.server, key) as stranger:
                for call in (lambda: stranger.models.list(),
                             lambda: stranger.chat.completions.create(model="elements", messages=GOLD),
                             lambda: stranger.get("/no/such/route", cast_to=object)):
                    failure = self.refused(openai.AuthenticationError, call, code="invalid_api_key")
                    self.assertNotIn(key, str(failure))
        call = lambda: self.client.post("/unload_lora_adapter", body={"lora_name": "elements"}, cast_to=object)
        self.refused(openai.PermissionDeniedError, call, "admin")


class Tenants(ServeTest):
    def test_rate_limit_and_names(self):
        def entry(key, **fields):
            return {"sha256": hashlib.sha256(key.encode()).hexdigest(), **fields}

        keys = self.temp_dir() / "keys.json"
        keys.write_text(json.dumps({"keys": [
            entry("key-slow", tenant="slow", adapters=["elem*"], base=False, requests_per_minute=2),
            entry("key-small", tenant="small", adapters=["*"], tokens_per_minute=20)]}))
        keys.chmod(0o600)
        with Server(*model_flags(), "--keys", keys) as server:
            with client_of(server, "key-slow") as slow, client_of(server, "key-small") as small:
                self.assertEqual([model.id for model in slow.models.list()], ["elements"])
                ask = lambda client, model: client.chat.completions.create(model=model, messages=GOLD)
                for model in ("spanish", "qwen3_moe"):
                    with self.assertRaises(openai.NotFoundError) as caught:
                        ask(slow, model)
                    self.assertEqual(caught.exception.code, "model_not_found")
                for _ in range(2):
                    self.assertEqual(ask(slow, "elements").choices[0].message.content, ANSWER)
                ask(small, "elements")  # 16 of the prompt and 8 of the answer
                for client, limit in ((slow, "2 requests a minute"), (small, "20 tokens a minute")):
                    with self.assertRaises(openai.RateLimitError) as caught:
                        ask(client, "elements")
                    failure = caught.exception
                    self.assertIn(limit, failure.message)
                    self.assertEqual((failure.status_code, failure.code), (429, "rate_limit_exceeded"))
                    self.assertGreaterEqual(int(failure.response.headers["retry-after"]), 1)
                with self.assertRaises(openai.PermissionDeniedError):
                    slow.get(server.url + "/metrics", cast_to=str)

    def test_full_queue(self):
        flags = (*model_flags(), "--max-num-seqs", 1, "--max-queued-requests", 1)
        with Server(*flags) as server, client_of(server) as client:
            long = {"model": "qwen3_moe", "prompt": "x", "max_tokens": 500, "extra_body": {"ignore_eos": True}}
            stream = client.completions.create(stream=True, **long)
            next(iter(stream))
            outcomes = support.run_at_once([lambda: self.outcome(client, long)] * 6, 6)
            self.assertIn(openai.RateLimitError, outcomes)
            stream.close()
            # With its retries the client gets through.
            with client_of(server, max_retries=8) as patient:
                self.assertEqual(patient.completions.create(**{**long, "max_tokens": 16}).usage.completion_tokens, 16)

    @staticmethod
    def outcome(client, request):
        try:
            client.completions.create(**request)
            return None
        except openai.APIStatusError as failure:
            assert int(failure.response.headers["retry-after"]) >= 1
            return type(failure)


class Concurrency(OpenAiTest):
    def test_async_streams(self):
        elements = json.loads((support.SOURCE / "examples" / "models" / "elements.json").read_text())
        names = [entry["element"] for entry in elements][:32]
        alone = {name: self.chat([{"role": "user", "content": f"Element: {name}"}]).choices[0].message.content
                 for name in names}

        async def ask(client, name):
            stream = await client.chat.completions.create(
                model="elements", messages=[{"role": "user", "content": f"Element: {name}"}], stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async def ask_all():
            async with client_of(self.server, kind=openai.AsyncOpenAI) as client:
                return await asyncio.gather(*(ask(client, name) for name in names))

        self.assertEqual(asyncio.run(ask_all()), list(alone.values()))
        self.assertGreater(len(set(alone.values())), 28)

    def wait_for_cancelled(self, before, count):
        series = 'vllm:request_success_total{finished_reason="abort",model_name="qwen3_moe"}'
        end = time.monotonic() + 30
        while True:
            now = self.metrics()
            if now[series] - before[series] == count and now["vllm:num_requests_running"] == 0:
                break
            self.assertLess(time.monotonic(), end, f"{now[series] - before[series]} of {count} were cancelled")
            time.sleep(0.02)
        self.assertEqual(now["vllm:num_requests_waiting"], 0)
        self.assertEqual(now["vllm:kv_cache_usage_perc"], 0)
        return now

    def test_closed_streams(self):
        before, streams = self.metrics(), []
        for _ in range(8):
            stream = self.complete("x", stream=True, max_tokens=500, extra_body={"ignore_eos": True})
            next(iter(stream))
            streams.append(stream)
            stream.close()
        after = self.wait_for_cancelled(before, len(streams))
        generated = after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
        self.assertLess(generated, 500 * len(streams))

    def test_timeouts(self):
        before = self.metrics()
        impatient = self.client.with_options(timeout=0.05)
        with self.assertRaises(openai.APITimeoutError):
            impatient.completions.create(model="qwen3_moe", prompt=["x"] * 16, max_tokens=500,
                                         extra_body={"ignore_eos": True})
        self.wait_for_cancelled(before, 1)


class Tools(OpenAiTest):
    """The demo models know no tools. Here the tokens of "Au, number 79" spell calls: what the model writes, and how it
    arrives piece by piece, is real."""

    PARAMETERS = {"type": "object", "properties": {"n": {"type": "string"}}}
    TOOLS = [{"type": "function",
              "function": {"name": "lookup", "description": "finds a number", "parameters": PARAMETERS}}]
    SPELLING = {" number": '<tool_call>\n{"name": "lookup", "arguments": {"n":', "7": '"seven"',
                "9": '}}\n</tool_call>\n<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'}
    TEMPLATE = "{% if tools and show %}{{ tools | tojson }}{% endif %}"

    @classmethod
    def flags(cls):
        folder = tempfile.TemporaryDirectory(prefix="cadre-serve-")
        cls.addClassCleanup(folder.cleanup)
        model = pathlib.Path(folder.name) / "qwen3_moe"
        model.mkdir()
        for path in demo().iterdir():
            if path.name not in ("tokenizer.json", "chat_template.jinja"):
                (model / path.name).symlink_to(path)
        (model / "chat_template.jinja").write_text(cls.TEMPLATE + (demo() / "chat_template.jinja").read_text())
        tokenizer = json.loads((demo() / "tokenizer.json").read_text())
        spelling = {cls.written(old): cls.written(new) for old, new in cls.SPELLING.items()}
        inner = tokenizer["model"]
        assert set(spelling) <= set(inner["vocab"]), spelling
        inner["vocab"] = {spelling.get(token, token): index for token, index in inner["vocab"].items()}
        pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in inner["merges"]]
        inner["merges"] = [[a, b] for a, b in pairs if not {a, b, a + b} & set(spelling)]
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        return "--model", model, "--adapter", f"elements={demo()}/adapters/elements", "--api-key", KEY

    @staticmethod
    def written(text):
        """As a byte-level tokenizer writes it."""
        return text.replace(" ", "Ġ").replace("\n", "Ċ")

    def test_calls(self):
        choice = self.chat(tools=self.TOOLS).choices[0]
        self.assertEqual((choice.message.content, choice.finish_reason), ("Au,", "tool_calls"))
        first, second = choice.message.tool_calls
        self.assertEqual((first.type, first.function.name, second.function.name), ("function", "lookup", "other"))
        self.assertEqual((json.loads(first.function.arguments), json.loads(second.function.arguments)),
                         ({"n": "seven"}, {}))
        self.assertTrue(first.id and second.id and first.id != second.id)
        one = self.chat(tools=self.TOOLS, parallel_tool_calls=False).choices[0].message.tool_calls
        self.assertEqual([call.function.name for call in one], ["lookup"])
        # And back again, as a client goes on.
        talk = [*GOLD, choice.message, {"role": "tool", "tool_call_id": first.id, "content": "79"}]
        self.assertIn(self.chat(talk, tools=self.TOOLS, max_tokens=8).choices[0].finish_reason,
                      ("stop", "length", "tool_calls"))

    def test_calls_in_a_stream(self):
        calls, text, reason = {}, "", None
        for chunk in self.chat(tools=self.TOOLS, stream=True):
            (choice,) = chunk.choices
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.id or ""
                call["name"] += delta.function.name or ""
                call["arguments"] += delta.function.arguments or ""
        self.assertEqual((text, reason, sorted(calls)), ("Au,", "tool_calls", [0, 1]))
        self.assertEqual([(call["name"], json.loads(call["arguments"])) for _, call in sorted(calls.items())],
                         [("lookup", {"n": "seven"}), ("other", {})])
        self.assertNotEqual(calls[0]["id"], calls[1]["id"])

    def test_without_tools(self):
        for options in ({}, {"tools": self.TOOLS, "tool_choice": "none"}, {"tools": []}):
            choice = self.chat(**options).choices[0]
            self.assertIsNone(choice.message.tool_calls)
            self.assertTrue(choice.message.content.startswith("Au,<tool_call>"), choice.message.content)
            self.assertEqual(choice.finish_reason, "stop")

    def test_template_sees_tools(self):
        def prompt_tokens(**options):
            return self.chat(max_tokens=1, **options).usage.prompt_tokens

        shown = {"chat_template_kwargs": {"show": True}}
        plain = prompt_tokens()
        self.assertEqual(prompt_tokens(tools=self.TOOLS), plain)
        self.assertEqual(prompt_tokens(extra_body=shown), plain)
        self.assertGreater(prompt_tokens(tools=self.TOOLS, extra_body=shown), plain + 20)
        self.assertEqual(prompt_tokens(tools=self.TOOLS, tool_choice="none", extra_body=shown), plain)
        self.refused(openai.BadRequestError, lambda: self.chat(extra_body={"chat_template_kwargs": {"messages": []}}),
                     param="chat_template_kwargs")


del OpenAiTest  # only its subclasses are tests

if __name__ == "__main__":
    support.main()
