"""Routers at their edges, as transformers' own modules compute them.
    python3 make_routing_edges.py OUT    with the libraries of the goldens; OUT is tests/data/extra/routing/edges.json
Each case names the family whose router made it, the routing as a layer spec writes it, and rows: logits, the experts
chosen and their weights. A router gets its logits through an identity matrix. Weights are the published formula in
double precision, and this script refuses to write any that the module, in float32, does not compute as well. Where
scores tie, torch promises no order: there the ids are by descending score, the lower first, and the module must have
chosen the same scores. Rows in which it took other experts of those that tie are counted.
"""
import importlib, json, sys, types
import torch

E = 16
NEG = float("-inf")


def shuffled(seed, shift=0.0, step=1 / 64, n=E):
    """Distinct logits on a grid that float32 holds exactly."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return ((order - n // 2).double() * step + shift).tolist()


def rows(n, tame):
    """What edges the logits have; `tame` where the router itself gives NaN when every weight underflows."""
    huge = [1e30 if i % 5 == 3 else -1e30 for i in range(n)]
    spread = shuffled(5, n=n)
    spread[n // 2], spread[n // 3] = 3e38, -3e38
    out = {
        "distinct": shuffled(1, n=n), "all negative": shuffled(2, -20, n=n), "all positive": shuffled(3, 10, n=n),
        "all equal": [0.25] * n, "all zero": [0.0] * n, "all equal and negative": [-3.0] * n,
        "three levels": [[1.0, 3.0, -2.0][i * i % 3] for i in range(n)],
        "two levels, best last": [-5.0] * (n - 1) + [-1.0],
        "one far ahead": [0.5 if i != n - 2 else 80.0 for i in range(n)],
        "saturated": [40.0 + 10 * (i % 3) for i in range(n)],
        "wide": shuffled(4, step=4, n=n),
        # a fiftieth of the one is less than the gap, of the other more
        "a fiftieth below, negative": [-20.0 if i == n - 2 else -20.40625 - 0.5 * (i % 2) for i in range(n)],
        "a fiftieth below, positive": [20.40625 if i == n - 2 else 20.0 - 0.5 * (i % 2) for i in range(n)],
    }
    if not tame:
        out |= {"plus and minus 1e30": huge, "one at 3e38, one at -3e38": spread, "all at -1e30": [-1e30] * n,
                "far below zero": shuffled(6, -300, n=n)}
    return out


def topk(score, k):
    return torch.sort(score, descending=True, stable=True).indices[:k]


def formula(routing, k, z, bias, scale):
    """Ids by float32 scores; for any ids their weights in double precision, and the scores they were chosen by."""
    z32, z = torch.tensor(z, dtype=torch.float32), torch.tensor(z, dtype=torch.float64)
    kind = routing["kind"]
    if kind == "sparsemixer":
        ids, weights = [], []
        left = z.clone()
        for _ in range(k):
            best = int(left.argmax())
            gap = (left[best] - z) / torch.maximum(z.abs(), left[best].abs())
            ids.append(best)
            weights.append(torch.softmax(left.masked_fill(gap > 0.02, NEG), -1)[best])
            left[best] = NEG
        return torch.tensor(ids), lambda _: torch.stack(weights), None
    score32 = {"softmax_topk": lambda: z32.softmax(-1), "sigmoid_topk": z32.sigmoid}.get(kind, lambda: z32)()
    score = {"softmax_topk": lambda: z.softmax(-1), "topk_softmax": lambda: z}.get(kind, z.sigmoid)()
    choice = score32 + (torch.tensor(bias, dtype=torch.float32) if bias else 0)
    open_to, groups = choice, routing.get("groups", 1)
    best = None
    if groups > 1:
        by_group = choice.view(groups, -1)
        best = by_group.topk(2, -1)[0].sum(-1) if bias else by_group.max(-1).values
        mask = torch.ones(groups, dtype=torch.bool)
        mask[topk(best, routing["topk_groups"])] = False
        open_to = choice.masked_fill(mask.repeat_interleave(len(z) // groups), NEG)

    def weigh(ids):
        w = score[ids]
        if kind == "topk_softmax":
            w = w.softmax(-1)
        if routing.get("renormalize"):
            w = w / (w.sum() + routing.get("sum_epsilon", 1e-20 if kind == "sigmoid_topk" else 0))
        w = w * routing.get("scale", 1.0)
        return w * torch.tensor(scale, dtype=torch.float64)[ids] if scale else w

    def chosen_by(ids):
        if best is None:
            return choice[ids].sort().values
        width = len(z) // groups
        used = best[(ids // width).unique()].sort().values[-1]
        # groups that tie may be kept for each other; the best group of a choice has the same score in any case
        return used if len(best.unique()) < groups else choice[ids].sort().values

    return topk(open_to, k), weigh, chosen_by


def run(family, names, config, z, bias, scale):
    """(ids, weights) of the family's router module for one row of logits."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    router = getattr(module, names)(types.SimpleNamespace(**config)).float().eval()
    n, x = len(z), torch.tensor([z], dtype=torch.float32)
    weight = {"gemma4": lambda: router.proj.weight, "hunyuan_v1_moe": lambda: router.wg.weight}.get(
        family, lambda: router.weight)()
    extra = []
    with torch.no_grad():
        weight.copy_(torch.eye(n))
        if family == "gpt_oss":
            router.bias.zero_()
        if bias:
            b = torch.tensor(bias, dtype=torch.float32)
            if family == "ernie4_5_moe":
                router.moe_statics.e_score_correction_bias.copy_(b[None])
            elif family in ("minimax_m2", "lfm2_moe"):
                extra = [b]
            else:
                router.e_score_correction_bias.copy_(b)
        if family == "gemma4":  # its norm is not what is looked at
            router.norm = torch.nn.Identity()
            weight.mul_(n**0.5)  # what it divides by
            router.per_expert_scale.copy_(torch.tensor(scale))
        out = router(x, *extra)
    if family == "llama4":  # scores of all experts, 0 where not chosen
        ids, w = torch.topk(out[1][0], config["num_experts_per_tok"]).indices, out[0][0]
        assert (w > 0).sum() == (w[ids] > 0).sum()
        return ids, w[ids]
    if family == "granitemoe":
        return out[0][0], out[1][0]
    return out[2][0], out[1][0]


