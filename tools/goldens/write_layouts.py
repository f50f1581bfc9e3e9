#!/usr/bin/env python3
"""Rewrites one adapter on stacked experts into every layout in which such adapters are published.
    write_layouts.py CANONICAL OUT [--style qwen|mixtral|nemotron|gpt_oss] [--experts E] [--only LAYOUT ...]
CANONICAL is a folder as PEFT 0.19 and newer save it for target_parameters. Needs nothing beyond the standard library.

The numbers are copied bit for bit, so all layouts describe the same model. With E experts, rank r and a matrix
[out, in] for each expert, CANONICAL holds lora_A [E*r, in], expert slowest, and lora_B [out, r*E], expert fastest.
  per_expert            experts.{e}.{gate,up,down}_proj: A [r, in], B [out, r]; gate and up get copies of the shared A
  stacked               CANONICAL itself
  stacked_old           PEFT 0.18 and older: A [E*r, out], B [in, r*E]; each expert's delta is (B A) transposed
  stacked_expert_major  lora_B [out, E*r] with the expert slowest, as Unsloth packed it until September 2026; the shapes
                        are those of `stacked`, so nothing in the file tells them apart
  stacked_3d            the names of `stacked` with A [E, r, in] and B [out, r, E] (Megatron-Bridge, stack_3d_moe)
  named_3d              experts.gate_up_proj and experts.down_proj by name, A [E, r, in] and B [E, out, r]
                        (Megatron-Bridge, packed)
  named_3d_twice        the same, with an A of its own for gate and for up, one after the other: [E, 2r, in] (SGLang)
  split_3d              experts.gate_proj, up_proj and down_proj, each 3-D (SGLang)
  tinker                experts.w1, w3 and w2, each 3-D; without a gate w1 and w2, and w3 is there without elements
Adapters whose experts share one side ("shared outer"): A of gate and up, and B of down, of the first expert for all.
  outer_stacked         CANONICAL with the first expert's numbers repeated: the yardstick of the others
  outer_stacked_3d, outer_named_3d, outer_named_3d_twice, outer_split_3d, outer_tinker
                        the same numbers with 1 in place of E
And with both sides shared:
  collapsed_stacked, collapsed_named_3d
Styles name the per-expert modules: qwen mlp.experts.{e}.gate_proj, mixtral block_sparse_moe.experts.{e}.w1, nemotron
backbone.layers.*.mixer.experts.{e}.up_proj without a gate, gpt_oss mlp.experts.{e}.gate_proj of a model whose stacked
rows alternate.
"""
import argparse, array, json, os, struct

CODE = {"F64": "Q", "F32": "I", "F16": "H", "BF16": "H"}  # bit patterns, never numbers
PACKED = ["stacked_3d", "named_3d", "named_3d_twice", "split_3d", "tinker"]
LAYOUTS = ["per_expert", "stacked", "stacked_old", "stacked_expert_major", *PACKED, "outer_stacked",
           *("outer_" + layout for layout in PACKED), "collapsed_stacked", "collapsed_named_3d"]


class Tensor:
    def __init__(self, dtype, shape, bits):
        self.dtype, self.shape, self.bits = dtype, list(shape), bits

    def build(self, shape, source):
        """A tensor of this shape whose element at (i, j, ...) is self.bits[source(i, j, ...)]."""
        indices = [()]
        for size in shape:
            indices = [i + (j,) for i in indices for j in range(size)]
        return Tensor(self.dtype, shape, array.array(self.bits.typecode, [self.bits[source(*i)] for i in indices]))


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            bits = array.array(CODE[entry["dtype"]])
            bits.frombytes(data[begin:end])
            tensors[name] = Tensor(entry["dtype"], entry["shape"], bits)
    return tensors


def write_safetensors(path, tensors):
    header, offset, chunks = {"__metadata__": {"format": "pt"}}, 0, []
    for name, tensor in sorted(tensors.items()):
        chunk = tensor.bits.tobytes()
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, offset + len(chunk)]}
        offset += len(chunk)
        chunks.append(chunk)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


