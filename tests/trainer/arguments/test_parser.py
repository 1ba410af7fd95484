from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from xdpx.config.faults import ConfigError
from xdpx.trainer.arguments import HfArg, HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class DataArguments:
    """As scripts declare what is theirs."""

    task_name: str | None = field(default=None, metadata={"help": "Task."})
    max_seq_length: int = field(default=128, metadata={"help": "Tokens."})
    shuffle: bool = True
    strict: bool | None = None
    colour: Colour = Colour.RED
    level: Literal["low", 7] = "low"
    sizes: list[int] = field(default_factory=lambda: [1, 2])
    words: list[str] | None = None
    table: dict[str, bool] | None = None
    either: int | str = 0
    rate: float = HfArg(default=0.5, aliases=["-r", "--speed"], help="Rate.")


@dataclass
class Needed:
    foo: int
    ready: bool


def parsed(owner: type, line: str) -> Any:
    (made,) = HfArgumentParser(owner).parse_args_into_dataclasses(line.split(), look_for_args_file=False)
    return made


def test_the_documented_command_line_is_parsed() -> None:
    line = (
        "--task_name sst2 --do_train --do_eval --max_seq_length 64 --per_device_train_batch_size 32 "
        "--learning_rate 2e-5 --num_train_epochs 3 --output_dir out --overwrite_output_dir"
    )
    data, training = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses(line.split())
    assert (data.task_name, data.max_seq_length) == ("sst2", 64)
    assert (training.do_train, training.do_eval, training.do_predict) == (True, True, False)
    assert (training.per_device_train_batch_size, training.learning_rate) == (32, 2e-5)
    assert (training.num_train_epochs, training.output_dir, training.overwrite_output_dir) == (3.0, "out", True)


def test_an_empty_command_line_gives_the_defaults() -> None:
    assert parsed(TrainingArguments, "") == TrainingArguments()
    assert parsed(Seq2SeqTrainingArguments, "") == Seq2SeqTrainingArguments()
    assert parsed(DataArguments, "") == DataArguments()


@pytest.mark.parametrize("name", ["fp16", "average_tokens_across_devices", "tf32", "greater_is_better"])
@pytest.mark.parametrize(
    ("line", "said"),
    [("--{}", True), ("--{} true", True), ("--{}=false", False), ("--no_{}", False), ("--{} False", False)],
)
def test_every_flag_can_be_said_and_denied(name: str, line: str, said: bool) -> None:
    parser = HfArgumentParser(TrainingArguments)
    assert getattr(parser.parse_args(line.format(name).split()), name) is said


def test_dashes_and_underscores_are_the_same() -> None:
    made = parsed(TrainingArguments, "--learning-rate 1e-3 --no-average-tokens-across-devices --per-device-train-b=3")
    assert (made.learning_rate, made.average_tokens_across_devices) == (1e-3, False)
    assert made.per_device_train_batch_size == 3


def test_torch_distributed_launch_may_pass_the_rank() -> None:
    assert parsed(TrainingArguments, "--local-rank=1").local_rank == 1
    assert parsed(TrainingArguments, "--local_rank 1").local_rank == 1


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("--evaluation_strategy epoch", "eval_strategy", "epoch"),
        ("--evaluation-strategy=epoch", "eval_strategy", "epoch"),
        ("--no_cuda", "use_cpu", True),
        ("--no_cuda false", "use_cpu", False),
        ("--warmup_ratio 0.1", "warmup_steps", 0.1),
        ("--group_by_length", "train_sampling_strategy", "group_by_length"),
        ("--fp16_backend auto --logging_dir logs", "logging_dir", "logs"),
        ("--evaluation_strategy epoch --learning_rate 1e-3", "learning_rate", 1e-3),
    ],
)
def test_options_of_earlier_years_are_accepted(line: str, name: str, value: Any) -> None:
    assert getattr(parsed(TrainingArguments, line), name) == value


def test_options_of_earlier_years_do_not_clutter_the_help_or_the_short_forms() -> None:
    parser = HfArgumentParser(TrainingArguments)
    assert "evaluation_strategy" not in parser.format_help()
    assert parser.parse_args(["--warmup", "5"]).warmup_steps == 5