def case(family, name, kind, k=3, n=E, bias=None, scale=None, groups=None, renorm=False, factor=1.0, tame=False,
         epsilon=None, **more):
    routing = {"kind": kind}
    if renorm:
        routing["renormalize"] = True
    if factor != 1.0:
        routing["scale"] = factor
    if epsilon is not None:
        routing["sum_epsilon"] = epsilon
    if bias:
        routing["selection_bias"] = True
    if scale:
        routing["per_expert_scale"] = True
    if groups:
        routing["groups"], routing["topk_groups"] = groups
    config = dict(num_experts=n, num_local_experts=n, hidden_size=n, num_experts_per_tok=k, top_k_experts=k,
                  norm_topk_prob=renorm, routed_scaling_factor=factor, n_group=(groups or (1, 1))[0],
                  topk_group=(groups or (1, 1))[1], rms_norm_eps=1e-6, router_jitter_noise=0.01,
                  input_jitter_noise=0.0, moe_topk=k, use_expert_bias=bool(bias), moe_norm_min=1e-12)
    config.update(more)
    out, others = [], 0
    for edge, z in rows(n, tame).items():
        z = torch.tensor(z, dtype=torch.float32).double().tolist()
        ids, weigh, chosen_by = formula(routing, k, z, bias, scale)
        got_ids, got = run(family, name, config, z, bias, scale)
        weights, where = weigh(ids), f"{family} {routing} {edge}"
        if not torch.equal(got_ids.sort().values, ids.sort().values):
            others += 1
            assert chosen_by is not None and torch.equal(chosen_by(ids), chosen_by(got_ids)), where
        assert torch.allclose(got.double(), weigh(got_ids), rtol=5e-6, atol=1e-37), (where, got, weigh(got_ids))
        assert torch.isfinite(weights).all(), where
        out.append({"edge": edge, "ids": ids.tolist(), "weights": [float(f"{w:.9g}") for w in weights]})
    print(f"{family:16} {json.dumps(routing)}: {len(out)} rows, {others} with others of a tie")
    return {"family": family, "routing": routing, "experts": n, "top_k": k, "bias": bias or [], "scale": scale or [],
            "rows": out}


