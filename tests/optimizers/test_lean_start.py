"""Optimizers of torch train without the compiler until something is compiled, and take the same steps without it."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys, torch
from xdpx.optimizers.pytorch.lean_start import defer_compiler
defer = sys.argv[1] == "deferred"
if defer:
    defer_compiler()
    defer_compiler()
kinds = [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.LBFGS, torch.optim.RMSprop]
for kind in kinds:
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
assert ("torch._dynamo" in sys.modules) is not defer
if defer:  # and what is compiled later is compiled
    import torch._dynamo
    optimizer.zero_grad()
    optimizer.step(closure)
"""


def told(how: str) -> str:
    line = [sys.executable, "-c", WITHOUT, how]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=300).stdout


def test_optimizers_step_alike_without_the_compiler_and_do_not_import_it() -> None:
    deferred = told("deferred")
    assert deferred.count("\n") == 5
    assert deferred == told("as torch has it")
