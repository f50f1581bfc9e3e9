#!/usr/bin/env python3
"""Writes tokenizer_variants.json: what the tokenizers library (Hugging Face) does with every normalizer, pre-tokenizer,
post-processor, decoder and added-token option, on a small model. Needs `pip install tokenizers`; the tests need only
the file. Usage: tokenizer_variants.py tokenizer_variants.json
"""
import json
import sys

from tokenizers import Tokenizer

TEXTS = [
    "", " ", "   ", "a", "abc", " abc", "abc ", "  two  spaces  ", "Hello, World!", "tab\tnew\nline\r\n", "a1b22c333",
    "\u00e9e\u0301", "\u0130I\u0131 \u00c9\u00dc\u00df", "\ufb01\u212b\u00bd\u2167\u00b2", "x\u180ey\u00a0z\u2003w\u3000v\u0085u",
    "don't  stop-now, (really)?", "\u4f60\u597d, \u4e16\u754c\u3002", "\u0915\u094d\u0937\u093f\u200dx\u200cy", "<a><b> <b>", "x<a>y <a> z",
    " <b> ", "\n<b>\n", "word<w>word <w> word", "<w>", "<w>_<w>", "<aa><a>", "CAF\u00c9 caf\u00e9 <N> <n>", "<N>", "<n>x<N>", "$5+3=8^_`|~",
    "\u2581a\u2581 b", "\U0001f642\U0001f469\u200d\U0001f467", "a\u0316\u0301b\u0301\u0316", "aaaaaaaa", "\u017fs 'S \u212a", "abab--ab", "--", "-a-", "x--y-z",
    "\u0661\u0662 \u216b \u2460", "_under_score__", "\u203f\u2040tie", "a.b..c...", "\u00ab q \u00bb", "\ufffd\x00\x7f",
]

# A model with bytes, so that nothing is unknown, and a few merges.
def model(**options):
    vocab = {"<unk>": 0}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHI\u2581 _-.,'0123456789<>\u0120\u010a\u00c3\u00a9\u00a0":
        vocab[c] = len(vocab)
    merges = []
    for a, b in [("a", "b"), ("ab", "ab"), ("a", "a"), ("aa", "aa"), ("w", "o"), ("wo", "r"), ("wor", "d"), ("\u2581", "a"),
                 (" ", "a"), ("\u0120", "a"), ("-", "-"), ("l", "l"), ("e", "ll"), ("2", "2"), ("3", "3"), ("\u2581", "\u2581"), (" ", " ")]:
        if a + b not in vocab:
            vocab[a + b] = len(vocab)
        merges.append([a, b])
    out = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
           "fuse_unk": False, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges}
    out.update(options)
    return out


def added(*tokens):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    vocab = model()["vocab"]
    return [dict(base, id=vocab.get(content, len(vocab) + i), content=content, **options)
            for i, (content, options) in enumerate(tokens)]


PLAIN = added(("<a>", {}), ("<b>", {"special": True}))
split = lambda pattern, behavior, invert=False: {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
byte_level = lambda prefix, regex: {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}
metaspace = lambda scheme, cut: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}
replace = lambda pattern, content: {"type": "Replace", "pattern": pattern, "content": content}
seq = lambda kind, *parts: {"type": "Sequence", kind: list(parts)}

VARIANTS = {"bare": {}}
for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"]:
    VARIANTS["normalizer " + form] = {"normalizer": {"type": form}}
