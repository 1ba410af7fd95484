import pytest

from xdpx.utils.weight_decay import SPARED, decays

TABLE = {
    #                                  everything bert   library trainer
    ("encoder.layer.0.weight", 2): (True, True, True, True),
    ("encoder.layer.0.bias", 1): (True, False, False, False),
    ("encoder.LayerNorm.weight", 1): (True, False, False, False),
    ("model.norm.weight", 1): (True, False, False, False),
    ("layers.0.gate", 1): (True, False, False, True),
    ("layers.0.ln_1.weight", 1): (True, True, False, True),
    ("block.0.relative_attention_bias.weight", 2): (True, True, True, False),
    ("normal.weight", 2): (True, False, True, True),
}


@pytest.mark.parametrize(("name", "num_dims"), TABLE)
def test_each_rule_says_what_its_ancestor_promised(name, num_dims):
    rules = ("everything", "bert", "library", "trainer")
    assert tuple(SPARED) == rules
    assert tuple(decays(rule, name, num_dims) for rule in rules) == TABLE[name, num_dims]
