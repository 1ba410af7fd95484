"""The engine with the language model, the task and the learner that experiments use."""

import jax
import numpy as np
import pytest

from tests.tiers import nightly
from xdpx.checkpoints import spmd_files
from xdpx.engines.spmd.engine import SpmdEngine, SpmdOptions
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.sharding import TRANSFORMER_RULES
from xdpx.optimizers.spmd.learner import Learner
from xdpx.optimizers.spmd.optimizers import Adam
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.tasks.spmd.train_fields import TrainHParams
from xdpx.utils.nested_map import NestedMap


def lm_task():
    lm = TransformerLm.HParams(
        vocab_size=64,
        model_dims=16,
        hidden_dims=32,
        num_layers=2,
        num_heads=4,
        stacked_transformer_tpl=StackedTransformerRepeated.HParams(),
    )
    adam = Adam.HParams(learning_rate=1e-2, ema_decay=0.9, clip_gradient_norm_to_value=5.0)
    train = TrainHParams(learner=Learner.HParams(optimizer=adam))
    return SingleTask(name="lm", model=LanguageModel.HParams(lm_tpl=lm), train=train)


def batch_of(toy, step):
    plain = toy.batch_of(step)
    ones = np.ones_like(plain["ids"])
    rows = len(ones)
    return NestedMap(
        plain,
        segment_ids=ones,
        segment_pos=np.arange(8, dtype=np.int32) * ones,
        eval_sample_weights=np.ones(rows, np.float32),
    )


@pytest.fixture(scope="module")
def engine_for(toy):
    spec = toy.spec_of(batch_of(toy, 0))

    def give(ici):
        mesh = make_mesh(ici, devices=jax.devices()[: int(np.prod(ici))])
        return SpmdEngine(lm_task(), mesh=mesh, rules=TRANSFORMER_RULES, options=SpmdOptions(), spec=spec)

    return give


def losses(engine, toy, state, steps):
    facts = []
    for step in steps:
        state, told = engine.update(state, [batch_of(toy, step)])
        facts.append(told)
    numbers = [engine.facts_to_host(told) for told in facts]
    return state, [each["loss_sum"] / each["count"] for each in numbers]


@pytest.mark.slow
@nightly("tests/engines/spmd/test_real_curves.py::test_losses_of_fifty_updates_are_those_of_one_device")
def test_a_language_model_trains_alike_on_one_device_and_eight_and_moves_between_them(engine_for, toy, tmp_path):
    one, eight = engine_for([1, 1, 1]), engine_for([2, 2, 2])
    state, expected = losses(one, toy, one.start(3), range(20))
    spread, found = losses(eight, toy, eight.start(3), range(20))
    assert found == pytest.approx(expected, rel=0, abs=1e-5)
    assert found[-1] < found[0] - 1
    table = spread["opt_state"]["ema"]["average"]["lm"]["softmax"]["emb_var"]
    assert {shard.data.shape for shard in table.addressable_shards} == {(32, 8)}
    path = spmd_files.save(spread, tmp_path, step=20)
    moved = spmd_files.restore(path, one.target)
    batch = batch_of(toy, 50)
    scores = [each.predictions_to_host(each.score(at, batch)) for each, at in ((one, moved), (eight, spread))]
    assert scores[0]["sum of total_loss"] == pytest.approx(scores[1]["sum of total_loss"], rel=1e-5)
    expected = losses(one, toy, state, range(20, 23))[1]
    assert losses(one, toy, moved, range(20, 23))[1] == pytest.approx(expected, rel=0, abs=1e-5)
    assert set(eight.compilations.values()) == {1}


# There, a job of the same model skips such an update, and its checkpoints before and after are compared.
@pytest.mark.slow
@nightly(
    "tests/experiments/running/test_training.py::test_an_update_that_is_no_number_is_skipped_counted_and_taken_again_from_its_file"
)
def test_a_gradient_that_is_no_number_changes_nothing_but_the_step(engine_for, toy):
    engine = engine_for([1, 1, 1])
    state, _ = losses(engine, toy, engine.start(3), range(2))
    before = jax.tree.map(np.array, state)
    broken = batch_of(toy, 3)
    broken.weights = np.full_like(broken.weights, np.inf)
    state, facts = engine.update(state, [broken])
    numbers = engine.facts_to_host(facts)
    assert (numbers["skipped"], numbers["is_valid_step"]) == (1, 0)
    for part in ("params", "opt_state", "non_trainable"):
        same = jax.tree.map(lambda new, old: np.array_equal(new, old), state[part], before[part])
        assert all(jax.tree.leaves(same))
