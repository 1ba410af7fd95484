from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import (
    Arrays,
    Characters,
    LanguageModelFeatures,
    Mixture,
    SeqIOInput,
    Task,
    eval_inputs_of_tasks,
    walk,
    with_hosts,
)

QUESTIONS = ["aa", "b", "ccc", "ab", "ba"]
ANSWERS = ["x", "yy", "x", "zz", "y"]


def accuracy(targets: list[Any], predictions: list[Any]) -> dict[str, float]:
    return {"accuracy": float(np.mean([a == b for a, b in zip(targets, predictions, strict=True)]))}


def mean_score(targets: list[Any], scores: list[Any]) -> dict[str, float]:
    return {"mean_score": float(np.mean(scores)), "longest": float(max(map(len, targets)))}


def task(**fields: Any) -> Task.HParams:
    options: dict[str, Any] = {"predict_metric_fns": (accuracy,), "score_metric_fns": (mean_score,), **fields}
    return Task.HParams(
        name=options.pop("name", "answers"),
        source=Arrays.HParams(columns={"inputs": QUESTIONS, "targets": ANSWERS}),
        vocabulary=Characters.HParams(alphabet="abcxyz"),
        **options,
    )


def template(**fields: Any) -> Any:
    return SeqIOInput.HParams(
        **{
            "mixture_or_task": task(),
            "batch_size": 2,
            "task_feature_lengths": {"inputs": 3, "targets": 1},
            "feature_converter": LanguageModelFeatures.HParams(weights_on_targets_only=True),
            "eval_window": "full_epoch",
            **fields,
        }
    )


def outputs_of(p: Any, hosts: int, answer: Any) -> list[tuple[str | None, Any]]:
    """What all hosts would send: a key and an answer per row, in a random order."""
    outputs: list[tuple[str | None, Any]] = []
    for host in range(hosts):
        data = with_hosts(p, host, hosts).Instantiate()
        for batch in walk(data, data.window):
            prompts = data.ids_to_strings(batch.labels, (batch.inputs_indicator == 1).sum(axis=1) - 1)
            outputs += [(key, answer(prompt)) for key, prompt in zip(data.row_keys(batch), prompts, strict=True)]
    random.Random(1).shuffle(outputs)
    return outputs


def right(prompt: str) -> dict[str, Any]:
    return {"decoded_substr": dict(zip(QUESTIONS, ANSWERS, strict=True))[prompt], "scores": len(prompt)}


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_answers_find_their_examples_in_any_order_and_from_any_host(hosts: int) -> None:
    p = template()
    judge = with_hosts(p, 0, hosts).Instantiate()
    outputs = outputs_of(p, hosts, right)
    assert judge.predict_metrics(outputs) == {"accuracy": 1.0}
    wrong = [(key, {"decoded_substr": "x"}) for key, _ in outputs]
    assert judge.predict_metrics(wrong) == {"accuracy": 0.4}


def test_targets_are_whole_however_little_the_model_saw() -> None:
    p = template()
    outputs = outputs_of(p, 2, right)
    found = with_hosts(p, 0, 2).Instantiate().score_metrics(outputs)
    assert found == {"mean_score": pytest.approx((2 + 1 + 3 + 2 + 2) / 5), "longest": 2.0}
    short = with_hosts(p.clone().set(eval_metrics_targets_length=1), 0, 2).Instantiate()
    assert short.score_metrics(outputs)["longest"] == 1.0


def test_a_missing_answer_is_an_error_and_not_a_better_score() -> None:
    data = template().Instantiate()
    outputs = outputs_of(template(), 1, right)
    missing = [(key, row) for key, row in outputs if key != "0/1/3"]
    with pytest.raises(ValueError, match="1 of 5 examples have no output, the first of them example 3"):
        data.predict_metrics(missing)


def test_part_of_the_data_is_judged_where_only_that_was_asked_for() -> None:
    p = template(eval_window="first(2)")
    outputs = [(key, row) for key, row in outputs_of(p, 1, right) if key is not None]
    assert len(outputs) == 4
    assert p.Instantiate().predict_metrics(outputs) == {"accuracy": 1.0}


def test_targets_and_answers_are_postprocessed_alike() -> None:
    def first_letter(text: str, *, example: dict[str, Any], is_target: bool) -> str:
        assert example["targets"] in ANSWERS
        return text[0] if is_target else text[0].lower()

    p = template(mixture_or_task=task(postprocess=first_letter))
    shouted = outputs_of(p, 1, lambda prompt: {"decoded_substr": right(prompt)["decoded_substr"].upper()})
    assert p.Instantiate().predict_metrics(shouted) == {"accuracy": 1.0}


def test_an_answer_may_come_alone_or_under_another_name() -> None:
    data = template().Instantiate()
    alone = outputs_of(template(), 1, lambda prompt: right(prompt)["decoded_substr"])
    assert data.predict_metrics(alone) == {"accuracy": 1.0}
    with pytest.raises(ConfigError, match="eval_metrics_score: is 'scores'; a row has decoded_substr"):
        data.score_metrics([(key, {"decoded_substr": ""}) for key, _ in alone])


def test_a_task_without_metric_functions_has_none() -> None:
    p = template(mixture_or_task=task(predict_metric_fns=(), score_metric_fns=()))
    data = p.Instantiate()
    assert (data.has_predict_metrics, data.has_score_metrics) == (False, False)
    assert data.predict_metrics([]) == {}


def test_packed_rows_belong_to_nobody() -> None:
    packed = LanguageModelFeatures.HParams(weights_on_targets_only=True, pack=True)
    data = template(feature_converter=packed).Instantiate()
    with pytest.raises(ValueError, match="does not map each of its rows to one example"):
        data.row_keys(data.get_next())
    with pytest.raises(ConfigError, match="Set pack=False"):
        data.predict_metrics([])


def test_each_task_of_a_mixture_is_evaluated_by_itself() -> None:
    tasks = (
        task(),
        task(name="scored", predict_metric_fns=()),
        task(name="plain", predict_metric_fns=(), score_metric_fns=()),
    )
    p = template(
        mixture_or_task=Mixture.HParams(name="all", tasks=tasks),
        is_training=True,
        eval_window=None,
        task_feature_lengths={"inputs": 3, "targets": 4},
    )
    predicted = eval_inputs_of_tasks(p, "predict")
    scored = eval_inputs_of_tasks(p, "score")
    assert [made.name for made in predicted] == ["answers_predict"]
    assert [made.name for made in scored] == ["answers_score", "scored_score"]
    assert predicted[0].task_feature_lengths == {"inputs": 3, "targets": 1}
    assert predicted[0].eval_metrics_targets_length == 4
    assert scored[0].task_feature_lengths == {"inputs": 3, "targets": 4}
    assert [made.name for made in eval_inputs_of_tasks(p, "score", names=["scored"])] == ["scored_score"]
    data = predicted[0].Instantiate()
    assert len(list(walk(data, data.window))) == 3
