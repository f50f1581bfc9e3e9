"""Every kind of rotary embedding that transformers knows, in every family, over the weights of golden checkpoints.
    python3 make_rope_variants.py GOLDENS OUT    with the libraries of the goldens
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/models/rope_variants. variants.json names, for every
family and kind, the fields of config.json that change against the golden folder; golden.safetensors holds, under
<family>.<kind>, the first 64 logits of the last position of the longest prompt. What transformers cannot run has no
entry: the recipe prints why.
"""
import json, os, sys, tempfile
import torch
from safetensors.torch import save_file
from reference import load_base, prompts_of

FAMILIES = ["deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe", "flex_olmo", "gemma4_text", "glm4_moe", "gpt_oss",
            "granitemoe", "granitemoehybrid", "granitemoeshared", "hunyuan_v1_moe", "lfm2_moe", "llama4_text",
            "minimax_m2", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next"]
KEPT = 64
# transformers 5 keeps to the short factors there; models/phimoe_longrope has what the model was trained with
SKIPPED = {("phimoe", "longrope")}
# the original lengths lie below the prompt's
ALL = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 16},
    "proportional": {"factor": 2.0, "partial_rotary_factor": 0.5},
}
# optional fields, in one family
MORE = {
    "yarn_options": {"attention_factor": 1.3, "beta_fast": 8, "beta_slow": 0.5, "factor": 4.0,
                     "original_max_position_embeddings": 16, "truncate": False},
    "yarn_mscale": {"factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.4, "original_max_position_embeddings": 16},
    "longrope_options": {"attention_factor": 1.4, "factor": 8.0, "original_max_position_embeddings": 16},
}


def rotated(config, rope):
    head = config.get("qk_rope_head_dim") or config["head_dim"]
    return int(head * rope.get("partial_rotary_factor", 1.0))


def parameters(kind, config, rope):
    known, kind = dict(ALL, **MORE)[kind], kind.split("_")[0]
    fields = {"rope_type": kind, "rope_theta": rope["rope_theta"]}
    if "partial_rotary_factor" in rope and rope["rope_type"] == "default":
        fields["partial_rotary_factor"] = rope["partial_rotary_factor"]
    fields.update(known)
    if kind == "longrope":
        count = rotated(config, fields) // 2
        fields["short_factor"] = [1.0 + 0.125 * i for i in range(count)]
        fields["long_factor"] = [1.0 + 1.5 * i for i in range(count)]
    if config["model_type"] == "phimoe":  # what multiplies cos and sin there is the config's own
        fields["short_mscale"] = fields["long_mscale"] = 1.25
    return fields


def changes(kind, config):
    rope = config["rope_parameters"]
    changed = {"max_position_embeddings": 16 if kind == "dynamic" else 64}
    if "rope_type" in rope:
        changed["rope_parameters"] = parameters(kind, config, rope)
    else:  # one for each type of layer
        changed["rope_parameters"] = {layer: parameters(kind, config, part) for layer, part in rope.items()}
    if config["model_type"] == "granitemoehybrid":
        changed["position_embedding_type"] = "rope"
    return changed


def last_logits(base, config):
    with tempfile.TemporaryDirectory() as checkpoint:
        os.symlink(os.path.abspath(os.path.join(base, "model.safetensors")),
                   os.path.join(checkpoint, "model.safetensors"))
        with open(os.path.join(checkpoint, "config.json"), "w") as f:
            json.dump(config, f)
        with torch.no_grad():
            ids = torch.tensor([prompts_of(base)[2]])
            return load_base(checkpoint)(input_ids=ids, use_cache=False).logits[0, -1].float()


def main(goldens, out):
    os.makedirs(out, exist_ok=True)
    variants, golden = [], {}
    for family in FAMILIES:
        base = os.path.join(goldens, family)
        with open(os.path.join(base, "config.json")) as f:
            config = json.load(f)
        own = last_logits(base, dict(config, **({"position_embedding_type": "rope"}
                                                if family == "granitemoehybrid" else {})))
        for kind in list(ALL) + (list(MORE) if family == "mixtral" else []):
            if (family, kind) in SKIPPED:
                continue
            changed = changes(kind, config)
            try:
                logits = last_logits(base, dict(config, **changed))
            except Exception as e:
                print(family, kind, "cannot be run:", repr(e)[:200])
                continue
            golden[f"{family}.{kind}"] = logits[:KEPT].clone()
            variants.append({"family": family, "kind": kind, "config": changed})
            print(family, kind, "moves the logits by", round(float((logits - own).abs().max()), 3))
    with open(os.path.join(out, "variants.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(v, sort_keys=True) for v in variants) + "\n]\n")
    save_file(golden, os.path.join(out, "golden.safetensors"))


main(*sys.argv[1:])
