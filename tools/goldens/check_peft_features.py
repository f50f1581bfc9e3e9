"""Checks the adapters of make_peft_features.py without PEFT: merges each by formula and runs the merged checkpoint.
    python3 check_peft_features.py GOLDENS OUT
Ranks and scales come from adapter_config.json by the rule for patterns alone (the README states it).
"""
import json, os, re, sys, tempfile
import torch
from safetensors.torch import load_file, save_file
from reference import largest_change, load_base, prompts_of, record

PREFIX = "base_model.model."


def pattern(patterns, name, default):
    """The value of the first key, in the file's order, that names the end of `name` from a dot on."""
    for key, value in patterns.items():
        if re.match(rf"(.*\.)?({key})$", name):
            return value
    return default


def merge(state, tensors, config):
    """Adds the adapter to the checkpoint's tensors; returns the names that it used."""
    used, embedding = set(), state["model.embed_tokens.weight"].clone()

    def take(key):
        used.add(key)
        return tensors[key]

    def rank_and_scale(name):
        r = pattern(config["rank_pattern"], name, config["r"])
        alpha = pattern(config["alpha_pattern"], name, config["lora_alpha"])
        return r, alpha / (r ** 0.5 if config["use_rslora"] else r)

    def experts(module, a, b):
        parameter = "gate_up_proj" if module.endswith(".base_layer") else "down_proj"
        module = module.removesuffix(".base_layer")
        r, scale = rank_and_scale(f"{module}.{parameter}")
        count = a.shape[0] // r
        a, b = a.reshape(count, r, -1), b.reshape(b.shape[0], r, count)
        for e in range(count):
            delta = scale * b[:, :, e] @ a[e]
            names = ["gate_proj", "up_proj"] if parameter == "gate_up_proj" else ["down_proj"]
            for name, part in zip(names, delta.chunk(len(names))):
                state[f"{module}.{e}.{name}.weight"] += part

    for key in tensors:
        name = key.removeprefix(PREFIX)
        if name.endswith(".lora_embedding_A"):
            module = name.removesuffix(".lora_embedding_A")
            scale = rank_and_scale(module)[1]
            state[f"{module}.weight"] += scale * (take(key.replace("_A", "_B")) @ take(key)).T
        elif name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight")
            a, b = take(key), take(key.replace("lora_A", "lora_B"))
            if ".experts" in module:
                experts(module, a, b)
                continue
            r, scale = rank_and_scale(module)
            if a.shape[0] != r:
                raise SystemExit(f"{key}: the file has rank {a.shape[0]}, the config {r}")
            weight = state[f"{module}.weight"] + scale * b @ a
            if config["use_dora"]:
                magnitude = take(f"{PREFIX}{module}.lora_magnitude_vector")
                weight = magnitude[:, None] * weight / weight.norm(dim=1, keepdim=True)
            state[f"{module}.weight"] = weight
            if f"{PREFIX}{module}.lora_B.bias" in tensors:
                state[f"{module}.bias"] += scale * take(f"{PREFIX}{module}.lora_B.bias")
        elif "lora_" not in name:  # modules_to_save, the trained biases of the base, the embedding's unchanged weight
            target = name.replace(".base_layer", "")
            if target != "model.embed_tokens.weight":
                state[target] = take(key)
            elif not torch.equal(take(key), embedding):
                raise SystemExit(f"{key} is not the checkpoint's")
    return used


def check(base, adapter, label):
    state = {k: v.float() for k, v in load_file(os.path.join(base, "model.safetensors")).items()}
    with open(os.path.join(base, "config.json")) as f:
        base_config = json.load(f)
    with open(os.path.join(adapter, "adapter_config.json")) as f:
        config = json.load(f)
    if base_config["tie_word_embeddings"]:  # untied for the run, since the adapter changes one side only
        state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()
        base_config["tie_word_embeddings"] = False
    tensors = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    left = set(tensors) - merge(state, tensors, config)
    if left:
        raise SystemExit(f"{label}: left over {sorted(left)}")
    with tempfile.TemporaryDirectory() as t:
        save_file({k: v.contiguous() for k, v in state.items()}, os.path.join(t, "model.safetensors"),
                  metadata={"format": "pt"})
        with open(os.path.join(t, "config.json"), "w") as f:
            json.dump(base_config, f)
        got = record(load_base(t), prompts_of(base))
    want = load_file(os.path.join(adapter, "golden.safetensors"))
    same = all(torch.equal(got[f"greedy.{i}"], want[f"greedy.{i}"]) for i in range(3))
    line = f"{label}: logits differ by {largest_change(got, want):.1e}, greedy {'equal' if same else 'DIFFERS'}"
    if not same or largest_change(got, want) > 1e-4:
        raise SystemExit(line)
    print(line)


def main(goldens, out):
    for base in ("qwen3_moe", "qwen3_moe_mixed"):
        for name in sorted(os.listdir(os.path.join(out, base))):
            if not name.endswith("_old"):
                check(os.path.join(goldens, base), os.path.join(out, base, name), f"{base}/{name}")
    base = os.path.join(out, "models", "qwen3_moe_bias")
    for name in sorted(os.listdir(os.path.join(base, "adapters"))):
        check(base, os.path.join(base, "adapters", name), f"qwen3_moe_bias/{name}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
