"""A minimal schedule-free optimizer with the interface of the package schedulefree."""

import torch


class ScheduleFree(torch.optim.Optimizer):
    """SGD that trains y = 0.1 z + 0.9 x, where x is the mean of all z.

    Source: Defazio et al., "The Road Less Scheduled", NeurIPS 2024, equations 3 to 5.
    """

    def __init__(self, params, lr=0.1, **_):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "k": 0, "train_mode": False})

    @torch.no_grad()
    def _switch(self, training, share):
        for group in self.param_groups:
            if group["train_mode"] != training:
                for weight in group["params"]:
                    if "z" in self.state[weight]:
                        weight.lerp_(self.state[weight]["z"], share)
                group["train_mode"] = training

    def train(self):
        self._switch(True, 0.1)

    def eval(self):
        self._switch(False, 1 - 1 / 0.9)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert group["train_mode"], "Optimizer was not in train mode when step is called."
            group["k"] += 1
            for weight in group["params"]:
                if weight.grad is not None:
                    z = self.state[weight].setdefault("z", weight.clone())
                    x = weight.lerp(z, 1 - 1 / 0.9)
                    z.sub_(weight.grad, alpha=group["lr"])
                    weight.copy_(x.lerp(z, 1 / group["k"]).lerp(z, 0.1))
