from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import (
    Arrays,
    BaseInput,
    Characters,
    LanguageModelFeatures,
    Mixture,
    SeqIOInput,
    Task,
    register_task,
    walk,
    with_hosts,
)

GOLDENS = json.loads((Path(__file__).parent / "goldens_seqio.json").read_text())
LENGTHS = {"inputs": 6, "targets": 6}
Make = Callable[..., Any]

CONVERTERS: dict[str, dict[str, bool]] = {
    "unpacked": {},
    "unpacked_targets_only": {"weights_on_targets_only": True},
    "reverse_bos": {"reverse_bos_padding": True},
}
many_sizes = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def epoch(data: BaseInput) -> list[Any]:
    return list(walk(data, data.window))


def tokens(batches: list[Any], *, filling: bool = False) -> list[int]:
    """The first label of each row that weighs something."""
    labels = [batch.labels[batch.eval_sample_weights > (-1 if filling else 0)][:, 0] for batch in batches]
    return [int(label) for label in np.concatenate(labels)] if labels else []


def equal(first: Any, second: Any) -> bool:
    pairs = zip(first.FlattenItems(), second.FlattenItems(), strict=True)
    return all(a == b and np.array_equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("name", CONVERTERS)
def test_an_epoch_is_that_of_pax(name: str, toy_task: Task.HParams) -> None:
    converter = LanguageModelFeatures.HParams(**CONVERTERS[name])
    data = SeqIOInput(
        mixture_or_task=toy_task,
        batch_size=2,
        task_feature_lengths=LENGTHS,
        eval_window="full_epoch",
        feature_converter=converter,
    )
    for golden, batch in zip(GOLDENS[name], epoch(data), strict=True):
        found = {path.replace("provenance.", "_seqio_provenance/"): a.tolist() for path, a in batch.FlattenItems()}
        if converter.reverse_bos_padding:  # Pax marks the first target, too
            found["inputs_indicator"] = [[1, *row[:-1]] for row in found["inputs_indicator"]]
        assert found == golden


@many_sizes
@given(size=st.integers(1, 40), hosts=st.integers(1, 5), batch=st.integers(1, 5))
def test_hosts_share_an_epoch_without_overlap_and_stop_together(
    numbered: Make, size: int, hosts: int, batch: int
) -> None:
    p = numbered(size, batch_size=batch, eval_window="full_epoch")
    seen = [epoch(with_hosts(p, host, hosts).Instantiate()) for host in range(hosts)]
    assert {len(batches) for batches in seen} == {-(-size // (hosts * batch))}
    assert sorted(token for batches in seen for token in tokens(batches)) == list(range(1, size + 1))


@many_sizes
@given(size=st.integers(1, 40), hosts=st.integers(1, 4), batch=st.integers(1, 4), tokens_each=st.integers(1, 6))
def test_packed_hosts_share_an_epoch_too(numbered: Make, size: int, hosts: int, batch: int, tokens_each: int) -> None:
    p = numbered(size, pack=True, tokens=tokens_each, batch_size=batch, eval_window="full_epoch", packing_window=7)
    seen = [epoch(with_hosts(p, host, hosts).Instantiate()) for host in range(hosts)]
    assert len({len(batches) for batches in seen}) == 1
    found = [b.labels[(b.segment_pos == 0) & (b.weights > 0)] for batches in seen for b in batches]
    assert sorted(np.concatenate(found).tolist()) == list(range(1, size + 1))


@many_sizes
@given(size=st.integers(1, 30), hosts=st.integers(1, 4), batch=st.integers(1, 4), pack=st.booleans())
def test_the_global_batch_does_not_depend_on_the_number_of_hosts(
    numbered: Make, size: int, hosts: int, batch: int, pack: bool
) -> None:
    p = numbered(size, pack=pack, tokens=3, is_training=True, packing_window=5, input_random_seed=4)
    alone = p.clone().set(batch_size=batch * hosts).Instantiate()
    together = [with_hosts(p.clone().set(batch_size=batch), host, hosts).Instantiate() for host in range(hosts)]
    for _ in range(4):
        rows = np.concatenate([host.get_next().labels for host in together])
        assert np.array_equal(rows, alone.get_next().labels)


def test_training_sees_every_example_once_per_epoch_in_a_new_order(numbered: Make) -> None:
    data = numbered(12, batch_size=4, is_training=True).Instantiate()
    epochs = [tokens([data.get_next() for _ in range(3)]) for _ in range(3)]
    assert [sorted(seen) for seen in epochs] == [list(range(1, 13))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_training_without_repeating_leaves_out_what_fills_no_batch(numbered: Make) -> None:
    data = numbered(10, batch_size=4, is_training=True, repeat=False).Instantiate()
    assert len(tokens(list(data))) == 8
    assert data.batches_per_epoch == 2


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("at", [0, 1, 5, 11])
def test_a_restored_input_goes_on_exactly(numbered: Make, pack: bool, at: int) -> None:
    p = numbered(23, pack=pack, tokens=4, batch_size=3, is_training=True, input_random_seed=7, packing_window=6)
    whole = [batch for batch in islice(p.Instantiate(), 20)]
    first = p.Instantiate()
    for _ in range(at):
        first.get_next()
    state = json.loads(json.dumps(first.get_state()))
    again = p.Instantiate()
    again.set_state(state)
    assert all(equal(a, b) for a, b in zip(whole[at:], islice(again, 20 - at), strict=True))


@pytest.mark.parametrize("pack", [False, True])
def test_a_peek_shows_in_no_state(numbered: Make, pack: bool) -> None:
    p = numbered(23, pack=pack, tokens=4, batch_size=3, is_training=True, packing_window=6)
    data, plain = p.Instantiate(), p.Instantiate()
    data.get_next(), plain.get_next()
    peeked = data.peek_padded()
    assert data.get_state() == plain.get_state()
    again = p.Instantiate()
    again.set_state(data.get_state())
    wanted = plain.get_next()
    assert equal(peeked, wanted)
    assert equal(data.get_next(), wanted)
    assert equal(again.get_next(), wanted)
    assert data.get_state() == plain.get_state()


@pytest.mark.parametrize("pack", [False, True])
def test_another_number_of_hosts_goes_on_without_repeating_or_dropping(numbered: Make, pack: bool) -> None:
    p = numbered(60, pack=pack, tokens=3, is_training=True, repeat=not pack, packing_window=10, batch_size=2)
    before = [with_hosts(p, host, 3).Instantiate() for host in range(3)]
    seen = [row for _ in range(4) for data in before for row in data.get_next().labels.tolist()]
    states = [data.get_state() for data in before]
    assert states[0] == states[1] == states[2]
    after = [with_hosts(p.clone().set(batch_size=4), host, 2).Instantiate() for host in range(2)]
    for data in after:
        data.set_state(states[0])
    seen += [row for _ in range(2) for data in after for row in data.get_next().labels.tolist()]
    alone = p.clone().set(batch_size=8).Instantiate()
    assert seen == [row for _ in range(5) for row in alone.get_next().labels.tolist()]


@pytest.mark.parametrize(
    ("change", "told"),
    [({"input_random_seed": 8}, "seed=7"), ({"packing_window": 9}, "packing_window=6")],
)
def test_a_state_of_another_order_is_refused(numbered: Make, change: dict[str, Any], told: str) -> None:
    options = {"batch_size": 3, "is_training": True, "input_random_seed": 7, "packing_window": 6}
    state = numbered(23, pack=True, **options).Instantiate().get_state()
    with pytest.raises(ValueError, match=told):
        numbered(23, pack=True, **{**options, **change}).Instantiate().set_state(state)


def test_a_state_of_other_data_is_refused(numbered: Make) -> None:
    state = numbered(23, batch_size=3, is_training=True).Instantiate().get_state()
    with pytest.raises(ValueError, match=r"sizes=\[23\].*\[24\].*start a new job"):
        numbered(24, batch_size=3, is_training=True).Instantiate().set_state(state)


@pytest.mark.parametrize("columns", [{"targets": ["abc", "de", "f"]}, {"targets": [[1, 2, 3], [4, 5], [6]]}])
def test_examples_that_have_changed_since_a_state_was_taken_are_told(
    caplog: pytest.LogCaptureFixture, columns: dict[str, list[Any]]
) -> None:
    def state_and_input(given: dict[str, list[Any]]) -> tuple[dict[str, Any], SeqIOInput]:
        task = Task.HParams(
            name="poems", source=Arrays.HParams(columns=given), vocabulary=Characters.HParams(alphabet="abcdef")
        )
        data = SeqIOInput(mixture_or_task=task, batch_size=2, is_training=True, **_short())
        return json.loads(json.dumps(data.get_state())), data

    state, data = state_and_input(columns)
    data.set_state(state)
    data.set_state({name: value for name, value in state.items() if name != "digests"})  # of an older version
    assert "have changed" not in caplog.text
    first, *others = columns["targets"]
    _, edited = state_and_input({"targets": [first[::-1], *others]})
    edited.set_state(state)
    assert "the examples of poems have changed since the state was taken" in caplog.text


def test_a_state_of_something_else_is_refused(numbered: Make) -> None:
    data = numbered(23, batch_size=3, is_training=True).Instantiate()
    state = {**data.get_state(), "examples": "many"}
    with pytest.raises(ValueError, match="examples='many'"):
        data.set_state(state)


def test_training_can_begin_some_batches_later(numbered: Make) -> None:
    for pack in (False, True):
        p = numbered(23, pack=pack, tokens=3, batch_size=2, is_training=True, packing_window=6)
        late = p.clone().set(num_batches_to_skip=3).Instantiate()
        assert equal(late.get_next(), list(islice(p.Instantiate(), 4))[3])


def test_a_rolling_evaluation_goes_on_where_the_last_one_ended(numbered: Make) -> None:
    data = numbered(5, batch_size=1, eval_window="rolling(2)").Instantiate()
    assert [tokens(epoch(data)) for _ in range(4)] == [[1, 2], [3, 4], [5, 1], [2, 3]]


def test_an_evaluation_can_look_at_the_first_examples_only(numbered: Make) -> None:
    data = numbered(9, batch_size=2, eval_window="full_epoch", eval_num_examples=3).Instantiate()
    assert tokens(epoch(data)) == [1, 2, 3]


def test_an_evaluation_is_never_shuffled(numbered: Make) -> None:
    data = numbered(6, batch_size=2, eval_window="full_epoch", shuffle=True).Instantiate()
    assert tokens(epoch(data)) == [1, 2, 3, 4, 5, 6]


def test_rows_that_fill_a_packed_batch_are_empty(numbered: Make) -> None:
    data = numbered(3, pack=True, batch_size=4, eval_window="full_epoch").Instantiate()
    (batch,) = epoch(data)
    assert batch.eval_sample_weights.tolist() == [1, 1, 1, 0]
    assert batch.weights[3].sum() == 0


def test_data_without_a_single_token_end_in_an_error_and_not_in_a_loop() -> None:
    task = Task.HParams(name="void", source=Arrays.HParams(columns={"targets": [[], [], [0]]}), chunk=None)
    converter = LanguageModelFeatures.HParams(with_inputs=False, pack=True)
    options = {"batch_size": 1, "is_training": True, "feature_converter": converter}
    hollow = task.clone().set(preprocess=_emptied)
    data = SeqIOInput(mixture_or_task=hollow, task_feature_lengths={"targets": 4}, **options)
    with pytest.raises(ValueError, match="No example has a single token"):
        data.get_next()


def _emptied(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: column.cut(0) for name, column in columns.items()}


# ---- mixtures


def mixture(**fields: Any) -> Mixture.HParams:
    parts = {"few": [[11]] * 4, "many": [[22]] * 12}
    tasks = [Task.HParams(name=name, source=Arrays.HParams(columns={"targets": rows})) for name, rows in parts.items()]
    return Mixture.HParams(name="both", tasks=tuple(tasks), **fields)


@pytest.mark.parametrize(("rates", "share"), [((), 0.25), ((3.0, 1.0), 0.75)])
@pytest.mark.parametrize("pack", [False, True])
def test_a_mixture_draws_by_its_rates_or_by_sizes(rates: tuple[float, ...], share: float, pack: bool) -> None:
    converter = LanguageModelFeatures.HParams(with_inputs=False, pack=pack)
    data = SeqIOInput(
        mixture_or_task=mixture(rates=rates),
        batch_size=64,
        is_training=True,
        task_feature_lengths={"targets": 1},
        feature_converter=converter,
    )
    labels = np.concatenate([data.get_next().labels.ravel() for _ in range(64)])
    assert np.mean(labels == 11) == pytest.approx(share, abs=1e-9)


def test_tasks_of_a_mixture_share_their_vocabulary() -> None:
    def task(name: str, alphabet: str) -> Task.HParams:
        vocabulary = Characters.HParams(alphabet=alphabet)
        return Task.HParams(name=name, source=Arrays.HParams(columns={"targets": ["ab"]}), vocabulary=vocabulary)

    def first(*tasks: Task.HParams) -> Any:
        both = Mixture.HParams(name="both", tasks=tasks)
        return SeqIOInput(mixture_or_task=both, batch_size=2, is_training=True, **_short()).get_next()

    assert first(task("a", "abc"), task("b", "abc")).ids.shape == (2, 2)
    with pytest.raises(ConfigError, match="task b.vocabulary: differs from that of task 'a'"):
        first(task("a", "abc"), task("b", "cba"))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_no_frequency_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="each must be a finite number above 0"):
        SeqIOInput(mixture_or_task=mixture(rates=(rate, 1.0)), batch_size=2, is_training=True, **_short()).get_next()


@pytest.mark.parametrize(("rate", "told"), [(1e-5, True), (1e-3, False)])
def test_a_task_that_is_drawn_more_often_than_its_rate_is_told(
    rate: float, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = SeqIOInput(mixture_or_task=mixture(rates=(rate, 1.0)), batch_size=2, is_training=True, **_short())
    data.get_next()
    assert ("few is one example in 4,096, the minimum; by its rate" in caplog.text) == told


def test_a_mixture_has_no_end_and_is_not_evaluated_as_one() -> None:
    with pytest.raises(ConfigError, match="a mixture has no end. Evaluate each task by itself"):
        SeqIOInput(mixture_or_task=mixture(), batch_size=2, eval_window="full_epoch", **_short())


def _short() -> dict[str, Any]:
    return {
        "task_feature_lengths": {"targets": 2},
        "feature_converter": LanguageModelFeatures.HParams(with_inputs=False),
    }


def test_a_mixture_that_resumes_with_other_rates_says_so(caplog: pytest.LogCaptureFixture) -> None:
    before, same, other = (
        SeqIOInput(mixture_or_task=mixture(rates=rates), batch_size=2, is_training=True, **_short())
        for rates in ((1.0, 1.0), (2.0, 2.0), (1.0, 3.0))
    )
    before.get_next()
    state = {**before.get_state(), "seed": None}
    for data in (same, other):
        data.set_state({**state, "seed": data.get_state()["seed"]})
        assert ("with the rates [0.5, 0.5], this mixture has [0.25, 0.75]" in caplog.text) is (data is other)
    without = {name: value for name, value in other.get_state().items() if name != "rates"}
    same.set_state({**without, "seed": same.get_state()["seed"]})


def test_a_mixture_resumes_exactly() -> None:
    p = SeqIOInput.HParams(mixture_or_task=mixture(), batch_size=5, is_training=True, input_random_seed=3, **_short())
    whole = list(islice(p.Instantiate(), 9))
    data = p.Instantiate()
    data.set_state({"examples": 20, "sizes": [4, 12], "seed": 3})
    assert all(equal(a, b) for a, b in zip(whole[4:], islice(data, 5), strict=True))


# ---- what cannot work is refused before anything is read


def test_exactly_one_name_or_template_is_needed(toy_task: Task.HParams) -> None:
    for both in ({}, {"mixture_name": "toy", "mixture_or_task": toy_task}):
        with pytest.raises(ConfigError, match="exactly one of them"):
            SeqIOInput(batch_size=2, task_feature_lengths=LENGTHS, is_training=True, **both)


def test_a_registered_name_is_found_and_a_misspelt_one_offered(toy_task: Task.HParams) -> None:
    named = toy_task.clone().set(name="registered_toy", source=Arrays.HParams(columns={"inputs": np.ones((2, 2), int)}))
    named.source.columns["targets"] = named.source.columns["inputs"]
    assert register_task(named) == register_task(named)
    options = {"batch_size": 2, "task_feature_lengths": LENGTHS, "is_training": True}
    assert SeqIOInput(mixture_name="registered_toy", **options).get_next().ids.shape == (2, 12)
    with pytest.raises(ConfigError, match="Did you mean 'registered_toy'"):
        SeqIOInput(mixture_name="registered_toi", **options)
    with pytest.raises(ValueError, match="already"):
        register_task(Task.HParams(name="registered_toy"))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"batch_size": None}, "batch_size: is missing"),
        ({"task_feature_lengths": {"targets": 3}}, "has no inputs, only targets"),
        ({"repeat": True}, "would never end. Set repeat=False"),
        ({"eval_window": "rolling(2)", "repeat": False}, "Set repeat=True"),
        ({"eval_auto_pad": False, "drop_remainder": False}, "both False"),
        (
            {"is_training": True, "repeat": False, "drop_remainder": False},
            "drop_remainder: is False, but the remainder",
        ),
        ({"batch_size": 0}, "at least 1"),
        ({"num_infeed_hosts": 2, "infeed_host_index": 2}, "counts from 0 to 1"),
        ({"name": "a/b"}, "files get this name"),
    ],
)
def test_fields_that_cannot_work_are_refused(toy_task: Task.HParams, fields: dict[str, Any], told: str) -> None:
    options = {"batch_size": 2, "task_feature_lengths": LENGTHS, "eval_window": "full_epoch", **fields}
    with pytest.raises(ConfigError, match=told):
        SeqIOInput(mixture_or_task=toy_task, **options)


