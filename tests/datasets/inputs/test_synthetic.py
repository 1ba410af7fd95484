from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import SyntheticInput, walk, with_hosts


def make(**fields: Any) -> Any:
    return SyntheticInput.HParams(**{"batch_size": 4, "seq_len": 8, "vocab_size": 20, "is_training": True, **fields})


@pytest.mark.parametrize("pattern", ["cycle", "random", "constant"])
def test_tokens_are_in_the_vocabulary_and_none_is_padding(pattern: str) -> None:
    labels = make(pattern=pattern, batch_size=64).Instantiate().get_next().labels
    assert labels.min() >= 1
    assert labels.max() < 20
    assert (len(np.unique(labels)) == 1) is (pattern == "constant")


def test_a_cycle_can_be_learnt() -> None:
    labels = make(batch_size=64).Instantiate().get_next().labels
    steps = np.diff(labels, axis=1) % 19
    assert (steps == steps[:, :1]).all()
    assert set(np.unique(steps)) == {1, 2, 3}


def test_ids_are_labels_one_later() -> None:
    batch = make().Instantiate().get_next()
    assert (batch.ids[:, 1:] == batch.labels[:, :-1]).all()
    assert (batch.ids[:, 0] == 0).all()


def test_hosts_see_parts_of_the_same_global_batch() -> None:
    alone = make(batch_size=8).Instantiate()
    hosts = [with_hosts(make(), host, 2).Instantiate() for host in range(2)]
    for _ in range(3):
        together = np.concatenate([host.get_next().labels for host in hosts])
        assert (together == alone.get_next().labels).all()


def test_it_resumes_on_another_number_of_hosts() -> None:
    data = make().Instantiate()
    data.get_next()
    data.get_next()
    other = with_hosts(make(batch_size=2), 0, 2).Instantiate()
    other.set_state(data.get_state())
    assert (other.get_next().labels == data.get_next().labels[:2]).all()
    with pytest.raises(ValueError, match="not a whole number of global batches of 3"):
        make(batch_size=3).Instantiate().set_state({"rows": 8})


def test_an_epoch_ends_where_it_is_told_to() -> None:
    data = make(is_training=False, eval_window="full_epoch", num_batches=3).Instantiate()
    assert [len(list(walk(data, data.window))) for _ in range(2)] == [3, 3]
    with pytest.raises(ConfigError, match="data without end"):
        make(is_training=False, eval_window="full_epoch").Instantiate()


def test_shapes_are_known_without_a_batch() -> None:
    data = make(batch_padding_size=4).Instantiate()
    assert data.spec().Transform(tuple) == data.get_next_padded().Transform(lambda a: (a.shape, a.dtype))


@pytest.mark.parametrize("fields", [{"batch_size": None}, {"vocab_size": 1}, {"seq_len": 0}])
def test_rows_that_cannot_be_made_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make(**fields).Instantiate()
