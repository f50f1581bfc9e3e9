"""What the recipes beside this file share: loading a golden checkpoint, random adapter values, recording results."""
import contextlib, io, math, os, zlib
os.environ["HF_HUB_OFFLINE"] = "1"  # before the libraries load: everything is on disk
import torch
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)


def load_base(folder):
    """The golden checkpoint in float32 arithmetic with eager attention and eager experts."""
    from transformers import AutoModelForCausalLM
    with contextlib.redirect_stderr(io.StringIO()):
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    return model.eval()


def prompts_of(folder):
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    return [golden[f"ids.{i}"].tolist() for i in range(3)]


def record(model, prompts, new=8):
    """ids.i, logits.i and the greedy continuation greedy.i, always from the whole prompt and without a cache."""
    result = {}
    with torch.no_grad():
        for i, prompt in enumerate(prompts):
            result[f"ids.{i}"] = torch.tensor(prompt, dtype=torch.int32)
            current = list(prompt)
            for step in range(new + 1):
                logits = model(input_ids=torch.tensor([current]), use_cache=False).logits[0].float()
                if step == 0:
                    result[f"logits.{i}"] = logits.contiguous().clone()
                if step < new:
                    current.append(int(logits[-1].argmax()))
            result[f"greedy.{i}"] = torch.tensor(current[len(prompt):], dtype=torch.int32)
    return result


def generator(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def randomise(model, g, gain=0.6):
    """Fills every LoRA factor with values that BF16 holds exactly and that visibly move the logits."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "modules_to_save" in name:
                value = p + gain / math.sqrt(p.shape[-1]) * torch.randn(p.shape, generator=g)
            elif "lora_embedding_A" in name:  # [r, vocabulary]
                value = gain * torch.randn(p.shape, generator=g)
            elif name.endswith("base_layer.bias") and p.requires_grad:
                value = p + gain / 2 * torch.randn(p.shape, generator=g)
            elif "lora_magnitude" in name:
                value = p * (1 + gain / 2 * torch.randn(p.shape, generator=g))
            elif "lora_" in name:
                value = gain / math.sqrt(p.shape[-1]) * torch.randn(p.shape, generator=g)
            else:
                continue
            p.copy_(value.to(torch.bfloat16).float())


def largest_change(a, b):
    return max(float((a[f"logits.{i}"] - b[f"logits.{i}"]).abs().max()) for i in range(3))


def save_adapter(peft_model, base_name, out, prompts, base_golden, **options):
    """Saves with PEFT's own code and records what the adapted model computes. Returns the recorded tensors."""
    for config in peft_model.peft_config.values():
        config.base_model_name_or_path = base_name
    peft_model.eval()
    os.makedirs(out, exist_ok=True)
    peft_model.save_pretrained(out, **options)
    card = os.path.join(out, "README.md")
    if os.path.exists(card):
        os.remove(card)
    result = record(peft_model, prompts)
    save_file(result, os.path.join(out, "golden.safetensors"))
    tensors = load_file(os.path.join(out, "adapter_model.safetensors"))
    print(f"{out}: {len(tensors)} tensors, moves the logits by {largest_change(result, base_golden):.2f}")
    for key in sorted(tensors)[:4]:
        print(f"    {key} {list(tensors[key].shape)} {str(tensors[key].dtype)[6:]}")
    return result
