"""Llama 4 and Gemma 4 as they are published, beyond what the golden checkpoints have, over rearranged weights of those,
and what transformers computes for them.
    python3 make_llama_gemma_configs.py GOLDENS OUT    with the libraries of the goldens
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/models. Each folder gets config.json and
golden.safetensors. llama4_gemma4_test.cc rearranges the weights in the same way:
  llama4_published  layers 0 and 2 are dense, with the shared expert's matrices
  gemma4_published  layer 1 has heads of 32, made of the bytes of both layers, values that are its keys, and one
                    key-value head; the head is tied; each layer ends with a factor of 0.75
"""
import json, os, sys, tempfile
import torch
from safetensors.torch import load_file, save_file
from reference import largest_change, load_base, prompts_of, record

COMMON = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 16,
          "hidden_size": 64, "initializer_range": 0.02, "max_position_embeddings": 256, "num_attention_heads": 4,
          "num_key_value_heads": 2, "pad_token_id": 0, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 320}
MODELS = {
    "llama4_published": ("llama4_text", dict(
        COMMON, architectures=["Llama4ForCausalLM"], model_type="llama4_text", attention_chunk_size=6, attn_scale=0.4,
        attn_temperature_tuning=True, floor_scale=4, hidden_act="silu", interleave_moe_layer_step=2,
        intermediate_size=40, intermediate_size_mlp=40, no_rope_layers=[1, 0, 1, 0], num_experts_per_tok=1,
        num_hidden_layers=4, num_local_experts=4, rms_norm_eps=1e-05, rope_theta=500000.0, tie_word_embeddings=False,
        use_qk_norm=False,
        rope_scaling={"factor": 8.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                      "original_max_position_embeddings": 64, "rope_type": "llama3"})),
    "gemma4_published": ("gemma4_text", dict(
        COMMON, architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", attention_k_eq_v=True,
        enable_moe_block=True, final_logit_softcapping=3.0, global_head_dim=32, hidden_activation="gelu_pytorch_tanh",
        hidden_size_per_layer_input=0, intermediate_size=96, layer_types=["sliding_attention", "full_attention"],
        moe_intermediate_size=40, num_experts=8, num_global_key_value_heads=1, num_hidden_layers=2,
        num_kv_shared_layers=0, rms_norm_eps=1e-06, sliding_window=7, tie_word_embeddings=True, top_k_experts=3,
        use_bidirectional_attention="vision", use_double_wide_mlp=False, vocab_size_per_layer_input=320,
        rope_parameters={"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                                            "rope_type": "proportional"},
                         "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}})),
}


def rearrange_llama4(t):
    for layer in (0, 2):
        module = f"model.layers.{layer}.feed_forward."
        shared = {name: t[name] for name in t if name.startswith(module + "shared_expert.")}
        for name in [name for name in t if name.startswith(module)]:
            del t[name]
        t.update({name.replace(".shared_expert", ""): value for name, value in shared.items()})


def rearrange_gemma4(t):
    first, second = (f"model.layers.{layer}.self_attn." for layer in (0, 1))
    def joined(a, b, *shape):
        return torch.cat([a.flatten(), b.flatten()]).reshape(shape)
    q = joined(t[first + "q_norm.weight"], t[second + "q_norm.weight"], 32)
    k = joined(t[first + "k_norm.weight"], t[second + "k_norm.weight"], 32)
    t.update({second + "q_proj.weight": joined(t[first + "q_proj.weight"], t[second + "q_proj.weight"], 128, 64),
              second + "o_proj.weight": joined(t[first + "o_proj.weight"], t[second + "o_proj.weight"], 64, 128),
              second + "q_norm.weight": q, second + "k_norm.weight": k})
    del t[second + "v_proj.weight"], t["lm_head.weight"]
    for layer in (0, 1):
        t[f"model.layers.{layer}.layer_scalar"] = torch.tensor([0.75], dtype=torch.bfloat16)


REARRANGE = {"llama4_text": rearrange_llama4, "gemma4_text": rearrange_gemma4}


def main(goldens, out):
    for name, (weights, config) in MODELS.items():
        folder, base = os.path.join(out, name), os.path.join(goldens, weights)
        os.makedirs(folder, exist_ok=True)
        tensors = load_file(os.path.join(base, "model.safetensors"))
        REARRANGE[weights](tensors)
        with tempfile.TemporaryDirectory() as checkpoint:
            save_file(tensors, os.path.join(checkpoint, "model.safetensors"), metadata={"format": "pt"})
            for target in (folder, checkpoint):
                with open(os.path.join(target, "config.json"), "w") as f:
                    json.dump(config, f, indent=2, sort_keys=True)
                    f.write("\n")
            golden = record(load_base(checkpoint), prompts_of(base))
        save_file(golden, os.path.join(folder, "golden.safetensors"))
        own = load_file(os.path.join(base, "golden.safetensors"))
        print(name, "differs from", weights, "by", round(largest_change(golden, own), 3))


main(*sys.argv[1:])
