from __future__ import annotations

import pytest

from xdpx.commands.command_line import Job, parse, usage
from xdpx.config.faults import ConfigError


def test_pairs_overrides_and_flags_are_told_apart() -> None:
    jobs, options = parse(["x-train", "a", "lr=1", "--dry", "x-eval", "b", "c=d=e", "--jobs", "2"])
    assert jobs == [Job("x-train", "a", ["lr=1"]), Job("x-eval", "b", ["c=d=e"])]
    assert (options.dry, options.jobs) == (True, 2)


def test_overrides_may_stand_without_a_config() -> None:
    jobs, _ = parse(["x-viz", "save_dir=out/b", "--dry", "ref_dir=out/a", "x-train", "c"])
    assert jobs == [Job("x-viz", "", ["save_dir=out/b", "ref_dir=out/a"]), Job("x-train", "c")]


def test_x_script_keeps_its_own_words_up_to_the_next_command() -> None:
    jobs, options = parse(["x-script", "diff", "--full", "-k", "a=b", "x-train", "c"])
    assert jobs == [Job("x-script", words=["diff", "--full", "-k", "a=b"]), Job("x-train", "c")]
    assert not options.dry


def test_x_io_keeps_its_own_words() -> None:
    assert parse(["x-io", "listdir", "--help", "x-files"])[0] == [Job("x-io", words=["listdir", "--help", "x-files"])]


def test_help_takes_the_word_after_it_as_its_topic() -> None:
    assert parse(["x-train", "--help", "batch_size"])[1].topic == "batch_size"
    assert parse(["--help", "x-train"])[0] == [Job("x-train")]
    assert parse(["x-train", "-h"])[1].help


WRONG: list[tuple[str, str]] = [
    ("x-train a --dyr", "--dyr: no such flag. Did you mean '--dry'?"),
    ("x-train a --jbos 2", "Did you mean '--jobs'?"),
    ("x-train a -x", "-x: no such flag."),
    ("x-train a --dry=yes", "--dry=yes: takes no value."),
    ("x-train a –dry", "–dry: begins with a dash, not with hyphens. Write --dry."),
    ("x-train －－dry", "－－dry: begins with a dash, not with hyphens. Write --dry."),
    ("x-train a --jobs", "--jobs: is ''."),
    ("x-train a --jobs two", "--jobs: is 'two'."),
    ("x-train a --jobs=0", "--jobs: is '0'."),
    ("x-tran a", "x-tran: no such command. Did you mean 'x-train'?"),
    ("train a", "train: no such command. Did you mean 'x-train'?"),
    ("a.hjson", "a.hjson: no such command. Use one of: x-"),
    ("x-train", "x-train: has no config."),
    ("x-train x-eval b", "x-train: has no config."),
    ("x-train a b", "b: is not expected here."),
    ("x-train a x-evla b", "x-evla: no such command. Did you mean 'x-eval'?"),
    ("", "command: is missing."),
    ("--schema", "--schema: needs a command."),
    ("x-script a x-train", "x-train: has no config."),
]


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_a_wrong_line_is_one_fault_that_says_what_to_write(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(line.split())
    assert words in str(refused.value)
    assert str(refused.value).startswith("command line: 1 fault\n")


def test_an_empty_word_is_no_config() -> None:
    with pytest.raises(ConfigError, match="'': is not expected here"):
        parse(["x-train", "", "lr=1"])  # a shell variable that is not set, in quotes


def test_usage_names_every_command_and_flag() -> None:
    assert all(word in usage() for word in ("x-viz", "x-io", "x-script", "--dry", "--jobs", "--keep-going"))
