from __future__ import annotations

from types import SimpleNamespace

import pytest
import transformers.integrations as theirs

from xdpx.config import packages
from xdpx.reports.trackers.choosing import (
    OURS,
    THEIRS,
    Calling,
    TrackerMissing,
    installed,
    tracker_for,
    trackers_for,
    troubles_of,
)
from xdpx.reports.trackers.json_lines import JsonLines


class Hearing:
    def on_log(self, *args, **kwargs):
        """Hear."""


@pytest.mark.parametrize("nothing", [None, "none", [], ["none"], [None]])
def test_none_in_any_spelling_is_no_tracker(nothing):
    assert trackers_for(nothing) == []


def test_every_name_of_the_original_is_known_here():
    names = theirs.integration_utils.INTEGRATION_TO_CALLBACK
    assert {*OURS, *THEIRS} == {*names, "jsonl", "tables"}
    assert all(kind.__name__ == THEIRS[name][0] for name, kind in names.items() if name != "tensorboard")


def test_names_functions_objects_and_classes_may_stand_in_one_list():
    heard, mine = [], Hearing()
    found = trackers_for(["jsonl", heard.append, mine, Hearing])
    assert [type(one) for one in found] == [JsonLines, Calling, Hearing, Hearing]
    assert found[1].function == heard.append
    assert found[2] is mine


def test_a_single_function_needs_no_list():
    (tracker,) = trackers_for(print)
    assert tracker.function is print


def test_all_is_what_is_installed(monkeypatch):
    monkeypatch.setattr(theirs, "get_available_reporting_integrations", lambda: ["jsonl"])
    assert installed() == ["jsonl"]
    assert [type(one) for one in trackers_for("all")] == [JsonLines]


def test_an_unknown_name_is_refused_with_the_nearest_and_all_there_are():
    with pytest.raises(
        ValueError, match=r"report_to: no tracker is called 'wandd'\. Did you mean 'wandb'\? There are az"
    ):
        trackers_for("wandd")


def test_what_is_neither_a_name_nor_a_function_is_refused():
    with pytest.raises(ValueError, match=r"report_to: 3 is not a tracker\. Use a name, a function"):
        tracker_for(3)


@pytest.mark.parametrize(("name", "install"), [("wandb", "wandb"), ("comet_ml", "comet-ml"), ("flyte", "flytekit")])
@pytest.mark.parametrize("kind", [RuntimeError, ImportError])
def test_a_missing_package_is_said_in_one_sentence_with_either_error_of_the_original(name, install, kind, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    with pytest.raises(kind, match=rf"^report_to: '{name}' needs .* `pip install {install}`, or leave '{name}' out of"):
        tracker_for(name)


def test_a_tracker_that_refuses_says_so_with_its_own_reason(monkeypatch):
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    with pytest.raises(
        TrackerMissing, match="report_to: 'kubeflow' cannot be used here: .*KUBEFLOW_TRAINER_SERVER_URL"
    ):
        tracker_for("kubeflow")


def test_a_tracker_of_the_original_is_made_where_it_can_be(monkeypatch):
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "https://127.0.0.1")
    assert type(tracker_for("kubeflow")) is theirs.integration_utils.KubeflowCallback


def test_the_function_gets_a_copy_of_what_is_logged_and_the_step_on_the_first_process():
    heard, logs = [], {"loss": 1.0}
    for first in (True, False):
        state = SimpleNamespace(is_world_process_zero=first, global_step=9)
        Calling(lambda values, step: heard.append((values, step))).on_log(None, state, None, logs=logs)
    assert heard == [({"loss": 1.0}, 9)]
    assert heard[0][0] is not logs


class Greedy(Hearing):
    """A tracker that cannot be made without an argument."""

    def __init__(self, address):
        """Take an address."""


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (Greedy, r"'ours' \(ours:Thing\) must be constructible without arguments"),
        (dict, "has no event, such as on_log, so it is not a tracker"),
        (7, "has no event"),
        (Hearing, Hearing),
        (Hearing(), Hearing),
        (lambda: Hearing(), Hearing),
        (lambda values, step: None, Calling),
    ],
)
def test_a_package_offers_classes_objects_and_functions(thing, told, monkeypatch):
    point = SimpleNamespace(name="ours", value="ours:Thing", load=lambda: thing)
    monkeypatch.setattr(packages, "offered", lambda kind: {"ours": (point,)})
    if isinstance(told, type):
        assert not list(troubles_of("ours"))
        assert [type(one) for one in trackers_for("ours")] == [told]
    else:
        with pytest.raises(ValueError, match=told):
            trackers_for("ours")
        assert len(list(troubles_of("ours"))) == 1
