"""Averages of weights along a training."""

import pytest
import torch
from torch import nn

from xdpx.engines.pytorch.averaging import AveragedModel
from xdpx.engines.pytorch.options import EngineOptions


def walk(options, points):
    """Return the average after each point of a walk."""
    model, averaged, found = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), []
    averaged.requires_grad_(requires_grad=False)
    nn.init.constant_(averaged.weight, 0.0)
    average = AveragedModel(averaged, model, model.parameters(), options)
    for number, point in enumerate(points, start=1):
        nn.init.constant_(model.weight, point)
        average.follow(number)
        found.append(float(averaged.weight))
    return found


def test_swa_does_nothing_until_it_starts_and_is_the_even_mean_from_then_on():
    assert walk(EngineOptions(swa_start=2), [1.0, 2.0, 4.0, 6.0]) == pytest.approx([0.0, 2.0, 3.0, 4.0])


def test_swa_takes_every_so_manieth_point():
    points = [9.0, 2.0, 50.0, 4.0, 70.0, 6.0]
    assert walk(EngineOptions(swa_start=2, swa_interval=2), points)[1:] == pytest.approx([2.0, 2.0, 3.0, 3.0, 4.0])


def test_ema_moves_by_what_the_decay_leaves():
    averaged, model = nn.Linear(1, 1), nn.Linear(1, 1)
    before = averaged.weight.detach().clone()
    options = EngineOptions(ema_decay=0.75)
    AveragedModel(averaged.requires_grad_(requires_grad=False), model, model.parameters(), options).follow(3)
    assert torch.allclose(averaged.weight, 0.75 * before + 0.25 * model.weight)


def test_a_skipped_update_adds_nothing_to_ema_and_its_point_to_swa():
    assert EngineOptions(ema_decay=0.75).share_of_new(3, skipped=True) is None
    assert EngineOptions(swa_start=3).share_of_new(3, skipped=True) == 1.0


def test_weights_that_no_optimizer_moves_cost_nothing():
    averaged, model = nn.Linear(1, 1), nn.Linear(1, 1)
    before = averaged.bias.detach().clone()
    options = EngineOptions(ema_decay=0.0)
    AveragedModel(averaged.requires_grad_(requires_grad=False), model, [model.weight], options).follow(1)
    assert torch.equal(averaged.weight, model.weight)
    assert torch.equal(averaged.bias, before)


def test_buffers_are_those_of_the_model_also_where_it_puts_another_tensor():
    averaged, model = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    average = AveragedModel(averaged, model, model.parameters(), EngineOptions(ema_decay=0.5))
    model.running_mean = model.running_mean + 3.0
    model.running_var.fill_(7.0)
    average.follow(1)
    assert (averaged.running_mean.item(), averaged.running_var.item()) == (3.0, 7.0)
