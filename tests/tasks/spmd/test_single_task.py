import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.hparams import sub_config_field
from xdpx.engines.spmd.steps import sums_of, tracing_step
from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.base_model import BaseModel
from xdpx.models.spmd.decoding.sampling import SampleDecoder
from xdpx.optimizers.spmd.learner import Learner
from xdpx.optimizers.spmd.optimizers import Sgd
from xdpx.tasks.spmd.aggregating import MultiLossAggregator
from xdpx.tasks.spmd.early_stopping import TargetReached, is_enough
from xdpx.tasks.spmd.metrics import BaseMetrics, Totals, final_of, weighted_sums, with_counts
from xdpx.tasks.spmd.noise import VariationalNoise
from xdpx.tasks.spmd.single_task import InferHParams, SingleTask
from xdpx.tasks.spmd.train_fields import TrainHParams, duration

KEY = jax.random.key(0)
BATCH = {"x": jnp.arange(6.0).reshape(3, 2), "y": jnp.ones(3)}


class Line(BaseModel):
    """y = x w, with a loss of its own."""

    aux: float = 0.0

    def setup(self) -> None:
        self.create_variable("w", Weight((2,), axes=("embed",)))
        self.create_variable("seen", Weight((), trainable=False))

    def compute_predictions(self, batch: Any) -> Any:
        self.add_summary("w_mean", jnp.mean(self.theta.w))
        self.add_aux_loss("pull", jnp.float32(self.aux))
        if not self.do_eval:
            self.update_var("seen", self.get_var("seen") + 1)
        return batch["x"] @ self.theta.w

    def compute_loss(self, predictions: Any, batch: Any) -> Any:
        errors = predictions - batch["y"]
        metrics = {"total_loss": (jnp.mean(errors**2), 3.0), "size": (jnp.mean(jnp.abs(predictions)), 3.0)}
        return metrics, {"errors": errors}

    def decode(self, batch: Any) -> Any:
        return {"n": (1.0, 3.0)}, {}, self.compute_predictions(batch) + jax.random.normal(self.next_prng_key(), (3,))

    def process_decode_out(self, batch: Any, out: Any) -> Any:
        return {}, [(str(index), {"value": float(value)}) for index, value in enumerate(out)]


def build(**fields: Any) -> SingleTask:
    model = Line.HParams(aux=fields.pop("aux", 0.0))
    train = TrainHParams(learner=Learner.HParams(optimizer=Sgd.HParams(learning_rate=0.1)))
    return SingleTask(**{"name": "line", "model": model, "train": train, **fields})


def variables(task: SingleTask) -> Any:
    boxed = task.init(KEY, BATCH)
    return jax.tree.map(
        lambda leaf: leaf.value if hasattr(leaf, "value") else leaf, boxed, is_leaf=lambda leaf: hasattr(leaf, "value")
    )


def test_the_loss_is_a_sum_over_a_count_and_metrics_are_sums() -> None:
    task = build()
    values = variables(task)
    loss, count, out = task.train_loss(values, BATCH, KEY)
    errors = BATCH["x"] @ values["params"]["w"] - 1
    assert float(loss / count) == pytest.approx(float(jnp.mean(errors**2)), rel=1e-5)
    total, weight = out.metrics["total_loss"]
    assert (float(total), float(weight)) == pytest.approx((float(loss), 3.0))
    assert float(out.summaries["w_mean"]) == pytest.approx(float(jnp.mean(values["params"]["w"])))


def test_losses_of_layers_are_added() -> None:
    values = variables(build())
    plain, with_aux = (build(aux=aux).train_loss(values, BATCH, KEY) for aux in (0.0, 0.5))
    assert float(with_aux[0] - plain[0]) == pytest.approx(0.5 * 3, rel=1e-5)
    assert float(with_aux[2].metrics["aux_loss"][0]) == 0.5
    added = with_aux[2].metrics["total_loss"][0] - plain[2].metrics["total_loss"][0]
    assert float(added) == pytest.approx(1.5, rel=1e-5)


