import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    CLIPConfig,
    CLIPModel,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from xdpx.models.pytorch import preparing

SIZES = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 20}
IDS = torch.arange(10).view(2, 5)


def bert(kind=BertForSequenceClassification):
    torch.manual_seed(0)
    return kind(BertConfig(**SIZES))


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=20, n_positions=16))


def gradients(model):
    model.zero_grad()
    torch.manual_seed(1)
    model.train()(input_ids=IDS, labels=torch.tensor([0, 1])).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def test_a_model_is_found_under_its_wrappers():
    model = bert()
    assert preparing.bare(model) is model
    assert preparing.bare(nn.DataParallel(model)) is model
    assert preparing.bare(torch.compile(nn.DataParallel(model), backend="eager")) is model


def test_a_model_is_found_under_its_adapters():
    inner = nn.Linear(2, 2)

    class Adapted(nn.Module):
        peft_config = {}

        def __init__(self):
            super().__init__()
            self.base_model = nn.Module()
            self.base_model.model = inner

    with_method = Adapted()
    with_method.get_base_model = lambda: inner
    assert preparing.bare(Adapted()) is inner
    assert preparing.bare(with_method) is inner


@pytest.mark.parametrize("prompts", [False, True])
def test_a_model_is_found_under_the_adapters_of_peft(prompts):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS")
    chosen = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="SEQ_CLS") if prompts else lora
    model = bert()
    assert preparing.bare(peft.get_peft_model(model, chosen)) is model
    model = bert()
    model.add_adapter(lora)  # put in by transformers, with nothing around the model
    assert preparing.bare(model) is model


def test_a_model_without_a_head_is_refused_with_one_that_has_it():
    with pytest.raises(ValueError, match="BertModel computes hidden states only.*BertForSequenceClassification"):
        preparing.refuse_headless(bert(BertModel))


class Mine(BertModel):
    """A user's own class on top of a model without a head may do what it likes."""


@pytest.mark.parametrize("build", [bert, lambda: bert(Mine), lambda: nn.Linear(2, 2), gpt2])
def test_other_models_are_not_refused(build):
    preparing.refuse_headless(build())


def test_a_model_that_gives_a_loss_without_labels_is_not_refused():
    class WithReturnLoss(CLIPModel):
        __module__ = CLIPModel.__module__

    WithReturnLoss.__name__ = "CLIPModel"
    small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = CLIPConfig(
        text_config={**small, "vocab_size": 20}, vision_config={**small, "image_size": 8, "patch_size": 4}
    )
    preparing.refuse_headless(WithReturnLoss(config))


def test_an_encoder_decoder_gets_the_ids_that_it_makes_of_labels_itself():
    torch.manual_seed(0)
    small = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 20, "dropout_rate": 0}
    model = T5ForConditionalGeneration(T5Config(**small, decoder_start_token_id=0))
    inputs, labels = {"input_ids": torch.tensor([[3, 4, 5]])}, torch.tensor([[6, -100]])
    made = preparing.with_decoder_inputs(model, inputs, labels)
    assert made["decoder_input_ids"].tolist() == [[0, 6]]
    assert torch.equal(model(**made).logits, model(**inputs, labels=labels).logits)
    assert preparing.with_decoder_inputs(model, made, labels) is made
    assert preparing.with_decoder_inputs(bert(), inputs, labels) is inputs


def quantised(**attributes):
    model = nn.Linear(2, 2)
    for name, value in {"is_quantized": True, **attributes}.items():
        object.__setattr__(model, name, value)
    return model


TRAINABLE = SimpleNamespace(is_trainable=True, is_qat_trainable=True)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"hf_quantizer": None}, "quantised weights cannot be trained. Add adapters"),
        ({"hf_quantizer": TRAINABLE, "_orig_mod": None}, "quantised and compiled"),
        (
            {"peft_config": {}, "hf_quantizer": SimpleNamespace(is_trainable=False)},
            "through which gradients cannot pass",
        ),
    ],
)
def test_a_quantised_model_that_cannot_be_trained_is_refused(attributes, message):
    with pytest.raises(ValueError, match=message):
        preparing.refuse_quantized(quantised(**attributes))


def test_a_quantised_model_that_can_be_trained_is_not_refused():
    preparing.refuse_quantized(quantised(hf_quantizer=TRAINABLE))
    preparing.refuse_quantized(quantised(hf_quantizer=None, _hf_peft_config_loaded=True))
    preparing.refuse_quantized(nn.Linear(2, 2))


def test_use_cache_goes_into_the_config_where_there_is_one():
    model = gpt2()
    preparing.set_use_cache(model, False)
    assert model.config.use_cache is False
    preparing.set_use_cache(nn.Linear(2, 2), False)