class Pair:
    """lora_A and lora_B of one stacked parameter, in the canonical layout."""

    def __init__(self, key, module, parameter, a, b, experts):
        self.key, self.module, self.parameter, self.a, self.b, self.e = key, module, parameter, a, b, experts
        self.r, self.inputs, self.outputs = a.shape[0] // experts, a.shape[1], b.shape[0]
        self.one_a = self.one_b = False  # the experts share the first one's
        if a.shape[0] != experts * self.r or b.shape[1] != a.shape[0]:
            raise SystemExit(f"{key}: lora_A {a.shape} and lora_B {b.shape} do not hold {experts} experts of one rank")

    def at_a(self, e, k, i):
        e = 0 if self.one_a else e
        return (e * self.r + k) * self.inputs + i

    def at_b(self, e, o, k):
        e = 0 if self.one_b else e
        return o * self.r * self.e + k * self.e + e


def pairs_of(tensors, config, experts):
    """Finds the wrappers. The inner one (base_layer) holds the parameter that the model defines first."""
    parameters = [p.split(".")[-1] for p in config.get("target_parameters") or []]
    parameters.sort(key=lambda p: p == "down_proj")  # gate_up_proj or up_proj comes before down_proj in every model
    pairs = []
    for name in sorted(tensors):
        if not name.endswith(".lora_A.weight") or ".experts." not in name:
            continue
        key = name[:-len(".lora_A.weight")]
        module = key[:-len(".base_layer")] if key.endswith(".base_layer") else key
        parameter = parameters[0] if key != module or len(parameters) == 1 else parameters[1]
        count = experts or tensors[name].shape[0] // config["r"]
        pairs.append(Pair(key, module, parameter, tensors[name], tensors[f"{key}.lora_B.weight"], count))
    if not pairs:
        raise SystemExit("the adapter has no stacked experts: names with experts.lora_A are missing")
    return pairs


def put(out, key, a, b):
    out[f"{key}.lora_A.weight"], out[f"{key}.lora_B.weight"] = a, b


def projections(p, style):
    """(name, rows of B) of each projection that the stacked parameter holds."""
    rows = range(p.outputs)
    if p.parameter != "gate_up_proj":
        return [(p.parameter, rows)]
    half = p.outputs // 2
    if style == "gpt_oss":
        return [("gate_proj", rows[::2]), ("up_proj", rows[1::2])]
    return [("gate_proj", rows[:half]), ("up_proj", rows[half:])]