def test_an_option_of_earlier_years_means_nothing_to_other_dataclasses() -> None:
    with pytest.raises(ValueError, match="(?s)not used by the HfArgumentParser.*no --evaluation_strategy is known"):
        parsed(DataArguments, "--evaluation_strategy epoch")


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("--fsdp", "fsdp", True),
        ("--activation_checkpointing", "activation_checkpointing", True),
        ("--report_to tensorboard", "report_to", ["tensorboard"]),
        ("--report_to tensorboard wandb", "report_to", ["tensorboard", "wandb"]),
        ("--label_names a b", "label_names", ["a", "b"]),
        ("--optim_target_modules all-linear", "optim_target_modules", "all-linear"),
        ("--lr_scheduler_kwargs {\"num_cycles\":\"2\"}", "lr_scheduler_kwargs", {"num_cycles": 2}),
        ("--liger_kernel_config {\"rope\":true}", "liger_kernel_config", {"rope": True}),
        ("--include_num_input_tokens_seen non_padding", "include_num_input_tokens_seen", "non_padding"),
        ("--include_num_input_tokens_seen", "include_num_input_tokens_seen", "all"),
        ("--debug underflow_overflow", "debug", ["underflow_overflow"]),
        ("--max_steps -1", "max_steps", -1),
        ("--trackio_static_space_id me/it", "trackio_static_space_id", "me/it"),
        ("--warmup_steps 0.1", "warmup_steps", 0.1),
    ],
)  # fmt: skip
def test_every_kind_of_field_has_its_form(line: str, name: str, value: Any) -> None:
    assert getattr(parsed(TrainingArguments, line), name) == value


def test_fsdp_may_be_said_in_words() -> None:
    parser = HfArgumentParser(TrainingArguments)
    (made,) = parser.parse_args_into_dataclasses(["--fsdp", "shard_grad_op offload auto_wrap"])
    assert made.fsdp_options().strategy == "shard_grad_op"


def test_the_dataclasses_of_a_script_may_have_every_kind_of_field() -> None:
    line = '--colour blue --level 7 --sizes 3 4 5 --words a --no_shuffle --strict -r 2 --table {"a":true}'
    made = parsed(DataArguments, line)
    assert made == DataArguments(
        colour="blue", level=7, sizes=[3, 4, 5], words=["a"], shuffle=False, strict=True, rate=2.0, table={"a": True}
    )  # type: ignore[arg-type]
    assert parsed(DataArguments, "--speed 3").rate == 3.0
    assert [parsed(DataArguments, f"--either {word}").either for word in ("3", "0.5", "x")] == [3, 0.5, "x"]


def test_a_field_without_default_must_be_given_a_flag_without_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed(Needed, "--foo 1") == Needed(1, False)
    with pytest.raises(SystemExit):
        parsed(Needed, "")
    assert "--foo" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--eval_strategy step", "--fp16 maybe", "--max_steps x", "--log_level loud"])
def test_a_wrong_value_ends_with_a_usage_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(TrainingArguments, line)
    assert ended.value.code == 2
    assert line.split()[0] in capsys.readouterr().err


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"not used by the HfArgumentParser: \['--lerning_rate', '1'\]") as caught:
        parsed(TrainingArguments, "--lerning_rate 1")
    assert "no --lerning_rate is known: did you mean --learning_rate?" in str(caught.value)


def test_what_is_unknown_may_be_given_back_instead() -> None:
    parser = HfArgumentParser(TrainingArguments)
    made, rest = parser.parse_args_into_dataclasses(["--seed", "3", "--x", "-y"], return_remaining_strings=True)
    assert (made.seed, rest) == (3, ["--x", "-y"])


def test_options_that_a_script_adds_come_back_beside_the_dataclasses() -> None:
    parser = HfArgumentParser(DataArguments)
    parser.add_argument("--my-own", type=int, default=0)
    _, namespace = parser.parse_args_into_dataclasses(["--my-own", "3"])
    assert namespace.my_own == 3


def test_words_behind_two_dashes_are_left_alone() -> None:
    parser = HfArgumentParser(DataArguments)
    parser.add_argument("rest", nargs="*")
    assert parser.parse_args(["--", "--max-seq-length"]).rest == ["--max-seq-length"]


def test_every_option_has_one_line_in_the_help_with_its_default() -> None:
    text = HfArgumentParser((DataArguments, TrainingArguments)).format_help()
    assert text.count("  --fp16 ") == 1
    assert "Peak learning rate. (default: 5e-05)" in text
    assert "--per-device" not in text


def test_a_dataclass_may_have_a_heading_of_its_own() -> None:
    @dataclass
    class Grouped:
        _argument_group_name: ClassVar[str] = "what is mine"
        mine: int = 0

    assert "what is mine:" in HfArgumentParser(Grouped).format_help()


def test_a_type_that_cannot_be_resolved_is_refused_with_the_way_out() -> None:
    @dataclass
    class Unclear:
        value: Nowhere = 0  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(RuntimeError, match="Unclear: the type of a field cannot be resolved .*Nowhere.*top level"):
        HfArgumentParser(Unclear)


def test_a_parser_without_dataclasses_is_a_plain_one() -> None:
    parser = HfArgumentParser(description="mine")
    parser.add_argument("--x", type=int)
    assert parser.parse_args_into_dataclasses(["--x", "1"])[0].x == 1


