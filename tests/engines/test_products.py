import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from xdpx.engines.pytorch.products import Products, is_there

pytestmark = pytest.mark.skipif(not is_there(), reason="torch without oneDNN, or another kind of processor")


@pytest.fixture
def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 3, bias=False))


def computed(model, given, *, keeps=True):
    with torch.inference_mode(), Products(model, keeps=keeps).inside():
        return model(given)


@pytest.mark.parametrize("shape", [(48,), (1, 48), (7, 48), (0, 48), (2, 3, 48)])
def test_products_by_onednn_are_those_of_torch(model, shape):
    given = torch.randn(shape)
    expected = model(given).detach()
    for keeps in (True, False):
        torch.testing.assert_close(computed(model, given, keeps=keeps), expected)
    assert "forward" not in vars(model[0])


def test_a_row_has_the_same_bits_among_any_number_with_and_without_a_copy_of_the_weights(model):
    given = torch.randn(64, 48)
    expected = computed(model, given)
    for count in (1, 2, 3, 8, 33):
        for keeps in (True, False):
            assert torch.equal(computed(model, given[:count], keeps=keeps), expected[:count])


def test_a_layer_whose_weights_are_normalised_is_computed_so_too_and_anew_each_time():
    torch.manual_seed(1)
    layer = weight_norm(nn.Linear(150, 2))
    given = torch.randn(64, 150)
    products = Products(layer, keeps=True)
    for _ in range(2):
        with torch.inference_mode(), products.inside():
            expected = layer(given)
            assert all(torch.equal(layer(given[:count]), expected[:count]) for count in (1, 2, 3, 8, 33))
        torch.testing.assert_close(expected, layer(given).detach())
        with torch.no_grad():
            layer.parametrizations.weight.original1.mul_(2.0)


def test_weights_that_were_changed_are_copied_again(model):
    products, given = Products(model, keeps=True), torch.randn(5, 48)
    with torch.inference_mode(), products.inside():
        model(given)
    with torch.no_grad():
        model[0].weight.mul_(2.0)
    expected = model(given).detach()
    with torch.inference_mode(), products.inside():
        torch.testing.assert_close(model(given), expected)


def test_other_numbers_than_single_precision_are_left_to_torch(model):
    given = torch.randn(5, 48, dtype=torch.float64)
    doubled = model.double()
    assert torch.equal(computed(doubled, given), doubled(given))


def test_weights_that_lie_where_others_lay_are_never_answered_with_the_copy_of_those():
    layer, given = nn.Linear(64, 64, bias=False), torch.randn(8, 64)
    products = Products(layer, keeps=True)
    for _ in range(20):  # freed memory is mostly taken again at once
        layer.weight = None
        layer.weight = nn.Parameter(torch.randn(64, 64), requires_grad=False)
        with torch.inference_mode(), products.inside():
            assert torch.allclose(layer(given), given @ layer.weight.T, atol=1e-4)