def test_training_changes_what_is_not_trainable_and_evaluating_does_not() -> None:
    task = build()
    values = variables(task)
    before = float(values["non_trainable"]["seen"])
    after = task.train_loss(values, BATCH, KEY)[2].non_trainable["seen"]
    assert float(after) == pytest.approx(before + 1)
    metrics, per_example, _ = task.eval_metrics(values, BATCH)
    assert per_example["errors"].shape == (3,)
    assert float(metrics["size"][1]) == 3.0


def test_predictions_and_decodings_come_from_the_model() -> None:
    task = build()
    values = variables(task)
    np.testing.assert_allclose(task.predict(values, BATCH), BATCH["x"] @ values["params"]["w"], rtol=1e-5)
    _, _, first = task.decode(values, BATCH, KEY)
    _, _, second = task.decode(values, BATCH, jax.random.key(1))
    assert not np.allclose(first, second)
    assert [key for key, _ in task.process_decode_out(BATCH, first)[1]] == ["0", "1", "2"]


def test_decodings_returned_as_in_pax_are_refused() -> None:
    class Swapped(Line):
        def decode(self, batch: Any) -> Any:
            metrics, per_example, out = super().decode(batch)
            return metrics, out, per_example

        def process_decode_out(self, batch: Any, out: Any) -> Any:
            return *super().process_decode_out(batch, out), {}

    task = build()
    values, other = variables(task), SingleTask(name="line", model=Swapped.HParams(), train=task.hparams.train)
    with pytest.raises(ConfigError, match="returns no decoded output as the third part"):
        other.decode(values, BATCH, KEY)
    with pytest.raises(ConfigError, match="process_decode_out' returns a tuple of dict, list, dict"):
        other.process_decode_out(BATCH, jnp.ones(3))


def test_several_losses_are_minimised_together() -> None:
    train = TrainHParams(learner=Learner.HParams(loss_name=None))
    both = MultiLossAggregator.HParams(loss_keys=["total_loss", "size"], loss_weights=[1.0, 2.0])
    task = build(train=train, loss_aggregator=both)
    values = variables(task)
    loss, count, out = task.train_loss(values, BATCH, KEY)
    parts = out.metrics
    assert float(loss) == pytest.approx(float(parts["total_loss"][0] + 2 * parts["size"][0]), rel=1e-5)


def test_what_is_minimised_is_said_once_and_exists() -> None:
    both = MultiLossAggregator.HParams(loss_keys=["total_loss"])
    with pytest.raises(ValueError, match="loss_aggregator decides"):
        build(loss_aggregator=both)
    with pytest.raises(ValueError, match="give one for each"):
        MultiLossAggregator(loss_keys=["a"], loss_weights=[1.0, 2.0])
    task = build(train=TrainHParams(learner=Learner.HParams(loss_name="total_los")))
    with pytest.raises(ValueError, match="Did you mean 'total_loss'"):
        task.train_loss(variables(task), BATCH, KEY)
    with pytest.raises(ValueError, match="template of a model"):
        SingleTask(name="none")


def test_noise_is_on_the_weights_that_are_named_and_only_while_training() -> None:
    noisy, plain = build(vn=VariationalNoise(vn_scale=0.5, vn_regex="w$")), build()
    values = variables(plain)
    assert float(noisy.train_loss(values, BATCH, KEY)[0]) != float(plain.train_loss(values, BATCH, KEY)[0])
    np.testing.assert_array_equal(noisy.predict(values, BATCH), plain.predict(values, BATCH))
    again = noisy.train_loss(values, BATCH, KEY)[0]
    assert float(again) == float(noisy.train_loss(values, BATCH, KEY)[0])
    with pytest.raises(ValueError, match="matches no name of a weight"):
        build(vn=VariationalNoise(vn_scale=0.5, vn_regex="softmax")).train_loss(values, BATCH, KEY)


def test_noise_begins_at_its_step() -> None:
    late, plain = build(vn=VariationalNoise(vn_scale=0.5, vn_regex="w", vn_start_step=5)), build()
    values = variables(plain)
    losses = []
    for step in (4, 5):
        with tracing_step(jnp.int32(step)):
            losses.append(float(late.train_loss(values, BATCH, KEY)[0]))
    assert losses[0] == pytest.approx(float(plain.train_loss(values, BATCH, KEY)[0]))
    assert losses[1] != pytest.approx(losses[0])


