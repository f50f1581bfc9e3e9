#!/usr/bin/env python3
"""Every field that transformers writes for a family's default config, for tests/model/config_fields_test.cc.

usage: make_config_fields.py OUT.json    (with the transformers of choice installed; see tools/goldens/README.md)
"""
import json
import sys

from transformers import CONFIG_MAPPING

FAMILIES = """deepseek_v2 deepseek_v3 dots1 ernie4_5_moe flex_olmo gemma4_text glm4_moe gpt_oss granitemoe
granitemoehybrid granitemoeshared hunyuan_v1_moe lfm2_moe llama4_text minimax_m2 mixtral nemotron_h olmoe phimoe
qwen2_moe qwen3_5_moe_text qwen3_moe qwen3_next""".split()


def main():
    configs = {}
    for family in FAMILIES:
        if family not in CONFIG_MAPPING:
            continue
        config = json.loads(CONFIG_MAPPING[family]().to_json_string(use_diff=False))
        # Lists with a value for each layer say no more than their first few.
        for key, value in config.items():
            if isinstance(value, list):
                config[key] = value[:8]
        configs[family] = config
    with open(sys.argv[1], "w") as out:
        out.write("{\n" + ",\n".join(f"{json.dumps(f)}: {json.dumps(c)}" for f, c in configs.items()) + "\n}\n")


if __name__ == "__main__":
    main()
