from types import SimpleNamespace

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from xdpx.optimizers.pytorch import low_rank
from xdpx.optimizers.pytorch.request import OptimizerRequest


class Projected(torch.optim.SGD):
    """Stands for GaLore: a group may have a `rank` of its own."""


def model():
    torch.manual_seed(0)
    return torch.nn.ModuleDict(
        {
            "attn": torch.nn.Linear(4, 4),
            "attn_norm": torch.nn.LayerNorm(4),
            "mlp": torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)),
        }
    )


def forward(trained, x):
    return trained["mlp"](trained["attn_norm"](trained["attn"](x)))


def request(wanted, name="galore_adamw", for_model=None, **others):
    args = SimpleNamespace(optim_target_modules=wanted, **others)
    return OptimizerRequest(args, model() if for_model is None else for_model, name, {})


def projected_names(wanted):
    trained = model()
    _, kwargs = low_rank.chosen(request(wanted, for_model=trained), Projected, {"rank": 2}, {"lr": 0.1})
    names = {id(weight): name for name, weight in trained.named_parameters()}
    assert [set(group) for group in kwargs["params"]] == [{"params"}, {"params", "rank"}]
    return [names[id(weight)] for weight in kwargs["params"][1]["params"]]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("all-linear", ["attn.weight", "mlp.0.weight", "mlp.2.weight"]),
        ("all_linear", ["attn.weight", "mlp.0.weight", "mlp.2.weight"]),
        ("mlp.*", ["mlp.0.weight", "mlp.2.weight"]),
        ("attn", ["attn.weight"]),
        (["attn"], ["attn.weight"]),
        (["attn", r"mlp\.2"], ["attn.weight", "mlp.2.weight"]),
        ([".*"], ["attn.weight", "mlp.0.weight", "mlp.2.weight"]),
    ],
)
def test_linear_layers_are_picked_by_name_part_pattern_or_all(wanted, names):
    assert projected_names(wanted) == names


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (None, ValueError, "projects chosen layers. Say which"),
        (5, TypeError, "is a int. Use a list or a string"),
        (["nothing"], ValueError, "no linear layer matches .* The model has 3 linear layers: attn, mlp.0, mlp.2"),
    ],
)
def test_targets_that_mean_no_layer_are_refused(wanted, error, message):
    with pytest.raises(error, match=message):
        low_rank.chosen(request(wanted), Projected, {}, {"lr": 0.1})


def test_without_a_model_there_is_nothing_to_pick_from():
    with pytest.raises(ValueError, match="Give the model"):
        low_rank.chosen(
            OptimizerRequest(SimpleNamespace(optim_target_modules="all-linear"), None, "galore_adamw", {}),
            Projected,
            {},
            {},
        )


@pytest.mark.parametrize(
    ("others", "error"),
    [({"parallel_mode": "distributed"}, NotImplementedError), ({"gradient_accumulation_steps": 4}, ValueError)],
)
def test_layer_by_layer_is_refused_where_gradients_must_wait(others, error):
    asked = request("all-linear", "galore_adamw_layerwise", **others)
    with pytest.raises(error, match="Use 'galore_adamw'"):
        low_rank.chosen(asked, Projected, {}, {"lr": 0.1})


def layerwise(trained, momentum=0.9):
    asked = request("all-linear", "galore_adamw_layerwise", for_model=trained)
    kind, kwargs = low_rank.chosen(asked, Projected, {"weight_decay": 0.1}, {"lr": 0.1, "momentum": momentum})
    groups = kwargs.pop("params")
    return kind(groups, **kwargs), groups


def train(trained, optimizer, schedule, steps=4):
    for step in range(steps):
        loss = forward(trained, torch.full((2, 4), 0.1 * (step + 1)).cumsum(1)).square().sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def halve(step):
    return 0.5**step


def test_layer_by_layer_moves_the_weights_as_one_optimizer_would_on_a_schedule():
    ours, theirs = model(), model()
    optimizer, _ = layerwise(ours)
    asked = request("all-linear", for_model=theirs)
    _, kwargs = low_rank.chosen(asked, Projected, {"weight_decay": 0.1}, {"lr": 0.1, "momentum": 0.9})
    reference = Projected(**kwargs)
    train(ours, optimizer, LambdaLR(optimizer, halve))
    train(theirs, reference, LambdaLR(reference, halve))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_no_gradient_outlives_the_backward_pass():
    trained = model()
    layerwise(trained)
    forward(trained, torch.ones(1, 4)).sum().backward()
    assert all(weight.grad is None for weight in trained.parameters())


def test_training_goes_on_from_a_saved_state_as_if_it_had_not_stopped():
    straight, stopped = model(), model()
    first, _ = layerwise(straight)
    train(straight, first, LambdaLR(first, halve), 2)
    second, _ = layerwise(stopped)
    train(stopped, second, LambdaLR(second, halve), 2)
    saved = second.state_dict()
    second.detach()
    third, _ = layerwise(stopped)
    third.load_state_dict(saved)
    for optimizer, trained in ((first, straight), (third, stopped)):
        forward(trained, torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), stopped.parameters(), strict=True))


def test_a_state_of_another_model_is_refused():
    optimizer, _ = layerwise(model())
    with pytest.raises(ValueError, match="The saved state has 1 weights, this model 8"):
        optimizer.load_state_dict({"layers": [{}]})


def test_after_detach_the_backward_pass_leaves_gradients_alone():
    trained = model()
    optimizer, _ = layerwise(trained)
    optimizer.detach()
    forward(trained, torch.ones(1, 4)).sum().backward()
    assert all(weight.grad is not None for weight in trained.parameters())