def test_a_run_stops_when_its_target_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    stop = TargetReached(metric="log_pplx", target=2.69)
    assert stop({"eval_test_c4/log_pplx": 2.6}, "eval", 7, False, "")
    assert not stop({"eval_test_c4/log_pplx": 2.7}, "eval", 7, False, "")
    assert not stop({"eval_train/log_pplx": 2.0}, "eval", 7, False, "")  # what is trained on proves nothing
    assert "stops nothing. There are: eval_train/log_pplx" in capsys.readouterr().err
    assert TargetReached(metric="eval_test_c4/accuracy", target=0.9, higher_is_better=True)(
        {"eval_test_c4/accuracy": 0.95}, "decode", 7, True, ""
    )


def test_means_are_over_all_batches_by_weight() -> None:
    totals = Totals()
    totals.add({"sum of loss": 6.0, "weight of loss": 2.0, "num_tokens": 9.0})
    totals.add({"sum of loss": 1.0, "weight of loss": 6.0})
    assert BaseMetrics().final(totals.by_name()) == {"loss": 7 / 8}
    assert totals.weights() == {"loss": 8.0}


def test_a_mean_of_nothing_in_one_batch_leaves_the_mean_of_all() -> None:
    totals = Totals()
    for metrics in ({"recall": (jnp.nan, 0.0)}, {"recall": (0.5, 2.0)}):
        totals.add(sums_of(weighted_sums(metrics)))
    assert BaseMetrics().final(totals.by_name()) == {"recall": 0.5}


def test_what_counts_is_summed_over_a_split_and_other_metrics_are_averaged() -> None:
    totals = Totals()
    for count in (4.0, 1.0):
        totals.add(sums_of(weighted_sums({"num_decoded": (count, 1.0), "aux_loss": (count, 1.0)})))
    assert BaseMetrics().final(with_counts(totals.by_name())) == {"num_decoded": 5.0, "aux_loss": 2.5}


def test_a_metric_may_be_called_as_the_weight_of_another() -> None:
    totals = Totals()
    totals.add(sums_of({"kl": (14.0, 2.0), "kl_weight": (0.5, 1.0)}))
    assert BaseMetrics().final(totals.by_name()) == {"kl": 7.0, "kl_weight": 0.5}


@pytest.mark.parametrize(("text", "hours"), [("12h", 12), ("1d12h", 36), ("90m", 1.5)])
def test_lengths_of_time_are_read(text: str, hours: float) -> None:
    assert duration(text).total_seconds() == hours * 3600


def test_what_is_no_length_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match="Write numbers with s, m, h, d or w"):
        duration("12 hours")


def test_fields_of_training_that_cannot_be_are_refused_together() -> None:
    bad = {"num_train_steps": -5, "accumulate_batches": 0, "save_keep_interval_duration": "12", "save_max_to_keep": -1}
    bad |= {"summary_accumulate_interval_steps": 10, "eval_interval_steps": -1, "decode_interval_steps": -100}
    train = TrainHParams(**bad, matmul_precision="fast", eval_use_ema_states=True)
    with pytest.raises(ConfigError) as refused:
        build(train=train, infer=InferHParams(output_num_shards=0))
    wanted = {"infer.output_num_shards", *(f"train.{name}" for name in train.given())}
    assert {fault.key for fault in refused.value.faults} == wanted
    averaging = Learner.HParams(optimizer=Sgd.HParams(learning_rate=0.1, ema_decay=0.9))
    build(train=TrainHParams(learner=averaging, eval_use_ema_states=True, matmul_precision="highest"))


class NoModel(BaseLayer):
    """Has what a model has, but is none."""

    def compute_predictions(self, batch: Any) -> Any:
        return batch["x"]


class Silent(BaseModel):
    """Predicts, and compares nothing."""

    def compute_predictions(self, batch: Any) -> Any:
        return batch["x"]


