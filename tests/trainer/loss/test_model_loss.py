from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_pt_utils import LabelSmoother as Original

from xdpx.trainer.loss import model_loss as trainer_loss
from xdpx.trainer.loss.model_loss import CallShape, LabelSmoother, count_targets, smoother_for


def bert(**keys):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForSequenceClassification(BertConfig(**sizes, vocab_size=20, **keys))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=20, n_positions=16))


def llama():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=20))


def t5():
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    return T5ForConditionalGeneration(T5Config(**sizes))


def logits_and_labels(*shape, classes=7):
    torch.manual_seed(0)
    labels = torch.randint(classes, shape)
    labels.view(-1)[::3] = -100
    return torch.randn(*shape, classes, requires_grad=True), labels


@pytest.mark.parametrize("count", [None, 11, torch.tensor(11)])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (1, 9)])
def test_smoothing_gives_the_loss_and_the_gradient_of_the_original(shape, shift, count):
    logits, labels = logits_and_labels(*shape)
    found = []
    for smoother in (LabelSmoother(0.2), Original(0.2)):
        logits.grad = None
        loss = smoother({"logits": logits}, labels, shift_labels=shift, num_items_in_batch=count)
        loss.backward()
        found.append((loss.detach(), logits.grad.clone()))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-6)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


def test_smoothing_takes_rows_and_tuples_and_labels_with_a_last_dimension():
    logits, _ = logits_and_labels(5)
    labels = torch.tensor([[1], [2], [0], [3], [-100]])
    assert torch.allclose(LabelSmoother(0.1)((logits,), labels), Original(0.1)((logits,), labels), atol=1e-6)
    output = SequenceClassifierOutput(logits=logits)
    assert torch.equal(LabelSmoother(0.1)(output, labels), LabelSmoother(0.1)((logits,), labels.squeeze(-1)))


def test_smoothing_of_half_precision_is_worked_out_in_single():
    logits, labels = logits_and_labels(4, 6)
    half = LabelSmoother(0.1)({"logits": logits.half()}, labels)
    assert half.dtype == torch.float32
    assert torch.allclose(half, LabelSmoother(0.1)({"logits": logits}, labels), atol=1e-3)


def test_any_split_of_a_window_adds_up_to_its_whole():
    logits, labels = logits_and_labels(6, 5)
    count = count_targets([{"labels": labels}])
    smoother = LabelSmoother(0.1)
    whole = smoother({"logits": logits}, labels)
    for size in (1, 2, 4):
        parts = [
            smoother({"logits": logits[at : at + size]}, labels[at : at + size], num_items_in_batch=count)
            for at in range(0, 6, size)
        ]
        assert torch.allclose(sum(parts), whole, atol=1e-6)


def test_the_factor_0_and_several_labels_per_row_are_not_smoothed():
    assert smoother_for(0.0, nn.Linear(2, 2)) is None
    with pytest.warns(UserWarning, match="Label smoothing is not compatible with multi-label classification"):
        assert smoother_for(0.1, bert(problem_type="multi_label_classification")) is None
    assert smoother_for(0.1, nn.Linear(2, 2)) == LabelSmoother(0.1)


def test_numbers_to_be_predicted_are_not_smoothed():
    with pytest.raises(ValueError, match="label_smoothing_factor: labels are torch.float32.*Give integers"):
        LabelSmoother(0.1)({"logits": torch.zeros(2, 1)}, torch.zeros(2))


def test_targets_of_a_window_are_counted_over_all_its_batches():
    first, second = torch.tensor([[1, 2, -100], [3, -100, -100]]), torch.tensor([[4, 5]])
    assert count_targets([{"labels": first}, {"labels": second}]).item() == 5
    assert count_targets([{"labels": first}], shift=True).item() == 1
    assert count_targets([{"labels": first, "shift_labels": first}], shift=True).item() == 3


@pytest.mark.parametrize(
    "batches", [[], [{"inputs": torch.ones(2)}], [{"labels": [{"boxes": torch.ones(4)}]}], [{"labels": "words"}]]
)
def test_what_cannot_be_counted_has_no_count(batches):
    assert count_targets(batches) is None


def test_labels_that_are_single_numbers_cannot_be_shifted_and_have_no_count():
    assert count_targets([{"labels": torch.tensor(1)}], shift=True) is None


def test_the_count_of_one_process_is_its_own():
    count = torch.tensor(12)
    device = torch.device("cpu")
    assert trainer_loss.global_count(None, device) is None
    assert trainer_loss.global_count(count, device).item() == 12


def test_each_replica_of_a_process_gets_a_row_of_the_count():
    device = torch.device("cpu")
    assert trainer_loss.global_count(torch.tensor(12), device, replicas=3).tolist() == [[12], [12], [12]]
    assert trainer_loss.global_count(torch.tensor(12), device, over_ranks=False, replicas=3).tolist() == [[4], [4], [4]]


class Plain(nn.Module):
    def forward(self, x):
        return x


class Open(nn.Module):
    def forward(self, x, **kwargs):
        return x


class Declared(Open):
    accepts_loss_kwargs = False


