#!/usr/bin/env python3
"""Rewrites one adapter on stacked experts into every layout in which such adapters are published.
    write_layouts.py CANONICAL OUT [--style qwen|mixtral|nemotron] [--experts E] [--only LAYOUT ...]
CANONICAL is a folder as PEFT 0.19 and newer save it for target_parameters. Needs nothing beyond the standard library.

The numbers are copied bit for bit, so all layouts describe the same model. With E experts, rank r and a matrix
[out, in] for each expert, CANONICAL holds lora_A [E*r, in], expert slowest, and lora_B [out, r*E], expert fastest.
  per_expert            experts.{e}.{gate,up,down}_proj: A [r, in], B [out, r]; gate and up get copies of the shared A
  stacked               CANONICAL itself
  stacked_old           PEFT 0.18 and older: A [E*r, out], B [in, r*E]; each expert's delta is (B A) transposed
  stacked_expert_major  lora_B [out, E*r] with the expert slowest, as Unsloth packed it until September 2026; the shapes
                        are those of `stacked`, so nothing in the file tells them apart
  stacked_3d            the names of `stacked` with A [E, r, in] and B [out, r, E]
  named_3d              experts.gate_up_proj and experts.down_proj by name, A [E, r, in] and B [E, out, r]
Styles name the per-expert modules: qwen mlp.experts.{e}.gate_proj, mixtral block_sparse_moe.experts.{e}.w1, nemotron
backbone.layers.*.mixer.experts.{e}.up_proj without a gate.
"""
import argparse, array, json, os, struct

CODE = {"F64": "Q", "F32": "I", "F16": "H", "BF16": "H"}  # bit patterns, never numbers
LAYOUTS = ["per_expert", "stacked", "stacked_old", "stacked_expert_major", "stacked_3d", "named_3d"]


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
        if a.shape[0] != experts * self.r or b.shape[1] != a.shape[0]:
            raise SystemExit(f"{key}: lora_A {a.shape} and lora_B {b.shape} do not hold {experts} experts of one rank")

    def at_a(self, e, k, i):
        return (e * self.r + k) * self.inputs + i

    def at_b(self, e, o, k):
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


def per_expert(p, style, out):
    names = {"down_proj": [("down_proj", 0, p.outputs)], "up_proj": [("up_proj", 0, p.outputs)],
             "gate_up_proj": [("gate_proj", 0, p.outputs // 2), ("up_proj", p.outputs // 2, p.outputs)]}[p.parameter]
    module = p.module
    if style == "mixtral":
        module = module.replace(".mlp.experts", ".block_sparse_moe.experts")
        names = [({"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[n], lo, hi) for n, lo, hi in names]
    elif style == "nemotron":
        module = module.replace(".model.model.layers.", ".model.backbone.layers.")
    for e in range(p.e):
        for name, low, high in names:
            put(out, f"{module}.{e}.{name}",
                p.a.build([p.r, p.inputs], lambda k, i: p.at_a(e, k, i)),
                p.b.build([high - low, p.r], lambda o, k: p.at_b(e, low + o, k)))
    return [n for n, _, _ in names]


def stacked_old(p, out):
    put(out, p.key,
        p.b.build([p.e * p.r, p.outputs], lambda ek, o: p.at_b(ek // p.r, o, ek % p.r)),
        p.a.build([p.inputs, p.r * p.e], lambda i, ke: p.at_a(ke % p.e, ke // p.e, i)))


def stacked_expert_major(p, out):
    put(out, p.key, p.a, p.b.build([p.outputs, p.e * p.r], lambda o, ek: p.at_b(ek // p.r, o, ek % p.r)))


def stacked_3d(p, out):
    put(out, p.key, Tensor(p.a.dtype, [p.e, p.r, p.inputs], p.a.bits),
        Tensor(p.b.dtype, [p.outputs, p.r, p.e], p.b.bits))


def named_3d(p, out):
    put(out, f"{p.module}.{p.parameter}", Tensor(p.a.dtype, [p.e, p.r, p.inputs], p.a.bits),
        p.b.build([p.e, p.outputs, p.r], lambda e, o, k: p.at_b(e, o, k)))


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
    for p in pairs:
        if layout == "per_expert":
            modules.update(per_expert(p, style, out))
        elif layout == "stacked":
            put(out, p.key, p.a, p.b)
        else:
            {"stacked_old": stacked_old, "stacked_expert_major": stacked_expert_major, "stacked_3d": stacked_3d,
             "named_3d": named_3d}[layout](p, out)
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
    parser.add_argument("--style", choices=["qwen", "mixtral", "nemotron"], default="qwen")
    parser.add_argument("--experts", type=int, help="default: the rows of lora_A divided by the r of the config")
    parser.add_argument("--only", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    args = parser.parse_args()
    for layout in args.only:
        rewrite(args.canonical, args.out, layout, args.style, args.experts)


if __name__ == "__main__":
    main()
