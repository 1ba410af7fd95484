from types import SimpleNamespace

import pytest

from xdpx.config.faults import ConfigError
from xdpx.runs.changed_keys import ABSENT, Change, refuse_finished, refuse_overruled, without_facts
from xdpx.training.progress import Progress

BUILT = {"config.json": '{"hidden_dropout_prob": 0.3, "num_hidden_layers": 2}'}


def test_a_key_that_the_runs_own_config_json_overrules_is_refused_with_the_way_round():
    """Going back to a default: config.json goes before defaults, so the old value would hold without a word."""
    run = SimpleNamespace(values={"extra_config": {}})
    changed = {"hidden_dropout_prob": Change(0.3, 0.1), "num_hidden_layers": Change(4, 2), "dropout": Change(0.1, 0.2)}
    with pytest.raises(ConfigError, match=r"is 0\.1, but the config\.json .* says 0\.3\.") as caught:
        refuse_overruled(run, changed, BUILT)
    (fault,) = caught.value.faults
    assert fault.remedy == "Write extra_config: {hidden_dropout_prob: 0.1}."
    with pytest.raises(ConfigError, match="Restore the old value"):
        refuse_overruled(SimpleNamespace(values={}), changed, BUILT)


@pytest.mark.parametrize("after", [0.3, None, ABSENT])
def test_what_is_built_as_asked_for_or_left_to_the_model_is_no_fault(after):
    refuse_overruled(SimpleNamespace(values={}), {"hidden_dropout_prob": Change(0.1, after)}, BUILT)


def test_a_run_without_updates_left_is_refused_only_where_something_changed():
    progress = Progress(num_updates=36)
    refuse_finished({}, progress, 36)
    refuse_finished({"learning_rate": Change(0.1, 0.2)}, progress, 37)
    with pytest.raises(ConfigError, match="learning_rate changed, but no updates are left: the run is at step 36"):
        refuse_finished({"learning_rate": Change(0.1, 0.2)}, progress, 24)


def test_what_another_loss_counted_is_left_behind_but_tokens_stay_counted():
    windows = {"log": {"num_updates": 2, "seconds": 1.5, "sums": {"num_tokens": 7.0, "correct": 3.0}}}
    saved = {"callbacks": {"logging": {"ledger": {"windows": windows, "last": {}}, "row": {}}, "stopping": {}},
             "engine": {"task": {"seen": 4}, "model": 1}}  # fmt: skip
    found = without_facts(saved)
    assert found["callbacks"]["logging"]["ledger"]["windows"] == {
        "log": {"num_updates": 0, "seconds": 1.5, "sums": {"num_tokens": 7.0}}
    }
    assert found["engine"] == {"task": {}, "model": 1}
    assert windows["log"]["num_updates"] == 2
