"""Checks write_layouts.py against PEFT and against the goldens.
    python3 check_layouts.py BASE ADAPTER LAYOUTS
BASE and ADAPTER are folders of the goldens, LAYOUTS is what write_layouts.py made of ADAPTER. PEFT itself loads
`stacked` (0.19 or newer) or `stacked_old` (0.18); the other layouts are merged by hand, straight from their definition.
"""
import json, os, shutil, sys, tempfile
import peft, torch
from safetensors.torch import load_file, save_file
from reference import largest_change, load_base, prompts_of, record

base, adapter, layouts = sys.argv[1:4]
want = load_file(os.path.join(adapter, "golden.safetensors"))


def say(name, got):
    same = all(torch.equal(got[f"greedy.{i}"], want[f"greedy.{i}"]) for i in range(3))
    print(f"{name}: logits differ by {largest_change(got, want):.1e}, greedy {'equal' if same else 'DIFFERS'}")


native = "stacked_old" if peft.__version__.startswith("0.18.") else "stacked"
say(f"{native} in peft {peft.__version__}",
    record(peft.PeftModel.from_pretrained(load_base(base), os.path.join(layouts, native)).eval(), prompts_of(base)))

def checkpoint_names(experts):
    """How the checkpoint calls these experts, and its names of gate, up and down."""
    for module in (experts, experts.replace("mlp.experts", "block_sparse_moe.experts"),
                   experts.replace("model.layers", "backbone.layers")):
        for names in (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")):
            if f"{module}.0.{names[2]}.weight" in state:
                return module, names
    raise SystemExit(f"the checkpoint has no {experts}")


state = load_file(os.path.join(base, "model.safetensors"))
for layout in ("per_expert", "stacked_expert_major", "stacked_3d", "named_3d"):
    tensors = load_file(os.path.join(layouts, layout, "adapter_model.safetensors"))
    config = json.load(open(os.path.join(layouts, layout, "adapter_config.json")))
    scale = config["lora_alpha"] / config["r"]
    merged, used = {k: v.float() for k, v in state.items()}, 0
    for key in tensors:
        if not key.endswith("lora_A.weight"):
            continue
        module = key[len("base_model.model."):-len(".lora_A.weight")]
        a, b = tensors[key], tensors[key.replace("_A.", "_B.")]
        if layout == "per_expert":
            merged[f"{module}.weight"] += scale * (b @ a)
            used += 1
            continue
        inner = module.endswith(("base_layer", "up_proj"))  # gate_up_proj or up_proj
        experts = module.removesuffix(".base_layer").removesuffix(".gate_up_proj").removesuffix(".up_proj")
        experts = experts.removesuffix(".down_proj")
        r = config["r"]
        n = a.shape[0] if a.ndim == 3 else a.shape[0] // r
        a = a.reshape(n, r, -1)
        b = {"stacked_expert_major": lambda: b.reshape(b.shape[0], n, r).permute(1, 0, 2),
             "stacked_3d": lambda: b.permute(2, 0, 1), "named_3d": lambda: b}[layout]()
        for e in range(n):
            delta = scale * (b[e] @ a[e])
            source, names = checkpoint_names(experts)
            if not inner:
                merged[f"{source}.{e}.{names[2]}.weight"] += delta
            elif f"{source}.0.{names[0]}.weight" in state:
                gate, up = delta.chunk(2)
                merged[f"{source}.{e}.{names[0]}.weight"] += gate
                merged[f"{source}.{e}.{names[1]}.weight"] += up
            else:
                merged[f"{source}.{e}.{names[1]}.weight"] += delta
            used += 1
    with tempfile.TemporaryDirectory() as t:
        save_file(merged, os.path.join(t, "model.safetensors"), metadata={"format": "pt"})
        shutil.copy(os.path.join(base, "config.json"), t)
        say(f"{layout} ({used} matrices)", record(load_base(t), prompts_of(base)))