@pytest.mark.parametrize(
    ("build", "expected"), [(Plain, False), (Open, True), (Declared, False), (bert, True), (gpt2, True), (t5, True)]
)
def test_a_model_takes_the_count_by_what_it_declares_or_by_its_keywords(build, expected):
    assert trainer_loss.accepts_count(build()) is expected


@pytest.mark.parametrize(
    ("build", "expected"), [(Plain, False), (bert, False), (gpt2, True), (llama, True), (t5, False)]
)
def test_labels_are_shifted_for_smoothing_by_decoders_alone(build, expected):
    assert trainer_loss.smoother_shifts_labels(build()) is expected


@pytest.mark.parametrize("build", [bert, gpt2, llama, t5])
def test_first_labels_count_where_they_count_for_the_original(build, tmp_path):
    pytest.importorskip("accelerate")
    theirs = Trainer(build(), TrainingArguments(output_dir=str(tmp_path), use_cpu=True))
    assert trainer_loss.shifts_labels(theirs.model) is theirs._loss_shifts_labels
    assert trainer_loss.accepts_count(theirs.model) is theirs.model_accepts_loss_kwargs


def test_a_loss_that_is_a_plain_mean_although_it_is_told_the_count_is_known():
    assert trainer_loss.ignores_count(bert(num_labels=1))
    assert trainer_loss.ignores_count(bert(problem_type="regression", num_labels=3))
    assert trainer_loss.ignores_count(bert(problem_type="multi_label_classification"))
    assert trainer_loss.ignores_count(bert(num_labels=2)), "its forward calls a loss of torch itself"
    assert not trainer_loss.ignores_count(gpt2())
    assert not trainer_loss.ignores_count(Plain())


def test_the_loss_is_found_under_its_name_or_first():
    loss = torch.tensor(1.0)
    assert trainer_loss.loss_of({"loss": loss}, {}) is loss
    assert trainer_loss.loss_of(SequenceClassifierOutput(loss=loss), {}) is loss
    assert trainer_loss.loss_of((loss, None), {}) is loss


@pytest.mark.parametrize(
    ("inputs", "message"), [({"labels": 1}, "takes labels but computes no loss"), ({"x": 1}, "Give it labels")]
)
def test_an_output_without_a_loss_says_what_was_given_and_what_to_do(inputs, message):
    with pytest.raises(ValueError, match=f"did not return a loss from the inputs .*only: logits. .*{message}"):
        trainer_loss.loss_of(SequenceClassifierOutput(logits=torch.ones(1)), inputs)


@pytest.mark.parametrize(("outputs", "kind"), [(None, "NoneType"), (SimpleNamespace(loss=1), "SimpleNamespace")])
def test_an_output_in_which_no_loss_can_be_found_is_named(outputs, kind):
    with pytest.raises(TypeError, match=f"returned a {kind}, in which no loss can be found"):
        trainer_loss.loss_of(outputs, {})


def test_a_model_that_returns_one_tensor_of_many_numbers_has_no_loss() -> None:
    assert trainer_loss.loss_of(torch.tensor(0.5), {}) == 0.5
    with pytest.raises(ValueError, match=r"one tensor of shape \(4, 2\), which is not a loss"):
        trainer_loss.loss_of(torch.ones(4, 2), {})


class Documented:
    def compute_loss(self, model, inputs, return_outputs=False):
        return 1


class Current:
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return 1


class Anything:
    def compute_loss(self, model, inputs, **kwargs):
        return 1


class Bare:
    def compute_loss(self, model, inputs):
        return 1


@pytest.mark.parametrize(
    ("kind", "outputs", "count"),
    [(Documented, True, False), (Current, True, True), (Anything, True, True), (Bare, False, False)],
)
def test_an_override_is_given_what_it_takes(kind, outputs, count):
    shape = CallShape.of(kind().compute_loss)
    assert shape == CallShape(takes_return_outputs=outputs, takes_count=count)
    assert ("num_items_in_batch" in shape.extras(count=3)) is count


def test_an_override_that_cannot_return_outputs_is_told_how_when_they_are_wanted():
    with pytest.raises(ValueError, match="takes no return_outputs. Write `def compute_loss"):
        CallShape.of(Bare().compute_loss).extras(return_outputs=True)


def test_a_function_written_in_c_takes_nothing_extra():
    assert CallShape.of(dict.fromkeys) == CallShape(takes_return_outputs=False, takes_count=False)


def test_a_model_of_another_library_with_a_config_is_not_taken_for_a_decoder():
    odd = Plain()
    odd.config = SimpleNamespace(is_encoder_decoder=True)
    assert not trainer_loss.smoother_shifts_labels(odd)


class Swallows(nn.Module):
    def forward(self, x, labels=None, **kwargs):
        return {"loss": (x - labels).pow(2).mean()}


class Passes(Swallows):
    def forward(self, x, labels=None, **kwargs):
        return super().forward(x, labels, **kwargs)


class Divides(Swallows):
    def forward(self, x, labels=None, num_items_in_batch=None, **kwargs):
        return {"loss": (x - labels).pow(2).sum() / num_items_in_batch}


@pytest.mark.parametrize(("kind", "ignores"), [(Swallows, True), (Passes, False), (Divides, False)])
def test_a_model_that_takes_any_keyword_and_uses_none_gives_a_mean(kind, ignores):
    assert trainer_loss.ignores_count(kind()) is ignores