def main(path):
    g = torch.Generator().manual_seed(7)
    small = (torch.randint(-16, 17, (E,), generator=g) / 64).tolist()
    huge = [0.0] * E
    huge[11], huge[2], huge[6] = 1e4, -1e4, 1e4
    beyond = [1e30 if i % 4 == 1 else -1e30 if i % 4 == 2 else 0.0 for i in range(E)]
    v3 = dict(family="deepseek_v3", name="DeepseekV3TopkRouter", kind="sigmoid_topk")
    v2 = dict(family="deepseek_v2", name="DeepseekV2TopkRouter", kind="softmax_topk")
    lfm = dict(family="lfm2_moe", name="Lfm2MoeTopKRouter", kind="sigmoid_topk")
    cases = [
        case("mixtral", "MixtralTopKRouter", "softmax_topk", renorm=True),
        case("mixtral", "MixtralTopKRouter", "softmax_topk", k=E, renorm=True),
        case("qwen3_moe", "Qwen3MoeTopKRouter", "softmax_topk"),
        case("qwen3_moe", "Qwen3MoeTopKRouter", "softmax_topk", k=8, n=8),
        case("qwen3_moe", "Qwen3MoeTopKRouter", "softmax_topk", renorm=True, n=40, k=6),
        case("hunyuan_v1_moe", "HunYuanMoEV1Gate", "softmax_topk", k=2, renorm=True),
        case(**v2, factor=16.0, topk_method="greedy"),
        case(**v2, k=E, topk_method="greedy"),
        case(**v2, factor=16.0, groups=(4, 2), topk_method="group_limited_greedy"),
        case(**v2, groups=(4, 1), k=4, topk_method="group_limited_greedy"),  # all of the only group left
        case("ernie4_5_moe", "Ernie4_5_MoeTopKRouter", "softmax_topk", bias=small, renorm=True, tame=True),
        case("gpt_oss", "GptOssTopKRouter", "topk_softmax"),
        case("gpt_oss", "GptOssTopKRouter", "topk_softmax", k=8, n=8),
        case("granitemoe", "GraniteMoeTopKRouter", "topk_softmax", k=6, n=40),
        case("phimoe", "PhimoeTopKRouter", "sparsemixer", k=2),
        case("phimoe", "PhimoeTopKRouter", "sparsemixer", k=2, n=2),
        case("llama4", "Llama4Router", "sigmoid_input", k=1),
        case("llama4", "Llama4Router", "sigmoid_input", k=2),
        case("gemma4", "Gemma4TextRouter", "softmax_topk", renorm=True,
             scale=(torch.randint(-8, 17, (E,), generator=g) / 8).tolist()),
        case("minimax_m2", "MiniMaxM2TopKRouter", "sigmoid_topk", bias=small, renorm=True, tame=True),
        case("minimax_m2", "MiniMaxM2TopKRouter", "sigmoid_topk", bias=huge, renorm=True, tame=True),
        case(**lfm, renorm=True, epsilon=1e-6),
        case(**lfm, bias=small, renorm=True, epsilon=1e-6, factor=2.5),
        case(**lfm, bias=huge, factor=2.5),
        case("nemotron_h", "NemotronHTopkRouter", "sigmoid_topk", bias=small, renorm=True, factor=5.0),
    ]
    for bias in (small, huge, beyond):
        for renorm in (False, True):
            cases.append(case(**v3, bias=bias, renorm=renorm, factor=2.5))
            cases.append(case(**v3, bias=bias, renorm=renorm, groups=(4, 2)))
            cases.append(case(**v3, bias=bias, renorm=renorm, groups=(4, 1), k=4, factor=2.5))
    cases.append(case(**v3, bias=small, renorm=True, k=E))
    logits = {str(n): {edge: torch.tensor(z, dtype=torch.float32).tolist() for edge, z in rows(n, False).items()}
              for n in sorted({c["experts"] for c in cases})}
    with open(path, "w") as f:
        f.write("{\"logits\": {\n" + ",\n".join(
            json.dumps(n) + ": {\n  " + ",\n  ".join(f"{json.dumps(e)}: {json.dumps(z)}" for e, z in table.items()) + "}"
            for n, table in logits.items()) + "},\n\"cases\": [\n" + ",\n".join(
                json.dumps({k: v for k, v in c.items() if k != "rows"})[:-1] + ", \"rows\": [\n  " +
                ",\n  ".join(json.dumps(r) for r in c["rows"]) + "]}" for c in cases) + "\n]}\n")


main(*sys.argv[1:])
