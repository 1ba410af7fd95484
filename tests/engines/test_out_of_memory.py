"""Memory that runs out, for real where it costs nothing, else by torch's own error from a hook in the model."""

import gc
import itertools

import numpy as np
import pytest
import torch

from tests.tiers import some
from xdpx.engines.base import OutOfMemory
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.engines.pytorch.out_of_memory import is_out_of_memory, joined
from xdpx.engines.pytorch.transfer import to_device
from xdpx.losses import losses
from xdpx.models import models
from xdpx.optimizers import optimizers
from xdpx.processors import processors
from xdpx.processors.samples import Samples
from xdpx.tasks import tasks

WORDS = {"vocab_size": 40, "num_classes": 3}
SIZES = {"embedding_dim": 6, "hidden_size": 8, "encoder_layers": 1, "dropout": 0.0, "pretrained_embeddings": False}
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="module")
def _nothing_to_traverse():
    """Every shortage collects garbage: what other tests have left in this process need not be traversed."""
    gc.freeze()


def batch(rows):
    tokens = RANDOM.integers(1, 40, (rows, 7))
    mask = np.arange(7) < RANDOM.integers(3, 8, rows)[:, None]
    net_input = {"tokens": np.where(mask, tokens, 0), "mask": mask}
    return {"id": np.arange(rows), "net_input": net_input, "target": tokens[:, 0] % 3, "ntokens": int(mask.sum())}


BATCHES = [batch(16) for _ in range(6)]


def split(rows, parts):
    kind = processors["single"]
    return kind(kind.Parameters(max_len=8, pad_index=0)).split(rows, parts)


def engine(cut=split, **options):
    def task():
        kind, loss, model = tasks["default"], losses["cross_entropy"], models["cls_cnn"]
        keys = {key: value for key, value in SIZES.items() if key in model.Parameters.model_fields}
        network = model(model.Parameters(**WORDS, **keys))
        parameters = kind.Parameters(model="cls_cnn", loss="cross_entropy")
        return kind(parameters, model=network, loss=loss(loss.Parameters()))

    rule = optimizers["adam"]
    return PyTorchEngine(
        task,
        # With its usual epsilon, Adam turns the rounding of a gradient close to zero into a whole step.
        make_optimizer=lambda model: rule(rule.Parameters(adam_eps=1e-2), groups=model.parameter_groups(0.05)),
        options=EngineOptions(device="cpu", clip_norm=1.0, **options),
        split=cut,
    )


