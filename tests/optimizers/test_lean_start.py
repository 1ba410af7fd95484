"""Optimizers of torch train without the compiler until something imports it, and take the same steps without it."""

from __future__ import annotations

import subprocess
import sys

TWICE = """
import sys, torch
from xdpx.optimizers.pytorch.lean_start import defer_compiler

def train():
    for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.LBFGS, torch.optim.RMSprop):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(8))
        optimizer = kind([{"params": [weight], "lr": 0.1}])
        for _ in range(3):
            def closure():
                optimizer.zero_grad()
                loss = (weight ** 2).sum()
                loss.backward()
                return loss
            optimizer.step(closure)
        optimizer.load_state_dict(optimizer.state_dict())
        print(kind.__name__, weight.tolist())

defer_compiler()
defer_compiler()  # again changes nothing
train()
assert "torch._dynamo" not in sys.modules
import torch._dynamo  # from here on, torch's own wrappers run
train()
"""


def test_optimizers_step_alike_without_the_compiler_and_do_not_import_it() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    assert lines[:5] == lines[5:]
