"""The flags of the third door: Pax's spellings, ours, and what cannot be had."""

from typing import get_args

import pytest

from xdpx.commands.experiment_line import MODES, RUN_FLAGS, parse, usage
from xdpx.config.faults import ConfigError
from xdpx.experiments.running.options import Mode


def test_the_documents_line_is_understood() -> None:
    line = parse([
        "--exp=tasks.lm.params.lm_cloud.LmCloudTransformerAdamLimitSteps", "--job_log_dir=gs://bucket",
        "--pmap_use_tensorstore=True",
    ])  # fmt: skip
    assert line.exp == "tasks.lm.params.lm_cloud.LmCloudTransformerAdamLimitSteps"
    assert line.values == {"job_log_dir": "gs://bucket"}


def test_switches_are_said_in_every_way_of_absl() -> None:
    line = parse(["X", "--noenable_checkpoint_saving", "--eval_on_test", "--decode_output_pickle=false"])
    assert line.values == {"enable_checkpoint_saving": False, "eval_on_test": True, "decode_output_pickle": False}


def test_values_follow_an_equals_sign_or_a_blank_and_numbers_are_numbers() -> None:
    line = parse(["--exp", "X", "--mode", "decode_once", "--restore_checkpoint_step", "100", "--set", "A=b=c"])
    assert (line.exp, line.values["restore_checkpoint_step"], line.fields) == ("X", 100, {"A": "b=c"})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--jobs_log_dir=x"], "Did you mean --job_log_dir"),
        (["--mode=evl"], "Did you mean 'eval'"),
        (["--mode=tf_data_service_worker"], "Inputs need no service"),
        (["--fdl.learning_rate=3"], "--set NAME=value"),
        (["--enable_auto_sharding"], "set ICI_MESH_SHAPE"),
        (["--globally_use_hardware_rng=true"], "do not depend on the mesh"),
        (["--tfds_data_dir=/data"], "set TRAIN_DATA"),
        (["--num_trials=3"], "--study"),
        (["--study=x", "--mode=eval"], "train"),
        (["--pythia_port=1"], "no service"),
        (["--restore_checkpoint_dir=x"], "--restore_checkpoint_dir: is for mode decode"),
        (["--mode=decode", "--restore_checkpoint_step=3"], "is for mode decode_once and infer, not decode"),
        (["--num_hosts=two"], "Use a whole number"),
        (["--eval_on_test=perhaps"], "Use true or false"),
        (["--set", "NAME"], "Write --set NAME=value"),
        (["--devices=4"], "needs --plan"),
        (["one", "two"], "is not expected here"),
        (["--job_log_dir"], "has no value"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(words)


def test_all_faults_of_a_line_are_told_together() -> None:
    with pytest.raises(ConfigError, match="3 faults"):
        parse(["--mode=evl", "--fdl=x", "--xyz"])


def test_the_help_names_every_flag() -> None:
    text = usage()
    assert all(f"--{name} " in text for name in RUN_FLAGS)


def test_the_help_knows_the_modes_that_there_are() -> None:
    assert get_args(Mode) == MODES
