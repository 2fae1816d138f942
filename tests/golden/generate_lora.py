#!/usr/bin/env python3
"""Makes lora-gpt2, lora-llama and lora-moe: the models of gpt2/, llama/ and moe/ with adapters of Hugging Face PEFT, which alone
are trained, by the loop of generate.py.

  ~/peers/bin/python tests/golden/generate_lora.py tests/golden          (needs peft)
"""
import json, math, os, sys
import numpy as np, peft, torch, transformers
from safetensors.torch import save_file

root = sys.argv[1]
CASES = {
    "gpt2": dict(rank=4, alpha=6.0, modules=["c_attn", "c_proj", "c_fc"]),
    "llama": dict(rank=5, alpha=10.0, modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "moe": dict(rank=2, alpha=1.0, modules=["q_proj", "v_proj", "o_proj"]),
}
STEPS, LR, DECAY, CLIP = 10, 1e-2, 0.1, 0.5
torch.set_num_threads(1); torch.use_deterministic_algorithms(True)

for base, c in CASES.items():
    out = f"{root}/lora-{base}"
    os.makedirs(out, exist_ok=True)
    a = json.load(open(f"{root}/{base}/reference.json"))["arguments"]
    torch.manual_seed(11)
    m = transformers.AutoModelForCausalLM.from_pretrained(f"{root}/{base}/model", attn_implementation="eager", dtype=torch.float32)
    m = peft.get_peft_model(m, peft.LoraConfig(r=c["rank"], lora_alpha=c["alpha"], target_modules=c["modules"], lora_dropout=0.0,
                                               bias="none", task_type="CAUSAL_LM", fan_in_fan_out=base == "gpt2"))
    adapters = {n.removeprefix("base_model.model.").replace(".default.", "."): q for n, q in m.named_parameters() if q.requires_grad}
    assert all(".lora_" in n for n in adapters)
    with torch.no_grad():          # not zero, so that all gradients are there from the first step on
        for q in adapters.values(): q.normal_(0, 0.1)
    def write(values, name):
        save_file({n: v.detach().clone().contiguous() for n, v in values.items()}, f"{out}/{name}.safetensors")
        os.chmod(f"{out}/{name}.safetensors", 0o644)
    write(adapters, "adapters")
    tok = np.fromfile(f"{root}/{base}/train.bin", np.uint16, offset=1024).astype(np.int64)
    T, G = a["context"], a["sequences"]
    samples = (len(tok) - 1) // T
    def batch(step):
        first = [(step * G + j) % samples * T for j in range(G)]
        return torch.tensor(np.stack([tok[i:i + T] for i in first])), torch.tensor(np.stack([tok[i + 1:i + T + 1] for i in first]))
    x, _ = batch(0)
    with torch.no_grad(): write({"logits": m.eval()(input_ids=x[:2]).logits.float()}, "logits")
    m.train()
    opt = torch.optim.AdamW(adapters.values(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
    trace = []
    for s in range(STEPS):
        x, y = batch(s)
        opt.zero_grad(set_to_none=True)
        logits = m(input_ids=x).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, a["vocab"]).float(), y.reshape(-1))
        loss.backward()
        if s == 0: write({n: q.grad for n, q in adapters.items()}, "gradients")
        norm = torch.nn.utils.clip_grad_norm_(adapters.values(), CLIP)
        opt.step()
        trace.append({"step": s + 1, "loss": loss.item(), "grad_norm": float(norm), "lr": LR})
    write(adapters, "final")
    json.dump({"base": base, "rank": c["rank"], "alpha": c["alpha"], "modules": c["modules"], "lr": LR, "decay": DECAY, "clip": CLIP,
               "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
               "adapters": sum(q.numel() for q in adapters.values()), "steps": trace}, open(f"{out}/reference.json", "w"), indent=1)
    print(base, "adapters", sum(q.numel() for q in adapters.values()), "loss", trace[0]["loss"], "→", trace[-1]["loss"])
