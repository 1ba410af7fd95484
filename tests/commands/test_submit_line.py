from __future__ import annotations

import pytest

from xdpx.commands.submit_line import OWN_FLAGS, commands, parse, resources_of
from xdpx.config import catalogue
from xdpx.config.faults import ConfigError
from xdpx.launch.submission import Resources

PLACES = ["local", "slurm"]


def refusal(*words: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse(words, PLACES)
    return str(refused.value)


def test_flags_are_taken_out_wherever_they_stand_and_commands_keep_their_words() -> None:
    line = "x-prepro p --nodes 2 x-train t lr=1 --gpus=4 --batch_size 3 --on slurm --dry"
    found = parse(line.split(), PLACES)
    assert [step.words for step in found.steps] == [("x-prepro", "p"), ("x-train", "t", "lr=1", "--batch_size", "3")]
    assert found.resources == {"nodes": "2", "gpus": "4"}
    assert found.flags == {"on": "slurm", "dry": True}


def test_words_after_two_dashes_belong_to_the_commands() -> None:
    found = parse(["--on", "local", "x-exp", "Mine", "--", "--dry", "--name=x"], PLACES)
    assert [step.words for step in found.steps] == [("x-exp", "Mine", "--dry", "--name=x")]


def test_an_action_takes_an_id_or_none() -> None:
    assert (parse(["logs", "12"], PLACES).action, parse(["logs", "12"], PLACES).id) == ("logs", "12")
    assert parse(["status"], PLACES).id == ""
    assert "is not expected here" in refusal("cancel", "1", "2")


def test_what_is_wrong_is_told_with_the_nearest_right_word() -> None:
    assert "Did you mean 'x-train'?" in refusal("x-tran", "t", "--on", "slurm")
    assert "Did you mean 'slurm'?" in refusal("x-train", "t", "--on", "slrum")
    assert "Use one of: local, slurm." in refusal("x-train", "t")
    for line in ("--node 2 x-train t", "x-train t --node=2", "x-train t --node 2 seed=1"):
        told = refusal(*line.split(), "--on", "slurm")
        assert "1 fault\n  --node: no such flag. Did you mean --nodes?" in told
    assert parse(["x-script", "mine", "--node", "2", "--on", "slurm"], PLACES).steps[0].words[-1] == "2"
    assert "Write --nodes=VALUE." in refusal("x-train", "t", "--on", "slurm", "--nodes")


def test_the_line_wins_over_configs_and_a_wrong_value_is_told_with_its_place() -> None:
    assert resources_of({"gpus": "2"}, {"gpus": 1, "memory": 8}) == Resources(gpus=2, memory=8)
    with pytest.raises(ConfigError) as refused:
        resources_of({"nodes": "two"}, {"gpus": -1})
    assert "--nodes: is 'two'." in str(refused.value)
    assert "--gpus (of the config): is '-1'." in str(refused.value)


def test_no_flag_has_the_name_of_a_key_of_a_command() -> None:
    flags = {name.replace("-", "_") for name in (*OWN_FLAGS, *Resources.model_fields)}
    keys = {item.key for name in commands() if name in catalogue.names("command")
            for entry in catalogue.reachable_entries(name) for item in entry.parameters}  # fmt: skip
    assert flags & keys == set()


@pytest.mark.parametrize("words", [["--partition", "p\n#SBATCH --exclusive"], ["--name=a\rb"]])
def test_a_flag_of_several_lines_is_refused_since_its_second_would_be_a_directive(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="which has several lines. Write it on one line"):
        parse(["x-train", "cfg", "--on", "slurm", *words], ["slurm"])


@pytest.mark.parametrize("asked", [{"memory": "1e-9"}, {"memory": "inf"}, {"hours": "inf"}])
def test_an_amount_that_rounds_to_none_or_is_infinite_is_refused(asked: dict[str, str]) -> None:
    """Slurm reads --mem=0 as all memory of a machine."""
    with pytest.raises(ConfigError, match="Use (greater|less) than or equal to"):
        resources_of(asked, {})
