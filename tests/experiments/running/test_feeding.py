from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.running.feeding import OTHER_SHAPES, OUT_OF_DATA, Feed
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import build_parts
from xdpx.training.loop import Interrupted
from xdpx.utils.pulse import pulse


def test_a_place_that_an_input_does_not_know_is_a_fault_of_the_request(tiny: ModuleType, tmp_path: Path) -> None:
    class Grown(tiny.Characters):  # type: ignore[name-defined, misc]
        def set_state(self, state: Mapping[str, Any]) -> None:
            raise ValueError("the data grew")

    class Growing(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [Grown.HParams(name="train", batch_size=4, is_training=True)]

    feed = Feed(build_parts(Growing(), options_of(tmp_path / "job", {})))
    with pytest.raises(ConfigError, match="train: its position in checkpoint_5 does not fit: the data grew"):
        feed.restore("checkpoint_5", {"train": {"next": 3}})


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_of_an_update_that_was_not_taken_are_read_again(
    tiny: ModuleType, tmp_path: Path, prefetch: int
) -> None:
    class Cut(tiny.Characters):  # type: ignore[name-defined, misc]
        at = 6

        def get_next(self) -> Any:
            batch = super().get_next()
            if self.get_state() == {"next": self.at}:
                raise Interrupted
            return batch

    class Cuts(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [Cut.HParams(name="train", batch_size=4, is_training=True, prefetch=prefetch)]

    parts = build_parts(Cuts(BATCHES=2), options_of(tmp_path / "job", {}))
    feed = Feed(parts)
    groups = feed.groups(0)
    assert [next(groups)[0].group, next(groups)[0].group] == [1, 2]
    assert feed.state(1) == {"train": {"__from__": {"next": 0}, "__batches__": 2}}  # a signal came before update 2
    assert feed.state(2) == {"train": {"next": 4}}
    with pytest.raises(Interrupted):
        next(groups)
    assert feed.state(2) == {"train": {"next": 4}}
    feed.close()
    Cut.at = -1
    expected, started = Cut(feed.data.hparams), Feed(parts)
    expected.set_state({"next": 6})
    place = {"__from__": {"__from__": {"next": 2}, "__batches__": 1}, "__batches__": 3}
    started.restore("checkpoint_3", {"train": place})
    assert next(started.groups(3))[1][0].ids.tolist() == expected.get_next().ids.tolist()
    started.close()


def test_batches_that_make_no_whole_update_are_left_and_told(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Finite(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [tiny.Characters.HParams(name="train", batch_size=4, is_training=True, num_batches=5)]

    phases: list[str] = []  # in which the process waits for the others at the end
    monkeypatch.setattr("xdpx.engines.spmd.world.Talk.barrier", lambda talk: phases.append(pulse.now[0]))
    pulse.begin()
    feed = Feed(build_parts(Finite(BATCHES=2), options_of(tmp_path / "job", {})))
    assert [(place.group, len(group)) for place, group in feed.groups(0)] == [(1, 2), (2, 2)]
    assert phases == [OUT_OF_DATA]
    assert "train: the data ends with 1 of the 2 batches of an update (accumulate_batches)" in capsys.readouterr().err


def test_batches_that_change_their_shapes_must_be_alike_on_all_processes(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Narrowing(tiny.Characters):  # type: ignore[name-defined, misc]
        def get_next(self) -> Any:
            batch, width = super().get_next(), 6 if self.get_state()["next"] > 2 else 8
            return batch.Transform(lambda array: array[:, :width] if array.ndim == 2 else array)

    class Several(tiny.Tiny):  # type: ignore[name-defined, misc]
        def input_specs(self) -> Any:
            return {name: ((4, 8)[: len(shape)], kind) for name, (shape, kind) in super().input_specs().items()}

        def datasets(self) -> list[Any]:
            return [Narrowing.HParams(name="train", batch_size=4, is_training=True)]

    asked: list[tuple[str, Any]] = []

    def exchange(talk: Any, shapes: Any) -> list[Any]:
        asked.append((pulse.now[0], shapes[0]["ids"]))
        others = [{name: [*shape[:1], *(7 for _ in shape[1:])] for name, shape in each.items()} for each in shapes]
        return [shapes, others if len(asked) > 1 else shapes]

    monkeypatch.setattr("xdpx.engines.spmd.world.Talk.exchange", exchange)
    pulse.begin()
    parts = build_parts(Several(), options_of(tmp_path / "job", {}))
    feed = Feed(replace(parts, ranks=replace(parts.ranks, size=2)))
    groups = feed.groups(0)
    next(groups), next(groups)
    assert asked == [(OTHER_SHAPES, [4, 8])]
    with pytest.raises(ConfigError, match=r"train.get_next: process 0 has a batch of .*ids \[4, 6\].*, process 1 a"):
        next(groups)
    feed.close()


def test_an_evaluation_that_is_cut_short_leaves_the_places_of_inputs_that_roll_although_names_are_shared(
    tiny: ModuleType, tmp_path: Path
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {}))
    rolling = [tiny.Characters(tiny.Characters.HParams(name=name, batch_size=4, eval_window="rolling(1)"))
               for name in ("text", "text", "train")]  # fmt: skip
    feed, places = Feed(parts, rolling), [{"next": 0}, {"next": 0}, {"next": 1}, {"next": 0}]
    rolling[1].get_next()
    with suppress(Interrupted), feed.evaluated():
        rolling[0].get_next()
        raise Interrupted
    assert feed.state(0) == dict(zip(("train", "text", "text_", "train_"), places, strict=True))
    again = Feed(parts, others := [tiny.Characters(each.hparams) for each in rolling])
    again.restore("checkpoint_0", feed.state(0))
    assert [data.get_state() for data in (again.data, *others)] == places
    feed.close()
    again.close()


def test_the_batches_of_an_update_differ_though_the_input_fills_one_array(tiny: ModuleType, tmp_path: Path) -> None:
    class Refilling(tiny.Characters):  # type: ignore[name-defined, misc]
        def get_next(self) -> Any:
            batch = super().get_next()
            if not hasattr(self, "ids"):
                self.ids = batch.ids
            self.ids[...] = self.get_state()["next"]
            batch["ids"] = self.ids
            return batch

    class Refills(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [Refilling.HParams(name="train", batch_size=4, is_training=True)]

    feed = Feed(build_parts(Refills(BATCHES=2), options_of(tmp_path / "job", {})))
    for _, group in islice(feed.groups(0), 4):
        assert group[0].ids.max() + 1 == group[1].ids.min()
    feed.close()