for left, right in [(True, False), (False, True), (True, True)]:
    VARIANTS[f"normalizer Strip {left} {right}"] = {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
VARIANTS["normalizer Prepend"] = {"normalizer": {"type": "Prepend", "prepend": "\u2581"}}
VARIANTS["normalizer Replace String"] = {"normalizer": replace({"String": "ab"}, "X$1\\0")}
for pattern in [r"\s+", r"\w+", r"a*", r"(?i)S", r"\d", r"^a|b$", r"\W", r"\h", r"[[:space:]]", r"[^\S\n]+", r".", r"(?m:.)", r"\u0061", r"\p{Han}", r"a{,2}b", r"[\p{L}&&[^a-c]]+",
                r"[a-c&&[b]]", r"\p{^Han}", r"\P{Latin}"]:
    VARIANTS["normalizer Replace Regex " + pattern] = {"normalizer": replace({"Regex": pattern}, "-")}
VARIANTS["normalizer Sequence"] = {"normalizer": seq("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                                                     {"type": "Prepend", "prepend": "_"}, replace({"String": " "}, "\u2581"))}
for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
    for invert in [False, True]:
        for name, pattern in [("String", {"String": "-"}), ("Regex", {"Regex": r"\s|-"}), ("Empty", {"Regex": "b*"})]:
            VARIANTS[f"Split {name} {behavior} {invert}"] = {"pre_tokenizer": split(pattern, behavior, invert)}
    VARIANTS["Punctuation " + behavior] = {"pre_tokenizer": {"type": "Punctuation", "behavior": behavior}}
for prefix in [False, True]:
    for regex in [False, True]:
        VARIANTS[f"ByteLevel {prefix} {regex}"] = {"pre_tokenizer": byte_level(prefix, regex), "decoder": byte_level(True, True)}
VARIANTS["Split then ByteLevel prefix"] = {"pre_tokenizer": seq("pretokenizers", split({"Regex": r"\s+"}, "Isolated"), byte_level(True, False))}
for scheme in ["always", "first", "never"]:
    for cut in [False, True]:
        VARIANTS[f"Metaspace {scheme} {cut}"] = {"pre_tokenizer": metaspace(scheme, cut), "decoder": metaspace(scheme, cut)}
VARIANTS["Metaspace after a split"] = {"pre_tokenizer": seq("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("first", True))}
for one in [False, True]:
    VARIANTS[f"Digits {one}"] = {"pre_tokenizer": {"type": "Digits", "individual_digits": one}}
for kind in ["Whitespace", "WhitespaceSplit", "BertPreTokenizer"]:
    VARIANTS[kind] = {"pre_tokenizer": {"type": kind}}
for option in ["lstrip", "rstrip", "single_word", "special"]:
    for normalized in [False, True]:
        VARIANTS[f"added {option} {normalized}"] = {"added_tokens": added(
            ("<a>", {option: True, "normalized": normalized}), ("<aa>", {}), ("<b>", {option: True, "lstrip": True, "rstrip": True}),
            ("<w>", {option: True, "normalized": normalized}), ("<N>", {"normalized": True}), ("ab", {option: True}))}
VARIANTS["added normalized Lowercase"] = {"normalizer": {"type": "Lowercase"}, "added_tokens": added(("<N>", {"normalized": True}), ("<A>", {}))}
VARIANTS["added normalized Prepend"] = {"normalizer": seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, replace({"String": " "}, "\u2581")),
                                        "added_tokens": added(("<N>", {"normalized": True}), ("<a>", {"normalized": True}), ("<b>", {}))}
VARIANTS["added of the vocabulary"] = {"added_tokens": [*added(("<unk>", {"special": True})), *PLAIN]}
VARIANTS["Bert post"] = {"post_processor": {"type": "BertProcessing", "sep": ["<b>", 275], "cls": ["<a>", 7]}}
VARIANTS["Roberta post"] = {"post_processor": {"type": "RobertaProcessing", "sep": ["<b>", 275], "cls": ["<a>", 7], "trim_offsets": True, "add_prefix_space": False}}
VARIANTS["Template post"] = {"post_processor": {
    "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<b>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                             {"SpecialToken": {"id": "two", "type_id": 0}}], "pair": [],
    "special_tokens": {"<b>": {"id": "<b>", "ids": [9], "tokens": ["<b>"]}, "two": {"id": "two", "ids": [3, 4], "tokens": ["x", "y"]}}}}
VARIANTS["Sequence post"] = {"post_processor": seq("processors", byte_level(True, True), VARIANTS["Template post"]["post_processor"])}
fallback = {"type": "ByteFallback"}
fuse = {"type": "Fuse"}
strip = lambda content, start, stop: {"type": "Strip", "content": content, "start": start, "stop": stop}
for name, parts in {"ByteFallback": [fallback], "Fuse ByteFallback": [fuse, fallback], "Fuse": [fuse],
                    "Strip": [fallback, fuse, strip(" ", 2, 1)], "Strip each": [strip("a", 1, 0)], "Strip ends": [fallback, fuse, strip("-", 0, 2)],
                    "Replace": [replace({"String": "ab"}, "<$0>"), fallback], "ByteLevel Fuse": [fuse, byte_level(True, True)],
                    "Fuse Replace": [fallback, fuse, replace({"String": "aa"}, "A"), strip("A", 1, 0)],
                    "ByteLevel Replace": [fallback, byte_level(True, True), replace({"String": "ab"}, "")]}.items():
    VARIANTS["decoder " + name] = {"decoder": seq("decoders", *parts)}
VARIANTS["unknown"] = {"model": {"byte_fallback": False}}
VARIANTS["unknown fused"] = {"model": {"byte_fallback": False, "fuse_unk": True}}
VARIANTS["unknown dropped"] = {"model": {"byte_fallback": False, "unk_token": None}}
VARIANTS["ignore_merges"] = {"model": {"ignore_merges": True, "merges": []}}

def decode(tokenizer, ids, skip):
    """None where the library itself fails: its Strip runs past the end of a token that is all content."""
    try:
        return tokenizer.decode(ids, skip_special_tokens=skip)
    except BaseException as e:
        if type(e).__name__ != "PanicException":
            raise
        return None


result = {"texts": TEXTS, "variants": []}
for name, change in VARIANTS.items():
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": change.get("added_tokens", PLAIN),
            "normalizer": change.get("normalizer"), "pre_tokenizer": change.get("pre_tokenizer"),
            "post_processor": change.get("post_processor"), "decoder": change.get("decoder")}
    options = change.get("model", {})
    tokenizer = Tokenizer.from_str(json.dumps(dict(file, model=model(**options))))
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append([ids, plain, decode(tokenizer, ids, False), decode(tokenizer, ids, True)])
    result["variants"].append({"name": name, "file": file, "model": options, "cases": cases})
result["model"] = model()
with open(sys.argv[1], "w") as out:
    json.dump(result, out, separators=(",", ":"))
    out.write("\n")
print(len(VARIANTS), "variants")