def run_out(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def run_out_on_a_cpu(*_):
    torch.empty(1 << 60, dtype=torch.uint8)


def limit(model, most, *, backward=False, fail=run_out):
    """Let the model have memory for batches of `most` rows only."""
    top = model.prediction
    if backward:
        top.register_full_backward_hook(lambda module, into, out: fail() if len(out[0]) > most else None)
    else:
        top.register_forward_pre_hook(lambda module, args: fail() if len(args[0]) > most else None)


def train(chosen, state, updates, update_freq=1):
    facts = {}
    for number in updates:
        state, facts = chosen.update(state, BATCHES[number * update_freq : (number + 1) * update_freq])
    return chosen.weights(state), chosen.facts_to_host(facts)


def close(first, second):
    return all(torch.allclose(value, second[name], rtol=0, atol=1e-6) for name, value in first.items())


CASES = list(itertools.product([1.0, 0.9], [False, True], [run_out, run_out_on_a_cpu]))


@pytest.mark.parametrize(
    ("ema_decay", "backward", "fail"), some(CASES, [(1.0, False, run_out), (0.9, True, run_out_on_a_cpu)])
)
def test_the_update_that_failed_is_taken_in_parts_and_is_the_same(ema_decay, backward, fail):
    ample, scarce = engine(ema_decay=ema_decay), engine(ema_decay=ema_decay)
    state = scarce.start(1)
    limit(state.task.model, 4, backward=backward, fail=fail)
    found, facts = train(scarce, state, range(3), update_freq=2)
    wanted, wanted_facts = train(ample, ample.start(1), range(3), update_freq=2)
    assert close(found, wanted)
    assert facts == pytest.approx(wanted_facts, rel=1e-5)
    assert (state.update_parts, state.num_updates) == (4, 3)


def test_training_in_parts_is_bit_for_bit_what_smaller_batches_accumulated_give():
    scarce, small = engine(), engine()
    state, other = scarce.start(1), small.start(1)
    limit(state.task.model, 8)
    for rows in BATCHES:
        scarce.update(state, [rows])
        small.update(other, split(rows, 2))
    assert all(torch.equal(value, small.weights(other)[name]) for name, value in scarce.weights(state).items())


def test_a_resumed_run_begins_with_the_parts_that_fitted(capsys):
    first, second = engine(), engine()
    state = first.start(1)
    limit(state.task.model, 4)
    train(first, state, range(2))
    saved = first.snapshot(state)
    wanted, _ = train(first, state, range(2, 5))
    capsys.readouterr()
    found, _ = train(second, second.restore(saved), range(2, 5))
    assert all(torch.equal(value, found[name]) for name, value in wanted.items())
    assert "memory" not in capsys.readouterr().err


def test_a_run_resumed_without_splitting_takes_whole_batches_again():
    chosen = engine()
    state = chosen.start(1)
    limit(state.task.model, 4)
    train(chosen, state, range(1))
    assert engine(cut=None).restore(chosen.snapshot(state)).update_parts == 1


def test_it_is_said_once(capsys):
    chosen = engine()
    state = chosen.start(1)
    limit(state.task.model, 8)
    train(chosen, state, range(3))
    assert (
        capsys.readouterr().err.count("memory ran out in update 1: from now on each batch is split into 2 parts") == 1
    )


def test_scoring_that_fails_is_done_in_parts_and_gives_the_same():
    ample, scarce = engine(), engine()
    state = scarce.start(1)
    limit(state.task.model, 3)
    found = scarce.predictions_to_host(scarce.score(state, BATCHES[0]))
    wanted = ample.predictions_to_host(ample.score(ample.start(1), BATCHES[0]))
    assert found.keys() == wanted.keys()
    assert all(np.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    assert (state.score_parts, state.update_parts) == (8, 1)


def test_without_splitting_the_error_says_what_helps():
    chosen = engine(cut=None)
    state = chosen.start(1)
    limit(state.task.model, 8)
    remedies = "update 1: set auto_ga: true, or lower batch_size and raise update_freq .* max_len"
    with pytest.raises(OutOfMemory, match=remedies) as caught:
        chosen.update(state, BATCHES[:1])
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert state.num_updates == 0


def test_a_batch_is_halved_six_times_at_most():
    chosen = engine()
    state = chosen.start(1)
    sizes = []
    top = state.task.model.prediction
    top.register_forward_pre_hook(lambda module, args: (sizes.append(len(args[0])), run_out()))
    with pytest.raises(OutOfMemory, match="although each batch was split into 64 parts"):
        chosen.update(state, [batch(512)])
    assert sizes == [512, 256, 128, 64, 32, 16, 8]


def test_a_single_row_is_not_halved():
    chosen = engine()
    state = chosen.start(1)
    limit(state.task.model, 0)
    with pytest.raises(OutOfMemory, match="split into 4 parts"):
        chosen.update(state, [batch(3)])


def test_when_the_optimizer_has_no_memory_smaller_batches_are_not_advised():
    chosen = engine()
    state = chosen.start(1)
    before = chosen.weights(state)
    state.optimizer.register_step_pre_hook(run_out)
    with pytest.raises(OutOfMemory, match="for the optimizer, which a smaller batch_size would not change"):
        chosen.update(state, BATCHES[:1])
    assert all(torch.equal(value, before[name]) for name, value in chosen.weights(state).items())


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert is_out_of_memory(MemoryError())
    chosen = engine()
    state = chosen.start(1)
    with pytest.raises(ValueError, match=r"returns \(16, 3\) for 3 rows"):
        chosen.update(state, [{**BATCHES[0], "target": BATCHES[0]["target"][:3]}])


def test_the_parts_of_a_masked_batch_have_its_loss_and_its_scores():
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    marks = {"pad_index": 0, "cls_index": 1, "sep_index": 2, "mask_index": 3}
    kind, model, loss = processors["bert_lm"], models["bert_lm"], losses["masked_lm"]
    processor = kind(kind.Parameters(max_len=16, vocab_size=40, mask_whole_words=False, **marks))
    network = model(model.Parameters(pretrained_model=None, vocab_size=40, max_position_embeddings=16, **sizes)).eval()
    blocks = [RANDOM.integers(5, 40, length).tolist() for length in (1, 4, 14, 2, 9, 7)]
    rows = [processor.numerize({"tokens": block}, None) for block in blocks]
    whole = processor.collate(Samples.from_dicts(rows, processor.columns(labelled=False)), epoch=1, training=True)
    measure, host = loss(loss.Parameters()), torch.device("cpu")
    found = []
    for parts in (1, 2, 4, 64):
        with torch.inference_mode():
            cut = [measure.predictions(network, to_device(part, host)) for part in processor.split(whole, parts)]
        found.append({name: float(value) for name, value in joined(cut).items()})
    assert found[0]["count"] == len(whole["target"])
    assert all(other == pytest.approx(found[0], rel=1e-6) for other in found[1:])
