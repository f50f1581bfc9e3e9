"""Published-style configs of the DeepSeek family over the weights of golden checkpoints, and what transformers and PEFT
compute for them.
    python3 make_deepseek_configs.py GOLDENS OUT    with the libraries of the goldens
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/models. Each folder gets config.json and
golden.safetensors; weights.txt names the golden folder whose model.safetensors goes with it. adapters/<name> holds the
golden of that folder's adapter of the same name.
"""
import json, os, sys, tempfile
import peft
from safetensors.torch import load_file, save_file
from reference import largest_change, load_base, prompts_of, record

SMALL = {"attention_bias": False, "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": 1,
         "eos_token_id": 2, "ep_size": 1, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 64,
         "initializer_range": 0.02, "intermediate_size": 96, "kv_lora_rank": 32, "max_position_embeddings": 512,
         "moe_intermediate_size": 24, "moe_layer_freq": 1, "n_routed_experts": 16, "num_attention_heads": 4,
         "num_experts_per_tok": 4, "num_hidden_layers": 3, "num_key_value_heads": 4, "pretraining_tp": 1,
         "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "rms_norm_eps": 1e-06, "seq_aux": True,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "v_head_dim": 16,
         "vocab_size": 320}


def yarn(**fields):
    # an original length below the longest prompt, so that low and high frequencies differ
    return dict({"type": "yarn", "original_max_position_embeddings": 16}, **fields)


MODELS = {
    # Kimi K2: one group, its own scale, beta_fast equal to beta_slow
    "kimi_k2": ("deepseek_v3", ["attn", "experts"], dict(
        SMALL, architectures=["DeepseekV3ForCausalLM"], model_type="kimi_k2", n_group=1, n_shared_experts=1,
        norm_topk_prob=True, num_nextn_predict_layers=0, q_lora_rank=24, rope_theta=50000.0,
        rope_scaling=yarn(beta_fast=1.0, beta_slow=1.0, factor=32.0, mscale=1.0, mscale_all_dim=1.0),
        routed_scaling_factor=2.827, scoring_func="sigmoid", topk_group=1, topk_method="noaux_tc")),
    # V2-Lite: no low-rank queries, greedy choice, no scale of the weights
    "deepseek_v2_lite": ("deepseek_v2", [], dict(
        SMALL, architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", n_group=1, n_shared_experts=2,
        norm_topk_prob=False, q_lora_rank=None, rope_theta=10000,
        rope_scaling=yarn(beta_fast=32, beta_slow=1, factor=40, mscale=0.707, mscale_all_dim=0.707),
        routed_scaling_factor=1.0, scoring_func="softmax", topk_group=1, topk_method="greedy")),
    # what no published config sets: the rotation in halves and two mscales that differ
    "deepseek_v3_halves": ("deepseek_v3", [], dict(
        SMALL, architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", n_group=4, n_shared_experts=1,
        norm_topk_prob=False, num_nextn_predict_layers=1, q_lora_rank=24, rope_theta=10000, rope_interleave=False,
        rope_scaling=yarn(beta_fast=32, beta_slow=1, factor=8, mscale=1.0, mscale_all_dim=0.6),
        routed_scaling_factor=1.5, scoring_func="sigmoid", topk_group=3, topk_method="noaux_tc")),
}


def main(goldens, out):
    for name, (weights, adapters, config) in MODELS.items():
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
            # transformers knows Kimi K2 as its architecture
            kind = "deepseek_v3" if config["model_type"] == "kimi_k2" else config["model_type"]
            with open(os.path.join(checkpoint, "config.json"), "w") as f:
                json.dump(dict(config, model_type=kind), f)
            prompts = prompts_of(base)
            golden = record(load_base(checkpoint), prompts)
            save_file(golden, os.path.join(folder, "golden.safetensors"))
            own = load_file(os.path.join(base, "golden.safetensors"))
            print(name, "differs from", weights, "by", round(largest_change(golden, own), 3))
            for adapter in adapters:
                adapted = peft.PeftModel.from_pretrained(load_base(checkpoint),
                                                         os.path.join(base, "adapters", adapter)).eval()
                to = os.path.join(folder, "adapters", adapter)
                os.makedirs(to, exist_ok=True)
                result = record(adapted, prompts)
                save_file(result, os.path.join(to, "golden.safetensors"))
                print(name, adapter, "moves the logits by", round(largest_change(result, golden), 3))


main(*sys.argv[1:])