def per_expert(p, style, out):
    names = projections(p, style)
    module = p.module
    if style == "mixtral":
        module = module.replace(".mlp.experts", ".block_sparse_moe.experts")
        names = [({"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[n], rows) for n, rows in names]
    elif style == "nemotron":
        module = module.replace(".model.model.layers.", ".model.backbone.layers.")
    for e in range(p.e):
        for name, rows in names:
            put(out, f"{module}.{e}.{name}",
                p.a.build([p.r, p.inputs], lambda k, i: p.at_a(e, k, i)),
                p.b.build([len(rows), p.r], lambda o, k: p.at_b(e, rows[o], k)))
    return [n for n, _ in names]


def stacked_old(p, out):
    put(out, p.key,
        p.b.build([p.e * p.r, p.outputs], lambda ek, o: p.at_b(ek // p.r, o, ek % p.r)),
        p.a.build([p.inputs, p.r * p.e], lambda i, ke: p.at_a(ke % p.e, ke // p.e, i)))


def stacked_expert_major(p, out):
    put(out, p.key, p.a, p.b.build([p.outputs, p.e * p.r], lambda o, ek: p.at_b(ek // p.r, o, ek % p.r)))


def stacked(p, out):
    put(out, p.key,
        p.a.build([p.e * p.r, p.inputs], lambda ek, i: p.at_a(ek // p.r, ek % p.r, i)),
        p.b.build([p.outputs, p.r * p.e], lambda o, ke: p.at_b(ke % p.e, o, ke // p.e)))


def stacked_3d(p, out):
    put(out, p.key,
        p.a.build([1 if p.one_a else p.e, p.r, p.inputs], lambda e, k, i: p.at_a(e, k, i)),
        p.b.build([p.outputs, p.r, 1 if p.one_b else p.e], lambda o, k, e: p.at_b(e, o, k)))


def put_3d(p, out, name, rows, a_copies=1):
    put(out, f"{p.module}.{name}",
        p.a.build([1 if p.one_a else p.e, a_copies * p.r, p.inputs], lambda e, k, i: p.at_a(e, k % p.r, i)),
        p.b.build([1 if p.one_b else p.e, len(rows), p.r], lambda e, o, k: p.at_b(e, rows[o], k)))


def named_3d(p, out):
    put_3d(p, out, p.parameter, range(p.outputs))


def named_3d_twice(p, out):
    put_3d(p, out, p.parameter, range(p.outputs), 2 if p.parameter == "gate_up_proj" else 1)


def split_3d(p, style, out):
    for name, rows in projections(p, style):
        put_3d(p, out, name, rows)


def tinker(p, style, out):
    parts = projections(p, style)
    for name, rows in parts:
        tinker_name = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[name]
        put_3d(p, out, "w1" if parts[0][0] == "up_proj" else tinker_name, rows)
    if parts[0][0] == "up_proj":
        nothing = Tensor(p.a.dtype, [0], array.array(p.a.bits.typecode))
        put(out, f"{p.module}.w3", nothing, nothing)


def rewrite(canonical, out_dir, layout, style="qwen", experts=None):
    tensors = read_safetensors(os.path.join(canonical, "adapter_model.safetensors"))
    with open(os.path.join(canonical, "adapter_config.json")) as f:
        config = json.load(f)
    if config.get("rank_pattern") or config.get("alpha_pattern"):
        raise SystemExit("patterns name stacked parameters and would not fit the other layouts; use an adapter without")
    pairs = pairs_of(tensors, config, experts)
    keys = {f"{p.key}.lora_{x}.weight" for p in pairs for x in "AB"}
    out = {name: tensor for name, tensor in tensors.items() if name not in keys}  # what is not on experts stays as it is
    modules = set(config.get("target_modules") or [])
    shares, _, form = layout.partition("_")
    form = form if shares in ("outer", "collapsed") else layout
    for p in pairs:
        p.one_a = shares == "collapsed" or (shares == "outer" and p.parameter != "down_proj")
        p.one_b = shares == "collapsed" or (shares == "outer" and p.parameter == "down_proj")
        if form == "per_expert":
            modules.update(per_expert(p, style, out))
        elif form in ("split_3d", "tinker"):
            {"split_3d": split_3d, "tinker": tinker}[form](p, style, out)
        else:
            {"stacked": stacked, "stacked_old": stacked_old, "stacked_expert_major": stacked_expert_major,
             "stacked_3d": stacked_3d, "named_3d": named_3d, "named_3d_twice": named_3d_twice}[form](p, out)
    if form in ("split_3d", "tinker"):
        config.update(target_modules=sorted({k.split(".")[-3] for k in out if ".experts." in k} | modules),
                      target_parameters=None)
    if layout == "per_expert":
        config.update(target_modules=sorted(modules), target_parameters=None)
    elif layout == "stacked_old":
        config["peft_version"] = "0.18.1"
    target = os.path.join(out_dir, layout)
    os.makedirs(target, exist_ok=True)
    write_safetensors(os.path.join(target, "adapter_model.safetensors"), out)
    with open(os.path.join(target, "adapter_config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("canonical")
    parser.add_argument("out")
    parser.add_argument("--style", choices=["qwen", "mixtral", "nemotron", "gpt_oss"], default="qwen")
    parser.add_argument("--experts", type=int, help="default: the rows of lora_A divided by the r of the config")
    parser.add_argument("--only", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    args = parser.parse_args()
    for layout in args.only:
        rewrite(args.canonical, args.out, layout, args.style, args.experts)


if __name__ == "__main__":
    main()
