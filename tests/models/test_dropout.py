import pytest
import torch
from torch import nn

from xdpx.models.pytorch.modules import attention
from xdpx.models.pytorch.modules.dropout import Dropout, random_signs, scale_of, use_fast_dropout


def drawn(seed, share=0.1, count=200_000):
    torch.manual_seed(seed)
    return Dropout(share)(torch.ones(count))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_and_the_mean_are_right(share):
    found = drawn(0, share)
    assert float((found == 0).float().mean()) == pytest.approx(share, abs=0.005)
    assert float(found.mean()) == pytest.approx(1.0, abs=0.02)
    assert found.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)], rel=1e-4)


def test_the_mask_depends_on_torchs_random_state_alone():
    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    torch.manual_seed(1)
    first, second = Dropout(0.1)(torch.ones(1000)), Dropout(0.1)(torch.ones(1000))
    assert not torch.equal(first, second)


def test_neighbouring_numbers_are_dropped_independently():
    dropped = (drawn(3) == 0).float()
    for distance in (1, 2, 3, 4):
        together = (dropped[distance:] * dropped[:-distance]).mean()
        assert float(together) == pytest.approx(0.01, abs=0.002)


def test_dropping_everything_or_nothing():
    assert drawn(0, 1.0).sum() == 0
    assert torch.equal(drawn(0, 0.0), torch.ones(200_000))


def test_evaluation_drops_nothing():
    assert torch.equal(Dropout(0.5).eval()(torch.ones(9)), torch.ones(9))


def test_the_gradient_passes_where_numbers_were_kept():
    x = torch.ones(1000, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_dropout_in_foreign_networks_is_replaced_once():
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.3)), nn.Dropout1d(0.2))
    use_fast_dropout(network)
    assert (type(network[1][0]), network[1][0].p, type(network[2])) == (Dropout, 0.3, nn.Dropout1d)


def case(batch=3, heads=2, length=5):
    torch.manual_seed(0)
    query, key, value = (torch.randn(batch, heads, length, 4, requires_grad=True) for _ in range(3))
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[1, 3:] = False
    return query, key, value, mask[:, None, None, :].expand(-1, -1, length, -1)


def by_hand(query, key, value, mask, share, step):
    """Compute the same with one operation after the other, with the mask that the same seed draws."""
    torch.manual_seed(1)
    shape = (*query.shape[:3], key.shape[2])
    parts = [
        random_signs(torch.Size(shape[1:]).numel() * step, share).view(step, *shape[1:])
        for _ in range(shape[0] // step)
    ]
    weights = (query @ key.transpose(2, 3) * 0.5).masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights * (torch.cat(parts) > 0) * scale_of(share) @ value).transpose(1, 2)


@pytest.mark.parametrize("step", [1, 3])
def test_attention_and_its_gradients_are_those_of_the_formula(step, monkeypatch):
    query, key, value, mask = case()
    monkeypatch.setattr(attention, "NUMBERS_IN_CACHE", 50 * step)
    torch.manual_seed(1)
    ours, _ = attention.attend(None, query, key, value, mask, dropout=0.3, scaling=0.5)
    theirs = by_hand(query, key, value, mask, 0.3, step)
    assert torch.allclose(ours, theirs, atol=1e-6)
    slope = torch.randn_like(ours)
    found = torch.autograd.grad(ours, (query, key, value), slope)
    expected = torch.autograd.grad(theirs, (query, key, value), slope)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))


def test_attention_without_dropout_is_torchs_own():
    query, key, value, mask = case()
    module = nn.Module()
    module.is_causal = False
    ours, _ = attention.attend(module, query, key, value, mask)
    theirs = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert torch.allclose(ours, theirs.transpose(1, 2), atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 1e-6])
@pytest.mark.parametrize("causal", [None, False, True])
def test_without_padding_a_token_sees_later_ones_unless_its_module_is_causal(causal, dropout):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 2, 4, 3) for _ in range(3))
    module = torch.nn.Module()
    if causal is not None:
        module.is_causal = causal
    scores = query @ key.transpose(2, 3) / 3**0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(4, 4).tril().bool(), -torch.inf)
    seen, _ = attention.attend(module, query, key, value, None, dropout=dropout)
    assert torch.allclose(seen, (scores.softmax(dim=-1) @ value).transpose(1, 2), atol=1e-6)