@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (({"total_loss": 1.0}, {}), "gave for 'total_loss' no pair of single numbers"),
        (({"total_loss": (np.ones(3), np.ones(3))}, {}), "gave for 'total_loss' no pair of single numbers"),
        (({"total_loss": (1.0, 3.0)}, [2.0]), "gave a list as the values per row, which have no names"),
        ({"total_loss": (1.0, 3.0)}, "gave a dict, which is not a pair of mappings"),
    ],
)
def test_what_is_no_loss_is_named(gives: Any, told: str) -> None:
    class Odd(Line):
        def compute_loss(self, predictions: Any, batch: Any) -> Any:
            return gives

    task = build(model=Odd.HParams())
    with pytest.raises(ConfigError, match=rf"Odd.compute_loss: {told}. Return \("):
        task.train_loss(variables(task), BATCH, KEY)


def test_a_decoder_with_wrong_fields_is_refused_before_training() -> None:
    class Saying(Line):
        decoder_tpl: Any = sub_config_field(SampleDecoder.HParams, temperature=-1.0)

        def decoder_template(self) -> Any:
            return self.decoder_tpl

    with pytest.raises(ConfigError, match=r"SampleDecoder.temperature: is -1.0"):
        build(model=Saying.HParams())


def test_what_a_model_does_not_define_is_named() -> None:
    with pytest.raises(ConfigError, match=r"line.model: is None"):
        build(model=None)
    with pytest.raises(ConfigError, match=r"'NoModel' has no __call__\(\). Derive it from .*BaseModel"):
        build(model=NoModel.HParams())
    task = build(model=Silent.HParams())
    with pytest.raises(ConfigError, match=r"'Silent' does not define compute_loss\(\)"):
        task.init(KEY, BATCH)
    with pytest.raises(ConfigError, match=r"'Silent' does not define decode\(\)"):
        task.decode({"params": {}}, BATCH, KEY)


class Unpaired(BaseMetrics):
    """Metrics that return what they should not."""

    def of_batch(self, metrics: Any, per_example: Any, batch: object) -> Any:
        return {**metrics, "mae": per_example["errors"]}

    def final(self, totals: Any) -> Any:
        return dict.fromkeys(totals, "good")


def test_metrics_of_a_user_that_return_something_else_are_refused() -> None:
    task = build(metrics=Unpaired.HParams())
    with pytest.raises(ConfigError, match=r"'Unpaired.of_batch' returns no pair of single numbers for 'mae'"):
        task.eval_metrics(variables(task), BATCH)
    with pytest.raises(ConfigError, match=r"'Unpaired.final' returns {'mae': 'good'}. Return {name: number}"):
        final_of(task.metrics, {"mae": (1.0, 2.0)})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"metrics": Unpaired}, "line.metrics: is the class Unpaired. Derive the class from BaseMetrics, and give its"),
        ({"early_stopping_fn": lambda metrics: True}, "line.early_stopping_fn: cannot be called: too many positional"),
        (
            {"early_stopping_fn": TargetReached},
            "line.early_stopping_fn: is the class TargetReached. Give a function of",
        ),
    ],
)
def test_parts_of_a_task_of_another_kind_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        build(**fields)


def test_plain_optax_transformations_and_numbers_are_refused_as_optimizer_and_schedule() -> None:
    for optimizer in (optax.sgd(0.1), Sgd):
        with pytest.raises(ConfigError, match=r"learner.optimizer: is .*OptaxOptimizer.HParams\(grad_tx="):
            Learner(optimizer=optimizer)
    with pytest.raises(ConfigError, match=r"Sgd.lr_schedule: is 0.5. Give the template of a schedule"):
        Sgd(learning_rate=0.1, lr_schedule=0.5)
    halved = Sgd(learning_rate=0.1, lr_schedule=optax.constant_schedule(0.5))
    assert float(halved.get_learning_rate(3)) == pytest.approx(0.05)


def test_an_answer_of_early_stopping_is_yes_or_no() -> None:
    answers = [is_enough(lambda *_, answer=answer: answer, {}, "eval", 1, last=False, path="")
               for answer in (None, True, np.bool_(False), jnp.asarray(True))]  # fmt: skip
    assert answers == [False, True, False, True]
    for wrong in ("no", np.array([False, True])):
        with pytest.raises(ConfigError, match="early_stopping_fn: returns"):
            is_enough(lambda *_, answer=wrong: answer, {}, "eval", 1, last=False, path="")