def test_words_may_stand_in_a_file_beside_the_script_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.args").write_text("--seed 3\n--max_steps 9")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "run.py"), "--seed", "4"])
    (made,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    assert (made.seed, made.max_steps) == (4, 9)
    (alone,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(look_for_args_file=False)
    assert (alone.seed, alone.max_steps) == (4, -1)


def test_files_of_words_may_be_named(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        (tmp_path / name).write_text(f"--seed {seed}")
    parser = HfArgumentParser(TrainingArguments)
    line = ["--words", str(tmp_path / "a"), "--words", str(tmp_path / "b"), "--max_steps", "5"]
    (made,) = parser.parse_args_into_dataclasses(line, args_file_flag="--words")
    assert (made.seed, made.max_steps) == (2, 5)
    (named,) = parser.parse_args_into_dataclasses([], args_filename=tmp_path / "a")
    assert named.seed == 1


def test_a_dict_is_shared_out_among_the_dataclasses() -> None:
    parser = HfArgumentParser((DataArguments, TrainingArguments))
    data, training = parser.parse_dict({"task_name": "x", "seed": "3", "evaluation_strategy": "epoch", "rate": "1e-1"})
    assert (data.task_name, data.rate, training.seed, training.eval_strategy) == ("x", 0.1, 3, "epoch")


def test_unknown_keys_are_refused_with_the_nearest_or_left_aside() -> None:
    parser = HfArgumentParser(TrainingArguments)
    with pytest.raises(ValueError, match="no sede is known: did you mean seed?"):
        parser.parse_dict({"sede": 3})
    (made,) = parser.parse_dict({"sede": 3}, allow_extra_keys=True)
    assert made.seed == 42


def test_a_text_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="DataArguments: 2 faults\n  max_seq_length: is 'long'.*\n  rate: is 'fast'"):
        HfArgumentParser(DataArguments).parse_dict({"max_seq_length": "long", "rate": "fast"})


def test_values_of_a_dict_become_what_a_command_line_gives() -> None:
    given = {
        "sizes": ["3", 4],
        "words": "one",
        "level": 7,
        "colour": "blue",
        "max_seq_length": 8.0,
        "table": {"a": True},
    }
    (data,) = HfArgumentParser(DataArguments).parse_dict(given)
    assert (data.sizes, data.words, data.level, data.colour) == ([3, 4], ["one"], 7, "blue")
    assert (data.max_seq_length, data.table) == (8, {"a": True})


def test_values_that_a_command_line_refuses_are_refused_in_a_dict_too() -> None:
    with pytest.raises(ConfigError, match="4 faults") as raised:
        HfArgumentParser(DataArguments).parse_dict(
            {"level": "high", "colour": "green", "sizes": ["three"], "max_seq_length": 7.5}
        )
    assert "level: is 'high'. Choose one of: low, 7." in str(raised.value)


def test_a_key_that_json_has_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"rate": 1, "rate": 2}')
    with pytest.raises(ValueError, match=r"a.json: 'rate' is written twice"):
        HfArgumentParser(DataArguments).parse_json_file(tmp_path / "a.json")


def test_json_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"seed": 5, "fsdp_config": {"min_num_params": 3}}')
    (made,) = HfArgumentParser(TrainingArguments).parse_json_file(file)
    assert (made.seed, made.fsdp_config) == (5, {"min_num_params": 3})


def test_in_yaml_a_power_of_ten_is_a_number_and_no_is_a_word(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("learning_rate: 1e-4\neval_strategy: no\ndo_train: yes\nlabel_names: [a, b]\n")
    (made,) = HfArgumentParser(TrainingArguments).parse_yaml_file(file)
    assert (made.learning_rate, made.eval_strategy, made.do_train) == (1e-4, "no", True)
    assert made.label_names == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", "{seed: 1}", "a.json: is not JSON"),
        ("a.json", "[1]", "a.json: holds list, not a dict"),
        ("a.yaml", "a: [1", "a.yaml"),
        ("a.yaml", "a: 1\na: 2", "a.yaml"),
    ],
)
def test_a_file_that_holds_no_arguments_is_refused_by_its_path(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    parser = HfArgumentParser(TrainingArguments)
    read = parser.parse_json_file if name.endswith("json") else parser.parse_yaml_file
    with pytest.raises(ValueError, match=told):
        read(tmp_path / name)


def test_a_file_that_is_not_there_is_missing() -> None:
    with pytest.raises(FileNotFoundError):
        HfArgumentParser(TrainingArguments).parse_json_file("nowhere.json")


def test_two_dataclasses_with_the_same_field_are_refused() -> None:
    import argparse

    with pytest.raises(argparse.ArgumentError, match="conflicting option string"):
        HfArgumentParser((DataArguments, DataArguments))


def test_a_field_that_begins_with_no_keeps_its_name() -> None:
    @dataclass
    class Both:
        shuffle: bool = True
        no_shuffle: bool = False

    made = HfArgumentParser(Both).parse_args(["--no_shuffle"])
    assert (made.shuffle, made.no_shuffle) == (True, True)
