#!/usr/bin/env python3
"""Makes gpt2-masked: the run of gpt2/ again, once with a loss mask and once with attention masked at document borders.

  ~/peers/bin/python tests/golden/generate_masked.py tests/golden/gpt2 tests/golden/gpt2-masked

The training loop is that of generate.py, with two differences: the loss is the mean over the targets that count (token i of
train.bin counts where byte i of train.mask is 1), or a token attends to the tokens from the last `end_of_text` at or before it on.
"""
import json, math, os, sys
import numpy as np, torch
from transformers import GPT2LMHeadModel

gpt2, out = sys.argv[1:3]
torch.set_num_threads(1); torch.use_deterministic_algorithms(True)
os.makedirs(out, exist_ok=True)
tok = np.fromfile(f"{gpt2}/train.bin", np.uint16, offset=1024).astype(np.int64)
T, G, STEPS, WARMUP, LR, FLOOR, CLIP, DECAY = 32, 8, 20, 4, 1e-2, 0.1, 1.0, 0.1
END = 219                                        # a frequent token of the data stands for the end of a text
rng = np.random.default_rng(7)
mask = np.zeros(len(tok), np.uint8)
at = 0
while at < len(tok):                             # prompts and completions of all lengths
    prompt, completion = rng.integers(1, 60), rng.integers(1, 40)
    mask[at + prompt:at + prompt + completion] = 1
    at += prompt + completion
with open(f"{out}/train.mask", "wb") as f:
    head = np.zeros(256, dtype=np.int32); head[:3] = 20261130, 1, len(mask)
    f.write(head.tobytes()); f.write(mask.tobytes())
samples = (len(tok) - 1) // T

def rate(step):
    if step < WARMUP: return LR * (step + 1) / WARMUP
    low, r = LR * FLOOR, (step - WARMUP) / (STEPS - WARMUP)
    return low + 0.5 * (1 + math.cos(math.pi * r)) * (LR - low)

def batch(step):
    first = [(step * G + j) % samples * T for j in range(G)]
    x = torch.tensor(np.stack([tok[i:i + T] for i in first])); y = torch.tensor(np.stack([tok[i + 1:i + T + 1] for i in first]))
    counts = torch.tensor(np.stack([mask[i + 1:i + T + 1] for i in first])).bool()
    return x, y, counts

def documents(x):
    """(rows, 1, T, T): 0 where query i sees key j, else the lowest number."""
    place = torch.arange(T)
    start = torch.cummax(torch.where(x == END, place, torch.zeros_like(x)), dim=1).values
    seen = (place[None, None, :] <= place[None, :, None]) & (place[None, None, :] >= start[:, :, None])
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]

def run(loss_mask, borders):
    m = GPT2LMHeadModel.from_pretrained(f"{gpt2}/model", attn_implementation="eager", torch_dtype=torch.float32).train()
    decay = [q for q in m.parameters() if q.dim() >= 2]; plain = [q for q in m.parameters() if q.dim() < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}], lr=LR, betas=(0.9, 0.95), eps=1e-8)
    trace = []
    for s in range(STEPS):
        x, y, counts = batch(s)
        opt.zero_grad(set_to_none=True)
        logits = m(input_ids=x, attention_mask=documents(x) if borders else None).logits
        target = torch.where(counts, y, torch.full_like(y, -100)) if loss_mask else y
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), target.reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(m.parameters(), CLIP)
        for g in opt.param_groups: g["lr"] = rate(s)
        opt.step()
        trace.append({"step": s + 1, "loss": loss.item(), "grad_norm": float(norm), "tokens": int(counts.sum()) if loss_mask else G * T})
    return trace

json.dump({"end_of_text": END, "torch": torch.__version__, "loss_mask": run(True, False), "documents": run(False, True),
           "both": run(True, True)}, open(f"{out}/reference.json", "w"), indent=1)
