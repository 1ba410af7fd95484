"""`--key value` beside `key=value`."""

from __future__ import annotations

import pytest

from xdpx.commands.command_line import FLAGS, Job, parse
from xdpx.commands.flags import with_settings
from xdpx.config.faults import ConfigError


@pytest.mark.parametrize(
    "words", ["--batch_size 32", "--batch_size=32", "--batch-size 32", "--batch-size=32", "batch-size=32"]
)
def test_every_spelling_of_a_key_is_the_override_of_a_config(words: str) -> None:
    assert parse(["x-train", "a", *words.split()])[0] == [Job("x-train", "a", ["batch_size=32"])]
    assert parse(["x-train", *words.split(), "a"])[0] == [Job("x-train", "a", ["batch_size=32"])]


def test_a_key_that_is_true_or_false_needs_no_value() -> None:
    jobs, options = parse(["x-train", "a", "--bf16", "--overwrite", "false", "--dry", "x-eval", "--cuda", "b"])
    assert jobs == [Job("x-train", "a", ["bf16=true", "overwrite=false"]), Job("x-eval", "b", ["cuda=true"])]
    assert options.dry


def test_a_number_below_zero_and_an_inner_key_are_values_and_keys_too() -> None:
    assert parse(["x-eval", "--extra-config.max-len", "-1"])[0][0].overrides == ["extra_config.max-len=-1"]


@pytest.mark.parametrize(
    ("line", "words"),
    [("x-train a --batch_size", "--batch_size: has no value. Write batch_size=VALUE or --batch_size VALUE."),
     ("x-train a --batch_size --dry", "--batch_size: has no value."), ("x-train a --dryy", "Did you mean '--dry'?"),
     ("x-train a --zork", "--zork: no such flag.")],
)  # fmt: skip
def test_what_is_no_setting_is_one_fault(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match="1 fault\n") as refused:
        parse(line.split())
    assert words in str(refused.value)


def test_commands_that_read_their_own_words_keep_their_flags() -> None:
    words = ["data.csv", "--json", "--max-epoch", "3", "--text", "body", "dev=0.2"]
    assert with_settings(words, flags=FLAGS) == ["data.csv", "--json", "max_epoch=3", "text=body", "dev=0.2"]
