from __future__ import annotations

import pickle
import random

import pytest

from tests.tiers import LONG
from xdpx.config import catalogue
from xdpx.config.faults import (
    THIS_RUN,
    ConfigError,
    Fault,
    Origin,
    did_you_mean,
    edit_distance,
    first_few,
    first_line,
    found_in,
    merge_faults,
    named,
    nearest,
    shortened,
    unknown_name,
)


def test_an_error_lists_every_fault_with_its_place() -> None:
    faults = [Fault("a", "is 1.", "Use 2.", Origin("c.hjson", 3)), Fault("b", "is missing.")]
    assert str(ConfigError("c.hjson", faults)) == "c.hjson: 2 faults\n  a (c.hjson:3): is 1. Use 2.\n  b: is missing."


def test_an_error_travels_between_processes() -> None:
    error = ConfigError("c", [Fault("a", "is 1.", origin=Origin("c", 1, 2))])
    assert pickle.loads(pickle.dumps(error)).faults == error.faults  # noqa: S301


def test_a_fault_found_by_a_part_is_placed_in_the_config_that_was_at_work() -> None:
    found = ConfigError(THIS_RUN, [Fault("a", "is 1.")])
    assert str(found.placed("c.hjson", {"a": Origin("c.hjson", 3)})) == "c.hjson: 1 fault\n  a (c.hjson:3): is 1."
    named = ConfigError("raw/train.txt", [Fault("a", "is 1.")])
    assert named.placed("c.hjson", {"a": Origin("c.hjson", 3)}) is named


def test_the_same_fault_of_several_runs_is_told_once() -> None:
    shared, own = Fault("a", "is 1."), Fault("b", "is 2.")
    told = [str(fault) for fault in merge_faults([[shared, own], [shared], [shared]])]
    assert told == ["a: is 1. (in all 3 runs)", "b: is 2. (in run 1 of 3)"]


def test_a_fault_of_some_runs_says_of_how_many() -> None:
    assert str(merge_faults([[Fault("a", "x.")], [Fault("a", "x.")], []])[0]) == "a: x. (in 2 runs)"


def test_a_fault_of_a_single_run_says_nothing_of_runs() -> None:
    assert str(merge_faults([[Fault("a", "x."), Fault("a", "x.")]])[0]) == "a: x."


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("batchsize", "batch_size"),
        ("batch-size", "batch_size"),
        ("BATCH_SIZE", "batch_size"),
        ("bacth_size", "batch_size"),
        ("vocab", "vocab_file"),
        ("epoch", "max_epoch"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found(name: str, expected: str | None) -> None:
    assert nearest(name, ["batch_size", "vocab_file", "max_epoch", "seed"]) == expected


@pytest.mark.parametrize(("name", "known"), [("2", ["0", "1"]), ("c", ["a", "b"]), ("正", ["负", "中"])])
def test_names_of_one_letter_are_not_alike_for_their_length(name: str, known: list[str]) -> None:
    assert nearest(name, known) is None


def test_a_swap_of_neighbours_is_one_edit() -> None:
    assert edit_distance("seed", "sede") == 1
    assert edit_distance("seed", "") == 4
    assert edit_distance("kitten", "sitting") == 3


def test_of_equally_near_names_all_are_told() -> None:
    names = ["rmr_bert", "bert_lm", "bert_classification", "re2"]
    told = unknown_name("model", "bert", names).remedy
    assert told == "Did you mean one of these: bert_classification, bert_lm, rmr_bert?"


def test_an_unregistered_name_lists_what_there_is_when_nothing_is_near() -> None:
    assert "Choose one of: adam, lamb." in str(unknown_name("optimizer", "zzz", ["lamb", "adam"]))


def single_edits(word: str, draw: random.Random) -> list[str]:
    """One deletion, one replacement, one insertion and one swap, at random places."""
    i, j, k, m = (draw.randrange(len(word)) for _ in range(4))
    m = min(m, len(word) - 2)
    other = draw.choice("abcdefghijklmnopqrstuvwxyz")
    return [
        word[:i] + word[i + 1 :],
        word[:j] + other + word[j + 1 :],
        word[:k] + other + word[k:],
        word[:m] + word[m + 1] + word[m] + word[m + 2 :],
    ]


def test_almost_every_single_edit_of_a_known_key_gets_that_key() -> None:
    keys = sorted(
        {item.key for kind in catalogue.kinds() for entry in catalogue.entries(kind) for item in entry.parameters}
    )
    draw = random.Random(1)
    some_keys = keys[:: 3 if LONG else 9]
    typos = [(typo, key) for key in some_keys for typo in single_edits(key, draw) if typo not in keys and len(key) > 2]
    assert len(typos) > 150
    right = sum(nearest(typo, keys) == key for typo, key in typos)
    assert right / len(typos) >= 0.95


def test_what_was_meant_is_said_before_what_holds_in_any_case() -> None:
    assert did_you_mean("sed", ["seed"], "There is: seed.") == "Did you mean 'seed'?"
    assert did_you_mean("x", ["seed"], "There is: seed.") == "There is: seed."
    assert did_you_mean("sed", ["seed"], rest="Use one of: seed.") == "Did you mean 'seed'? Use one of: seed."
    assert did_you_mean("x", ["seed"], rest="Use one of: seed.") == "Use one of: seed."
    assert did_you_mean("x", []) == ""


def test_lists_and_texts_of_messages_are_cut() -> None:
    assert (first_few("ab", 2), first_few("abcde", 2), first_few([], 2)) == ("a, b", "a, b and 3 more", "")
    assert (shortened("x" * 60), shortened("x" * 61)) == ("x" * 60, "x" * 57 + "...")


def test_the_first_line_of_an_error_without_a_message_is_its_class() -> None:
    assert first_line(RuntimeError("\nno device\n at 0x7f")) == "no device"
    assert first_line(RuntimeError("")) == "RuntimeError"
    assert [named(RuntimeError(text)) for text in ("no device\n at 0x7f", "")] == [
        "RuntimeError: no device",
        "RuntimeError",
    ]


def test_faults_of_an_unknown_source_are_those_of_the_command_at_work() -> None:
    with pytest.raises(ConfigError, match=r"^x-script calibrate: 1 fault\n  a: is 1\."), found_in("x-script calibrate"):
        raise ConfigError(THIS_RUN, [Fault("a", "is 1.")])
