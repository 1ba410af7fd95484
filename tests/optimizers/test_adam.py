import pytest
import torch

from xdpx.optimizers import optimizers


def weights():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(7))]


def optimizer(name, trained, **keys):
    kind = optimizers[name]
    return kind(kind.Parameters(**keys), groups=[{"params": trained, "lr": 0.1, "name": "all"}])


def step(chosen, trained, scale=1.0):
    for number, weight in enumerate(trained):
        weight.grad = torch.sin(weight.detach() * (number + 2)) * scale
    chosen.step()


def test_adam_is_adamw():
    ours, theirs = weights(), weights()
    mine = optimizer("adam", ours, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs, lr=0.1, eps=1e-6, weight_decay=0.1)
    for _ in range(5):
        step(mine, ours)
        step(reference, theirs)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_the_gradient_is_divided_by_grad_scale(name):
    ours, theirs = weights(), weights()
    scaled, plain = optimizer(name, ours), optimizer(name, theirs)
    scaled.grad_scale = torch.tensor(4.0)
    for _ in range(3):
        step(scaled, ours, scale=4.0)
        step(plain, theirs)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_found_inf_leaves_everything_as_it_was(name):
    ours, theirs = weights(), weights()
    chosen, other = optimizer(name, ours), optimizer(name, theirs)
    step(chosen, ours)
    step(other, theirs)
    chosen.found_inf = torch.tensor(1.0)
    step(chosen, ours, scale=float("nan"))
    chosen.found_inf = torch.tensor(0.0)
    step(chosen, ours)
    step(other, theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_lamb_takes_the_first_step_of_its_paper():
    start = torch.tensor([3.0, -4.0])
    weight = torch.nn.Parameter(start.clone())
    chosen = optimizer("lamb", [weight], weight_decay=0.5)
    weight.grad = torch.tensor([0.2, -0.1])
    chosen.step()
    # After one step both means are those of the gradient, so its sign is left, plus the decay.
    direction = torch.tensor([1.0, -1.0]) + 0.5 * start
    expected = start - 0.1 * direction * 5.0 / direction.norm()
    assert torch.allclose(weight, expected, atol=1e-4)


def test_lamb_leaves_the_size_of_the_step_alone_where_a_weight_is_zero():
    weight = torch.nn.Parameter(torch.zeros(2))
    chosen = optimizer("lamb", [weight])
    weight.grad = torch.tensor([1.0, -2.0])
    chosen.step()
    assert torch.allclose(weight, torch.tensor([-0.1, 0.1]), atol=1e-4)


@pytest.mark.parametrize("betas", [[0.9], [0.9, 1.0], [-0.1, 0.9]])
def test_betas_out_of_range_are_refused(betas):
    assert dict(optimizers["adam"].Parameters(adam_betas=betas).conflicts())
