import pytest

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.layers.bert import bert_block
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.stacks import count_layers, set_in_blocks, set_num_layers
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer


def _nested() -> Pipelined.HParams:
    body = StackedTransformerRepeated.HParams(body=StackedTransformer.HParams(num_layers=2), x_times=3)
    return Pipelined.HParams(body=body, num_stages=4, num_microbatches=2)


def test_sizes_reach_the_blocks_however_deep_they_are():
    template = _nested()
    set_in_blocks(template, {"input_dims": 8, "no_such_field": 1}, causal=True)
    block = template.body.body.layer_tpl
    assert (block.input_dims, block.causal) == (8, True)


def test_a_block_that_says_what_it_sees_keeps_it():
    block = Transformer.HParams(causal=True)
    set_in_blocks(block, {}, causal=False)
    assert block.causal is True


def test_a_block_that_would_see_what_it_is_to_predict_is_refused():
    stack = StackedTransformerRepeated.HParams(body=bert_block())
    with pytest.raises(ConfigError, match="causal: is False in a block of a causal model"):
        set_in_blocks(stack, {}, causal=True)
    set_in_blocks(stack, {}, causal=False)


def test_every_template_of_a_list_is_reached():
    stack = StackedTransformer.HParams(num_layers=2, layer_tpl=[Transformer.HParams(), Transformer.HParams()])
    set_in_blocks(stack, {"num_heads": 3})
    assert [block.num_heads for block in stack.layer_tpl] == [3, 3]


def test_layers_are_counted_through_all_levels():
    assert count_layers(_nested()) == 24
    assert count_layers(Transformer.HParams()) == 1


def test_a_number_of_layers_is_reached_by_repetition():
    template = _nested()
    set_num_layers(template, 40)
    assert template.body.x_times == 5
    assert count_layers(template) == 40


def test_a_number_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="multiple of 4"):
        set_num_layers(_nested(), 30)
    with pytest.raises(ValueError, match="layers"):
        set_num_layers(Transformer.HParams(), 2)
