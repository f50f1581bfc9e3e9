"""Adapters on stacked experts ("target_parameters") in the orientation of PEFT 0.18 and older, and what they compute.
    python3 make_old_orientation.py make  GOLDENS OUT    needs peft 0.18 beside the transformers of the goldens
    python3 make_old_orientation.py check GOLDENS OUT    any transformers: merges by hand and compares
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra.

PEFT 0.18 reads a parameter [E, d1, d2] as d1 inputs and d2 outputs, though the experts store [E, out, in]. Its lora_A is
[E*r, d1] (expert slowest), its lora_B [d2, r*E] (expert fastest), and the delta of expert e is (B_e A_e) transposed.
"""
import os, sys, shutil, tempfile
import torch
from safetensors.torch import load_file, save_file
from reference import generator, largest_change, load_base, prompts_of, randomise, record, save_adapter

ADAPTERS = [  # base folder, adapter, parameters, settings
    ("qwen3_moe", "experts_old", ["experts.gate_up_proj", "experts.down_proj"], dict(r=4, lora_alpha=8)),
    ("qwen3_moe", "attn_down_old", ["experts.down_proj"], dict(r=3, lora_alpha=6, use_rslora=True,
                                                               target_modules=["q_proj", "o_proj"])),
    ("nemotron_h", "experts_old", ["experts.up_proj", "experts.down_proj"], dict(r=3, lora_alpha=6)),
    # hidden size == 2 * intermediate size: gate_up is square and only down shows the orientation
    ("olmoe", "experts_old", ["experts.gate_up_proj", "experts.down_proj"], dict(r=4, lora_alpha=8)),
    # nothing in this file shows the orientation
    ("olmoe", "gate_up_old", ["experts.gate_up_proj"], dict(r=4, lora_alpha=8)),
]


def make(goldens, out):
    import peft
    if not peft.__version__.startswith("0.18."):
        raise SystemExit(f"peft {peft.__version__} does not write the old orientation; use 0.18")
    for base, name, parameters, settings in ADAPTERS:
        folder = os.path.join(goldens, base)
        settings = dict(settings)
        config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, lora_dropout=0.0, bias="none",
                                 target_modules=settings.pop("target_modules", []), target_parameters=parameters,
                                 **settings)
        model = peft.get_peft_model(load_base(folder), config)
        randomise(model, generator(f"{base}/{name}"))
        save_adapter(model, base, os.path.join(out, base, name), prompts_of(folder),
                     load_file(os.path.join(folder, "golden.safetensors")))


def factors(tensors, module, count):
    """Per-expert A [E, r, .] and B [E, ., r] of one wrapper, in the file's own orientation."""
    a, b = tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"]
    r = a.shape[0] // count
    return a.reshape(count, r, -1), b.reshape(b.shape[0], r, count).permute(2, 0, 1)


def merged(folder, adapter, parameters, scale, old):
    """The checkpoint with the adapter's deltas added, expert by expert. `old` picks the orientation."""
    state = {k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    tensors = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    prefix = "base_model.model."
    modules = sorted({k.split(".lora_")[0] for k in tensors if ".experts." in k})
    for module in modules:
        inner = module.endswith(".base_layer")
        experts = module.removesuffix(".base_layer")
        # the first parameter that the model defines is wrapped first, so it is the inner one
        name = parameters[0] if inner or len(parameters) == 1 else parameters[1]
        source = experts.removeprefix(prefix)
        if not any(k.startswith(source) for k in state):
            source = source.replace("model.layers", "backbone.layers")
        count = 1 + max(int(k[len(source) + 1:].split(".")[0]) for k in state if k.startswith(source + "."))
        a, b = factors(tensors, module, count)
        for e in range(count):
            delta = scale * (b[e] @ a[e])
            delta = delta.T if old else delta
            if name.endswith("gate_up_proj"):
                half = delta.shape[0] // 2
                state[f"{source}.{e}.gate_proj.weight"] += delta[:half]
                state[f"{source}.{e}.up_proj.weight"] += delta[half:]
            else:
                state[f"{source}.{e}.{name.split('.')[-1]}.weight"] += delta
    for key in [k for k in tensors if ".experts." not in k and "lora_A" in k]:
        target = key.removeprefix(prefix).replace(".lora_A", "")
        state[target] += scale * (tensors[key.replace("lora_A", "lora_B")] @ tensors[key])
    return state


def run_merged(folder, state):
    with tempfile.TemporaryDirectory() as t:
        save_file(state, os.path.join(t, "model.safetensors"), metadata={"format": "pt"})
        shutil.copy(os.path.join(folder, "config.json"), t)
        return record(load_base(t), prompts_of(folder))


def check(goldens, out):
    import transformers
    supported = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    for base, name, parameters, settings in ADAPTERS:
        if base not in supported:
            print(f"{base}/{name}: not in transformers {transformers.__version__}, skipped")
            continue
        folder, adapter = os.path.join(goldens, base), os.path.join(out, base, name)
        want = load_file(os.path.join(adapter, "golden.safetensors"))
        r, alpha = settings["r"], settings["lora_alpha"]
        scale = alpha / (r ** 0.5 if settings.get("use_rslora") else r)
        got = run_merged(folder, merged(folder, adapter, parameters, scale, old=True))
        error = largest_change(got, want)
        same = all(torch.equal(got[f"greedy.{i}"], want[f"greedy.{i}"]) for i in range(3))
        line = f"{base}/{name}: old orientation differs by {error:.1e}, greedy {'equal' if same else 'DIFFERS'}"
        if error > 1e-4 or not same:
            raise SystemExit(line)
        try:
            other = run_merged(folder, merged(folder, adapter, parameters, scale, old=False))
            line += f"; the new orientation by {largest_change(other, want):.2f}"
        except RuntimeError:
            line += "; in the new orientation its shapes do not fit"
        print(line)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:4])
