"""How far sharded weights of two processes end up from unsharded ones: `sharded_steps.py FOLDER` writes it down."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.preloaded import SHARDING, import_before_forking
from tests.processes import fork_ranks
from xdpx.engines.pytorch.strategies import states
from xdpx.optimizers.pytorch import building, groups
from xdpx.trainer.loss.model_loss import global_count

NAMES = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3), nn.Linear(3, 1))  # the last has one row


def optimizer_of(name, trained):
    wishes = SimpleNamespace(
        optim=name,
        optim_args=None,
        learning_rate=0.03,
        weight_decay=0.1,
        adam_beta1=0.9,
        adam_beta2=0.95,
        adam_epsilon=1e-7,
    )
    return building.optimizer_for(wishes, trained, groups.decay_groups(trained, 0.1))


def distance(name, mesh):
    whole, sharded = model(), model()
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    for trained in (whole, sharded):
        optimizer = optimizer_of(name, trained)
        for step in range(3):
            if step == 2:  # as when it is resumed
                saved = states.whole_optimizer_state(optimizer, wanted=True, copied=True)
                optimizer = optimizer_of(name, trained)
                states.fill_optimizer(optimizer, saved)
            trained(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    pairs = zip(whole.parameters(), sharded.parameters(), strict=True)
    return max((mine - theirs.full_tensor()).abs().max().item() for mine, theirs in pairs)


def work(rank):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    found = {name: distance(name, mesh) for name in NAMES}
    own = torch.tensor(rank + 3)
    counts = [global_count(own, torch.device("cpu"), over_ranks=over).item() for over in (True, False)]
    if rank == 0:
        Path(sys.argv[1], "found.json").write_text(json.dumps([found, counts]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import_before_forking(*SHARDING)
    sys.exit(any(fork_ranks(work, 2, f"{sys.argv[1]}/said")))
