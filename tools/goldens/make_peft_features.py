"""Adapters that use further settings of PEFT, saved by PEFT, and what it computes for them.
    python3 make_peft_features.py GOLDENS OUT [NAME ...]    with the libraries of the goldens
    python3 make_peft_features.py GOLDENS OUT target_regex  with peft 0.18: newer ones replace the regex by a list of
                                                            the last parts of the names, and so adapt all layers
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra. Every adapter is loaded again from its files, and
the reloaded model must give the recorded numbers.
"""
import json, os, sys
import peft, torch, transformers
from safetensors.torch import load_file, save_file
from reference import generator, largest_change, load_base, prompts_of, randomise, record, save_adapter

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ADAPTERS = {
    # a full replacement of a module beside LoRA on others
    "save_lm_head": dict(target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"], r=3, lora_alpha=6),
    # lora_embedding_A and B; PEFT also saves the unchanged base weight of the embedding unless told not to
    "embedding": dict(target_modules=["embed_tokens", "q_proj"], r=4, lora_alpha=8),
    "embedding_lora_only": dict(target_modules=["embed_tokens", "q_proj"], r=4, lora_alpha=8,
                                _save=dict(save_embedding_layers=False)),
    "patterns": dict(target_modules=ATTENTION, r=4, lora_alpha=8,
                     rank_pattern={"^model.layers.0.self_attn.q_proj": 2, "layers.1.*k_proj": 3, "v_proj": 6},
                     alpha_pattern={"^model.layers.0.self_attn.q_proj": 5, r"layers\.1\.self_attn\.(k|v)_proj": 1.5,
                                    "self_attn.o_proj": 16, "attn.o_proj": 999, "q_pro": 999, "proj": 999}),
    # the keys of alpha_pattern overlap, and their order in the file is not the alphabet's: the first one that fits wins
    "patterns_order": dict(target_modules=ATTENTION, r=4, lora_alpha=8,
                           _alpha_order={"self_attn.q_proj": 2, "layers.0.self_attn.q_proj": 40, ".*o_proj": 3,
                                         "layers.1.self_attn.o_proj": 40, "layers.1.self_attn.v_proj": 24,
                                         ".*v_proj": 4}),
    "target_regex": dict(target_modules=r".*\.layers\.(0\.self_attn\.(q|o)_proj|1\.self_attn\.v_proj)", r=3,
                         lora_alpha=6),
    "rslora_patterns": dict(target_modules=ATTENTION, use_rslora=True, r=4, lora_alpha=4,
                            rank_pattern={"o_proj": 2, "layers.1.self_attn.q_proj": 9},
                            alpha_pattern={"q_proj": 3, "layers.0.self_attn.k_proj": 7.5}),
    # patterns see a stacked parameter as <module>.<parameter>, without the wrappers' base_layer
    "experts_patterns": dict(target_modules=["o_proj"],
                             target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], r=2,
                             lora_alpha=4, rank_pattern={"experts.down_proj": 3, "o_proj": 5},
                             alpha_pattern={r".*\.experts\.gate_up_proj": 5, "layers.1.mlp.experts.down_proj": 9}),
    "layers": dict(target_modules=["q_proj", "v_proj"], layers_to_transform=[1], layers_pattern="layers", r=4,
                   lora_alpha=8),
    "dora": dict(target_modules=["q_proj", "o_proj"], use_dora=True, r=3, lora_alpha=6),
}


def put_base(out, name, kind, **settings):
    """A further random checkpoint, with the recipe of the goldens."""
    os.environ.pop("EXTRA", None)
    argv, sys.argv = sys.argv, ["make_goldens.py", out, "1", "none"]
    import make_goldens
    sys.argv = argv
    g = generator(name)
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(kind, **dict(make_goldens.base, **settings))
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    make_goldens.strong_init(model, g)
    folder = os.path.join(out, name)
    model.to(torch.bfloat16).save_pretrained(folder)
    prompts = [torch.randint(3, config.vocab_size, (n,), generator=g).tolist() for n in (1, 7, 33)]
    save_file(record(load_base(folder), prompts, new=12), os.path.join(folder, "golden.safetensors"))
    extra = os.path.join(folder, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    return folder


def one(folder, base, target, settings):
    settings = dict(settings)
    save, order = settings.pop("_save", {}), settings.pop("_alpha_order", None)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=settings.pop("init_lora_weights", False),
                             lora_dropout=0.0, **settings)
    torch.manual_seed(1)  # DoRA's magnitudes come from the factors as PEFT first draws them
    model = peft.get_peft_model(load_base(folder), config)
    randomise(model, generator(f"{base}/{os.path.basename(target)}"))
    base_golden = load_file(os.path.join(folder, "golden.safetensors"))
    want = save_adapter(model, base, target, prompts_of(folder), base_golden, **save)
    if order:
        path = os.path.join(target, "adapter_config.json")
        with open(path) as f:
            written = json.load(f)
        written["alpha_pattern"] = order
        with open(path, "w") as f:
            json.dump(written, f, indent=2)
    again = peft.PeftModel.from_pretrained(load_base(folder), target).eval()
    got = record(again, prompts_of(folder))
    if order:
        save_file(got, os.path.join(target, "golden.safetensors"))
        print(f"    the order of alpha_pattern moves the logits by {largest_change(got, want):.2f}")
    elif largest_change(got, want) > 1e-5:
        raise SystemExit(f"{target}: reloaded, the logits differ by {largest_change(got, want)}")
    scales = {n: m.scaling["default"] for n, m in again.named_modules()
              if isinstance(m, peft.tuners.lora.LoraLayer) and "default" in m.scaling}
    print("    scales", {n.removeprefix("base_model.model.model.layers."): round(s, 4) for n, s in scales.items()})


def main(goldens, out, *only):
    for name, settings in ADAPTERS.items():
        if name in only or not only and name != "target_regex":
            one(os.path.join(goldens, "qwen3_moe"), "qwen3_moe", os.path.join(out, "qwen3_moe", name), settings)
    if not only or "lm_head" in only:  # tied embeddings: LoRA on lm_head leaves the embedding alone
        one(os.path.join(goldens, "qwen3_moe_mixed"), "qwen3_moe_mixed", os.path.join(out, "qwen3_moe_mixed", "lm_head"),
            dict(target_modules=["lm_head", "q_proj"], r=4, lora_alpha=8, _save=dict(save_embedding_layers=False)))
    if not only or "attention_bias" in only:
        base = put_base(os.path.join(out, "models"), "qwen3_moe_bias", "qwen3_moe", intermediate_size=96,
                        moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
                        decoder_sparse_step=1, mlp_only_layers=[], attention_bias=True)
        adapters = os.path.join(base, "adapters")
        one(base, "qwen3_moe_bias", os.path.join(adapters, "attn"),
            dict(target_modules=ATTENTION, r=3, lora_alpha=6))
        one(base, "qwen3_moe_bias", os.path.join(adapters, "bias_lora_only"),
            dict(target_modules=["q_proj", "v_proj"], r=3, lora_alpha=6, bias="lora_only"))
        one(base, "qwen3_moe_bias", os.path.join(adapters, "lora_bias"),
            dict(target_modules=["q_proj", "o_proj"], r=3, lora_alpha=6, lora_bias=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
