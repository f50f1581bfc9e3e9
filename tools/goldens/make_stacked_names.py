"""How transformers 5 names the tensors of a checkpoint that it saves as it holds the parameters.
    python3 make_stacked_names.py GOLDENS OUT    with the libraries of the goldens
GOLDENS holds the golden checkpoint folders; OUT is tests/data/extra/layouts/stacked_names.json: for each golden whose
tensors change with save_pretrained(save_original_format=False), the names that are gone and those that are new, every
number in them written as N. Saved without that option, every golden's file has its own names again, which is checked.
"""
import json, os, re, sys, tempfile
import torch
from safetensors import safe_open
from reference import load_base


def names_of(file):
    with safe_open(file, "pt") as tensors:
        return set(tensors.keys())


def saved(model, **options):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, **options)
        return names_of(os.path.join(folder, "model.safetensors"))


def patterns(names):
    return sorted({re.sub(r"\.\d+(?=\.)", ".N", name) for name in names})


def main(goldens, out):
    result = {}
    for golden in sorted(os.listdir(goldens)):
        folder = os.path.join(goldens, golden)
        model = load_base(folder).to(torch.bfloat16)
        own = names_of(os.path.join(folder, "model.safetensors"))
        assert saved(model) == own, golden
        held = saved(model, save_original_format=False)
        if held != own:
            result[golden] = {"gone": patterns(own - held), "new": patterns(held - own)}
    with open(out, "w") as f:
        json.dump(result, f, indent=1, sort_keys=True)
        f.write("\n")
    print(len(result), "of", len(os.listdir(goldens)), "goldens change")


main(*sys.argv[1:])