def test_a_task_that_scores_targets_must_weigh_targets_only(toy_task: Task.HParams) -> None:
    scored = toy_task.clone().set(score_metric_fns=(max,))
    options = {"batch_size": 2, "task_feature_lengths": LENGTHS, "eval_window": "full_epoch"}
    with pytest.raises(ConfigError, match="Set weights_on_targets_only=True"):
        SeqIOInput(mixture_or_task=scored, **options)
    SeqIOInput(
        mixture_or_task=scored,
        feature_converter=LanguageModelFeatures.HParams(weights_on_targets_only=True),
        **options,
    )


def test_what_is_too_long_is_refused_where_nothing_may_be_cut(toy_task: Task.HParams) -> None:
    p = SeqIOInput.HParams(
        mixture_or_task=toy_task, batch_size=5, task_feature_lengths={"inputs": 3, "targets": 6}, is_training=True
    )
    assert p.Instantiate().get_next().ids.shape == (5, 9)
    with pytest.raises(ConfigError, match="an example has 4 tokens, but 3 are allowed"):
        p.set(trim_output_features=False).Instantiate().get_next()


def test_shapes_are_known_without_data(toy_task: Task.HParams) -> None:
    p = SeqIOInput.HParams(
        mixture_or_task=toy_task,
        batch_size=2,
        batch_padding_size=2,
        task_feature_lengths=LENGTHS,
        eval_window="full_epoch",
    )
    elsewhere = p.clone()
    elsewhere.mixture_or_task.source = None
    batch = p.Instantiate().get_next_padded()
    spec = elsewhere.Instantiate().spec()
    assert spec.Transform(tuple) == batch.Transform(lambda array: (array.shape, array.dtype))
