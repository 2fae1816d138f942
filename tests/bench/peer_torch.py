#!/usr/bin/env python3
"""Train a GPT-2 shaped model with PyTorch DDP over gloo: the peer for `kc bench step`.

  torchrun --nproc-per-node 2 torch_train.py --layers 12 --hidden 768 --heads 12 --vocab 50257 \
           --context 256 --micro 4 --steps 6 [--bf16] [--compile] [--threads 1] [--accumulate 1]

Prints {"first_step":true} from rank 0 when the first step is done and {"steady":PID} from every rank after the fourth; at
the end one JSON line from rank 0: median seconds per step (first two dropped), tokens/s over all ranks, peak resident
memory of rank 0, and the seconds from process start to the end of the first step. Random tokens: only speed is measured.
"""
import time
START = time.time()
import argparse, json, os, resource, statistics
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist

class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab, a.hidden), nn.Embedding(a.context, a.hidden)
        self.blocks = nn.ModuleList(Block(a.hidden, a.heads) for _ in range(a.layers))
        self.ln = nn.LayerNorm(a.hidden)
        for p in self.parameters():
            if p.dim() > 1: nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for b in self.blocks: h = b(h)
        logits = F.linear(self.ln(h), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), y.reshape(-1))

def main():
    p = argparse.ArgumentParser()
    for n, d in dict(layers=12, hidden=768, heads=12, vocab=50257, context=256, micro=4, steps=6, threads=1, accumulate=1).items():
        p.add_argument(f"--{n}", type=int, default=d)
    p.add_argument("--bf16", action="store_true"); p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1: dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = GPT(a)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) if world > 1 else model
    if a.compile: run = torch.compile(run)
    times, first = [], None
    for s in range(a.steps):
        t = time.time()
        for m in range(a.accumulate):
            x = torch.randint(a.vocab, (a.micro, a.context + 1))
            sync = world == 1 or m == a.accumulate - 1
            if world > 1: run.require_backward_grad_sync = sync
            with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
                loss = run(x[:, :-1], x[:, 1:]) / a.accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(); opt.zero_grad(set_to_none=True)
        times.append(time.time() - t)
        first = first or time.time() - START
        if rank == 0 and s == 0: print(json.dumps({"first_step": True}), flush=True)  # seen by who timed from the command
        if s == 3: print(json.dumps({"steady": os.getpid()}), flush=True)               # now its memory may be read
    if rank == 0:
        med = statistics.median(times[2:])
        print(json.dumps({"peer": "pytorch " + torch.__version__, "precision": "bf16" if a.bf16 else "fp32", "compile": a.compile,
              "world": world, "threads": a.threads, "params": sum(q.numel() for q in model.parameters()),
              "step_seconds": round(med, 4), "tokens_per_second": round(world * a.micro * a.accumulate * a.context / med, 1),
              "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, "first_step_seconds": round(first, 2)}), flush=True)
    if world > 1: dist.destroy_process_group()

main()