@pytest.mark.parametrize(("kwargs", "on"), [(None, 3), ({"every_n_layers": 2}, 2), ({"preserve_rng_state": True}, 3)])
def test_checkpointing_gives_the_same_gradients_and_runs_layers_twice(kwargs, on):
    model = bert()
    expected = gradients(model)
    calls = []
    for layer in model.bert.encoder.layer:
        layer.attention.register_forward_hook(lambda *_: calls.append(1))
    preparing.checkpoint_activations(model, kwargs)
    found = gradients(model)
    assert len(calls) == 3 + on
    assert all(torch.allclose(expected[name], found[name], atol=1e-7) for name in expected)


def test_a_model_with_the_older_method_alone_is_given_what_it_takes():
    class Older(nn.Module):
        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
            self.seen = gradient_checkpointing_kwargs

    model = Older()
    preparing.checkpoint_activations(model, {"preserve_rng_state": False})
    assert model.seen == {"use_reentrant": False, "preserve_rng_state": False}
    with pytest.raises(ValueError, match="Older does not know 'every_n_layers'. Leave it out"):
        preparing.checkpoint_activations(model, {"every_n_layers": 2})
    with pytest.raises(ValueError, match="Older does not know 'offload'"):
        preparing.checkpoint_activations(model, {"offload": True})


def test_a_model_that_cannot_checkpoint_is_refused():
    with pytest.raises(AttributeError, match="Linear has no activation_checkpointing_enable"):
        preparing.checkpoint_activations(nn.Linear(2, 2))


def test_liger_is_asked_for_by_name_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    with pytest.raises(ImportError, match="pip install liger-kernel"):
        preparing.apply_liger(bert())


def test_liger_patches_models_of_transformers_alone(monkeypatch):
    told = []
    module = ModuleType("liger_kernel.transformers")
    module._apply_liger_kernel_to_instance = lambda model, **kernels: told.append((model, kernels))
    monkeypatch.setitem(sys.modules, "liger_kernel", ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", module)
    model = bert()
    preparing.apply_liger(nn.DataParallel(model), {"rope": True})
    preparing.apply_liger(nn.Linear(2, 2))
    assert told == [(model, {"rope": True})]


def tokenizer(**ids):
    return SimpleNamespace(**{"eos_token_id": None, "bos_token_id": None, "pad_token_id": None, **ids})


def test_new_special_tokens_reach_the_configs_and_stopping_tokens_are_only_added():
    model = gpt2()
    model.config.eos_token_id, model.generation_config = 3, GenerationConfig(eos_token_id=[3, 4], pad_token_id=0)
    changed = preparing.align_special_tokens(model, tokenizer(eos_token_id=7, pad_token_id=9))
    assert changed == {"eos_token_id": 7, "pad_token_id": 9}
    assert (model.config.eos_token_id, model.config.pad_token_id) == (7, 9)
    assert model.generation_config.eos_token_id == [7, 3, 4]
    assert model.generation_config.pad_token_id == 9
    assert preparing.align_special_tokens(model, tokenizer(eos_token_id=7, pad_token_id=9)) == {}


def test_special_tokens_end_up_as_with_the_original():
    from transformers import PreTrainedTokenizerFast
    from transformers.trainer_utils import align_special_tokens

    class Known(PreTrainedTokenizerFast):
        def __init__(self):
            """Know only some ids."""

        eos_token_id, bos_token_id, pad_token_id = 5, None, 6

    found = []
    for align in (preparing.align_special_tokens, align_special_tokens):
        model = gpt2()
        model.config.eos_token_id = [3, 4]
        align(model, Known())
        found.append((model.config.to_dict(), model.generation_config.to_dict()))
    assert found[0] == found[1]


def test_a_tokenizer_inside_a_processor_is_found():
    model = gpt2()
    preparing.align_special_tokens(model, SimpleNamespace(tokenizer=tokenizer(pad_token_id=2)))
    assert model.config.pad_token_id == 2


@pytest.mark.parametrize("thing", [None, object(), SimpleNamespace(size=3)])
def test_what_is_no_tokenizer_changes_nothing(thing):
    assert preparing.align_special_tokens(gpt2(), thing) == {}
    assert preparing.align_special_tokens(nn.Linear(2, 2), tokenizer(eos_token_id=1)) == {}


def test_what_the_arguments_ask_for_is_done_before_training():
    model = bert()
    args = SimpleNamespace(
        use_liger_kernel=False,
        liger_kernel_config=None,
        activation_checkpointing=True,
        activation_checkpointing_kwargs=None,
        debug=(),
    )
    preparing.before_training(model, args, tokenizer(pad_token_id=3))
    assert model.is_activation_checkpointing
    assert model.config.pad_token_id == 3
