"""GLM-4.5, MiniMax-M2 and Hunyuan A13B with the config.json that those models are published with, and attention within a
window in the families whose goldens have none, over the weights of golden checkpoints.
    python3 make_family_configs.py GOLDENS OUT    with the libraries of the goldens
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/models. Each folder gets config.json and
golden.safetensors, the latter for the first 20 tokens of the golden's prompts; weights.txt names the golden folder whose
model.safetensors goes with it. adapters/<name> holds the golden of that folder's adapter of the same name.
The Air lacks the norms of queries and keys, Hunyuan the lm_head, which is tied.
"""
import json, os, sys, tempfile
import peft
from safetensors.torch import load_file, save_file
from reference import largest_change, load_base, prompts_of, record

LONGEST = 20
COMMON = {"attention_dropout": 0.0, "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
          "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "use_cache": True, "vocab_size": 320}
GLM = dict(
    COMMON, architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", attention_bias=True, eos_token_id=[2, 5, 7],
    first_k_dense_replace=1, intermediate_size=96, max_position_embeddings=131072, moe_intermediate_size=24, n_group=1,
    n_routed_experts=8, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=2, num_hidden_layers=3,
    num_nextn_predict_layers=1, pad_token_id=0, partial_rotary_factor=0.5, rms_norm_eps=1e-05, rope_scaling=None,
    rope_theta=1000000, topk_group=1, transformers_version="4.54.0")
MINIMAX = dict(
    COMMON, architectures=["MiniMaxM2ForCausalLM"], model_type="minimax_m2", attn_type_list=[1, 1],
    intermediate_size=32, max_position_embeddings=196608, mtp_transformer_layers=1, num_experts_per_tok=2,
    num_hidden_layers=2, num_local_experts=8, num_mtp_modules=3, qk_norm_type="per_layer", rms_norm_eps=1e-06,
    rope_theta=5000000, rotary_dim=8, scoring_func="sigmoid", shared_intermediate_size=0, use_mtp=True,
    use_qk_norm=True, use_routing_bias=True, transformers_version="4.46.1")
HUNYUAN = dict(
    COMMON, architectures=["HunYuanMoEV1ForCausalLM"], model_type="hunyuan_v1_moe", attention_bias=False,
    attention_head_dim=16, bos_token_id=1, cla_share_factor=2, eod_token_id=3, eos_token_id=2,
    group_limited_greedy=False, intermediate_size=40, max_position_embeddings=32768, mlp_bias=False,
    moe_drop_tokens=False, moe_intermediate_size=[40, 40], moe_layer_num_skipped=0,
    moe_random_routing_dropped_token=False, moe_topk=[3, 2], norm_type="rms", num_experts=6, num_hidden_layers=2,
    num_shared_expert=[1, 1], pad_token_id=0, position_embedding_xdrope=False, pretraining_tp=1, rms_norm_eps=1e-05,
    rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                  "mscale_all_dim": 0.0, "type": "dynamic"},
    rope_theta=10000.0, tie_word_embeddings=True, use_cla=False, use_mixed_mlp_moe=True, use_mla=False,
    use_qk_norm=True, use_rotary_pos_emb=True)
# name: (weights, adapters, config, what transformers has to be told besides, the part of the names of tensors that the
# model has no place for)
PUBLISHED = {
    "glm4_5_published": ("glm4_moe", ["attn", "experts"], dict(GLM, routed_scaling_factor=2.5, use_qk_norm=True), {},
                         None),
    "glm4_5_air_published": ("glm4_moe", [], dict(GLM, routed_scaling_factor=1.0, use_qk_norm=False), {},
                             ("q_norm", "k_norm")),
    # transformers has no word for rotary_dim
    "minimax_m2_published": ("minimax_m2", ["experts"], MINIMAX, {"partial_rotary_factor": 0.5}, None),
    "hunyuan_a13b_published": ("hunyuan_v1_moe", ["experts"], HUNYUAN, {}, ("lm_head",)),
}
# name: (weights, changes of the golden's config; None: gone)
WINDOWS = {
    "dots1_window": ("dots1", {"layer_types": None, "max_window_layers": 1, "sliding_window": 5}),
    "mixtral_window": ("mixtral", {"sliding_window": 5}),
    "phimoe_window": ("phimoe", {"sliding_window": 5}),
    "qwen2_moe_window": ("qwen2_moe", {"layer_types": None, "max_window_layers": 2, "sliding_window": 5,
                                       "use_sliding_window": True}),
    "qwen3_moe_window": ("qwen3_moe", {"sliding_window": 5, "use_sliding_window": True}),
}


def write(folder, weights, config):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    with open(os.path.join(folder, "weights.txt"), "w") as f:
        f.write(weights + "\n")


def make(goldens, folder, weights, adapters, config, unused=None):
    base = os.path.join(goldens, weights)
    prompts = [prompt[:LONGEST] for prompt in prompts_of(base)]
    with tempfile.TemporaryDirectory() as checkpoint:
        tensors = load_file(os.path.join(base, "model.safetensors"))
        save_file({name: t for name, t in tensors.items() if not any(part in name for part in unused or ())},
                  os.path.join(checkpoint, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(checkpoint, "config.json"), "w") as f:
            json.dump(config, f)
        golden = record(load_base(checkpoint), prompts)
        save_file(golden, os.path.join(folder, "golden.safetensors"))
        own = load_file(os.path.join(base, "golden.safetensors"))
        own = {name: value[:LONGEST] for name, value in own.items()}
        print(os.path.basename(folder), "differs from", weights, "by", round(largest_change(golden, own), 3))
        for adapter in adapters:
            adapted = peft.PeftModel.from_pretrained(load_base(checkpoint),
                                                     os.path.join(base, "adapters", adapter)).eval()
            to = os.path.join(folder, "adapters", adapter)
            os.makedirs(to, exist_ok=True)
            result = record(adapted, prompts)
            save_file(result, os.path.join(to, "golden.safetensors"))
            print("   ", adapter, "moves the logits by", round(largest_change(result, golden), 3))


def main(goldens, out):
    for name, (weights, adapters, config, besides, unused) in PUBLISHED.items():
        write(os.path.join(out, name), weights, config)
        make(goldens, os.path.join(out, name), weights, adapters, dict(config, **besides), unused)
    for name, (weights, changes) in WINDOWS.items():
        with open(os.path.join(goldens, weights, "config.json")) as f:
            config = json.load(f)
        config.update(changes)
        config = {key: value for key, value in config.items() if key not in changes or value is not None}
        write(os.path.join(out, name), weights, config)
        make(goldens, os.path.join(out, name), weights, [], config)


main(*sys.argv[1:])
