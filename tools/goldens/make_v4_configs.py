"""Writes config.json files of golden checkpoints as transformers 4 does, and checks that they describe the same model.
    python3 make_v4_configs.py make  GOLDENS OUT [NAME]    with transformers 4; NAME is the file's name (config_v4.json)
    python3 make_v4_configs.py check GOLDENS OUT [NAME]    runs the golden weights under the config; any transformers
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/layouts. transformers 4.55 writes torch_dtype, 4.57
writes dtype. NemotronH was never part of transformers 4: its file follows the key set of NVIDIA's published checkpoints.
"""
import json, os, shutil, sys, tempfile
import torch
import transformers
from safetensors.torch import load_file
from reference import largest_change, prompts_of, record

FAMILIES = ["qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "nemotron_h", "mixtral_rope_linear", "mixtral_rope_dynamic",
            "mixtral_rope_yarn", "mixtral_rope_llama3", "mixtral_rope_longrope"]
# What the golden config carries in the newer style only, or what the older class computes by itself.
NEWER = {"architectures", "model_type", "dtype", "transformers_version", "rope_parameters", "layer_types",
         "num_local_experts", "layers_block_type", "mtp_layers_block_type"}
LETTER = {"linear_attention": "M", "mamba": "M", "moe": "E", "full_attention": "*", "attention": "*", "mlp": "-"}


def read(path):
    with open(path) as f:
        return json.load(f)


def rope_scaling(rope):
    """The older rope_scaling: some files name the kind "type", some "rope_type", some both."""
    kind = rope["rope_type"]
    if kind == "default":
        return None
    scaling = {k: v for k, v in rope.items() if k not in ("rope_type", "rope_theta")}
    if kind in ("linear", "longrope", "dynamic"):
        scaling["type"] = kind
    if kind != "linear" and kind != "longrope":
        scaling["rope_type"] = kind
    return scaling


def older(config):
    """Arguments for the configuration class of transformers 4."""
    kind = config["model_type"]
    out = {k: v for k, v in config.items() if k not in NEWER}
    experts = config.get("num_local_experts", config.get("num_experts"))
    out["num_local_experts" if kind == "mixtral" else "num_experts"] = experts
    rope = config["rope_parameters"]
    out["rope_theta"] = rope["rope_theta"]
    scaling = rope_scaling(rope)
    if scaling is not None or kind != "mixtral":  # Mixtral's class has no such field of its own
        out["rope_scaling"] = scaling
    if scaling and "long_factor" in scaling:  # longrope: the original length stands beside rope_scaling, as in Phi
        out["original_max_position_embeddings"] = scaling.pop("original_max_position_embeddings")
    if kind in ("olmoe", "qwen2_moe"):  # published files leave it to hidden_size / num_attention_heads
        out.pop("head_dim", None)
    if kind == "qwen2_moe":
        out["sliding_window"] = 4096  # saved as null, since use_sliding_window is false
    return out


def nemotron(config):
    """NVIDIA's files: hybrid_override_pattern, num_hidden_layers, bare Infinity, rope fields that nothing reads."""
    blocks = config["layers_block_type"]
    gone = ("layers_block_type", "mtp_layers_block_type", "dtype", "num_nextn_predict_layers", "moe_latent_size",
            "moe_shared_expert_overlap", "transformers_version")
    out = {k: v for k, v in config.items() if k not in gone}
    out.update(hybrid_override_pattern="".join(LETTER[b] for b in blocks), num_hidden_layers=len(blocks),
               norm_eps=config["layer_norm_epsilon"], partial_rotary_factor=1.0, rope_theta=10000,
               time_step_limit=[0.0, float("inf")], torch_dtype="bfloat16", transformers_version="4.55.4",
               auto_map={"AutoConfig": "configuration_nemotron_h.NemotronHConfig",
                         "AutoModelForCausalLM": "modeling_nemotron_h.NemotronHForCausalLM"})
    return dict(sorted(out.items()))


def make(goldens, out, name="config_v4.json"):
    for family in FAMILIES:
        config = read(os.path.join(goldens, family, "config.json"))
        target = os.path.join(out, family)
        if config["model_type"] == "nemotron_h":
            if name == "config_v4.json":
                os.makedirs(target, exist_ok=True)
                with open(os.path.join(target, name), "w") as f:
                    json.dump(nemotron(config), f, indent=2)
                    f.write("\n")
            continue
        if not transformers.__version__.startswith("4."):
            raise SystemExit("make needs transformers 4")
        made = transformers.AutoConfig.for_model(config["model_type"], **older(config))
        made.architectures = config["architectures"]
        made.torch_dtype = torch.bfloat16
        with tempfile.TemporaryDirectory() as t:
            made.save_pretrained(t)
            os.makedirs(target, exist_ok=True)
            shutil.copy(os.path.join(t, "config.json"), os.path.join(target, name))
        if family == "qwen2_moe" and name == "config_v4.json":
            # the oldest files keep a window's length that use_sliding_window switches off
            window = dict(read(os.path.join(target, name)), sliding_window=8, transformers_version="4.39.0")
            with open(os.path.join(target, "config_v4_window.json"), "w") as f:
                json.dump(window, f, indent=2)
                f.write("\n")


def check(goldens, out, name="config_v4.json"):
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    for family in FAMILIES:
        path, folder = os.path.join(out, family, name), os.path.join(goldens, family)
        if not os.path.exists(path) or read(path)["model_type"] not in known:
            print(f"{family}: skipped")
            continue
        with tempfile.TemporaryDirectory() as t:
            config = read(path)
            config.pop("auto_map", None)  # the class that ships with transformers, not code beside the weights
            with open(os.path.join(t, "config.json"), "w") as f:
                json.dump(config, f)
            os.symlink(os.path.abspath(os.path.join(folder, "model.safetensors")), os.path.join(t, "model.safetensors"))
            model = transformers.AutoModelForCausalLM.from_pretrained(
                t, torch_dtype=torch.float32, attn_implementation="eager").eval()
        want = load_file(os.path.join(folder, "golden.safetensors"))
        got = record(model, prompts_of(folder), new=12)
        same = all(torch.equal(got[f"greedy.{i}"], want[f"greedy.{i}"]) for i in range(3))
        print(f"{family}: logits differ by {largest_change(got, want):.1e}, greedy {'equal' if same else 'DIFFERS'}")


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:5])
