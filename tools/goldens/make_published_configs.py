"""Configs as gpt-oss, Phi-3.5-MoE and Granite 4 publish them, over the weights of golden checkpoints, and what
transformers computes for them.
    python3 make_published_configs.py GOLDENS OUT    with the libraries of the goldens, then with transformers 4.57
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/models. Each folder gets config.json and
golden.safetensors; weights.txt names the golden folder whose model.safetensors goes with it. transformers 5 never takes
LongRoPE's long factors in phimoe, so that folder is made by 4.57, which takes them beyond the original length, as the
model was trained. The dense Granite reads no block_sparse_moe tensors.
"""
import json, os, sys, tempfile
import torch, transformers
from safetensors.torch import load_file, save_file
from reference import largest_change, load_base, prompts_of, record

COMMON = {"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 64,
          "initializer_range": 0.02, "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
          "num_key_value_heads": 2, "output_router_logits": False, "router_aux_loss_coef": 0.001,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 320}
# the original lengths lie below the longest prompt and above the shortest
MODELS = {
    "gpt_oss_published": ("5.", "gpt_oss", dict(
        COMMON, architectures=["GptOssForCausalLM"], model_type="gpt_oss", attention_bias=True, experts_per_token=2,
        head_dim=16, initial_context_length=16, intermediate_size=48,
        layer_types=["full_attention", "sliding_attention"], num_experts_per_tok=2, num_local_experts=8,
        rms_norm_eps=1e-05, rope_theta=150000, sliding_window=5, swiglu_limit=7.0,
        rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 16,
                      "rope_type": "yarn", "truncate": False})),
    "phimoe_longrope": ("4.57", "phimoe", dict(
        COMMON, architectures=["PhiMoEForCausalLM"], model_type="phimoe", attention_bias=True, hidden_dropout=0.0,
        input_jitter_noise=0.01, intermediate_size=40, lm_head_bias=True, num_experts_per_tok=2, num_local_experts=4,
        original_max_position_embeddings=16, rms_norm_eps=1e-05, rope_theta=10000.0, router_jitter_noise=0.01,
        sliding_window=512,
        rope_scaling={"long_factor": [1.0, 1.1, 1.5, 2.5, 4.0, 8.0, 16.0, 30.0], "long_mscale": 1.243163121016122,
                      "original_max_position_embeddings": 16, "type": "longrope",
                      "short_factor": [1.0, 1.0, 1.05, 1.1, 1.3, 1.5, 2.0, 2.5], "short_mscale": 1.243163121016122})),
    "granite_dense": ("5.", "granitemoehybrid", dict(
        COMMON, architectures=["GraniteMoeHybridForCausalLM"], model_type="granitemoehybrid", attention_bias=False,
        attention_multiplier=0.0625, embedding_multiplier=12, init_method="mup", intermediate_size=48,
        layer_types=["mamba", "attention"], logits_scaling=3, mamba_chunk_size=16, mamba_conv_bias=True,
        mamba_d_conv=4, mamba_d_head=16, mamba_d_state=16, mamba_expand=2, mamba_n_groups=2, mamba_n_heads=8,
        mamba_proj_bias=False, normalization_function="rmsnorm", num_experts_per_tok=0, num_local_experts=0,
        position_embedding_type="rope", residual_multiplier=0.246, rms_norm_eps=1e-05, rope_scaling=None,
        rope_theta=10000, shared_intermediate_size=48, time_step_limit=[0.4, 0.9])),
}


def load(folder):
    if transformers.__version__.startswith("5."):
        return load_base(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager").eval()


def main(goldens, out):
    for name, (version, weights, config) in MODELS.items():
        if not transformers.__version__.startswith(version):
            continue
        folder, base = os.path.join(out, name), os.path.join(goldens, weights)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f, indent=2, sort_keys=True)
            f.write("\n")
        with open(os.path.join(folder, "weights.txt"), "w") as f:
            f.write(weights + "\n")
        with tempfile.TemporaryDirectory() as checkpoint:
            os.symlink(os.path.abspath(os.path.join(base, "model.safetensors")),
                       os.path.join(checkpoint, "model.safetensors"))
            os.symlink(os.path.abspath(os.path.join(folder, "config.json")), os.path.join(checkpoint, "config.json"))
            golden = record(load(checkpoint), prompts_of(base))
        save_file(golden, os.path.join(folder, "golden.safetensors"))
        own = load_file(os.path.join(base, "golden.safetensors"))
        print(name, "differs from", weights, "by", round(largest_change(golden, own), 3))


main(*sys.argv[1:])
