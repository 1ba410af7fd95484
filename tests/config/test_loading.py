from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from xdpx.config.builtin_names import BUILTIN_NAMES
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run, fingerprint, load, resolve

pytestmark = pytest.mark.usefixtures("rooms")
Write = Callable[..., Path]

ONE = "{\n  shape: square\n  side: 3\n  save_dir: out\n  batch_size: 32\n}\n"
LOOP = """{
  __parent__: [[{side: 3}, {side: 4}, {side: 5}]]
  shape: square
  save_dir: out/${side}
  batch_size: 32
}
"""


def refused(path: str = "draw", *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(path, "x-draw", overrides)
    return str(error.value)


def test_a_config_gives_its_run(write: Write) -> None:
    write("draw.hjson", ONE)
    (run,) = load("draw", "x-draw")
    assert run.values["side"] == 3
    assert run.origins["side"].line == 3
    assert run.total == 1


def test_a_loop_gives_its_runs_in_order(write: Write) -> None:
    write("draw.hjson", LOOP)
    runs = load("draw", "x-draw")
    assert [run.values["save_dir"] for run in runs] == ["out/3", "out/4", "out/5"]
    assert {run.total for run in runs} == {3}


def test_words_of_the_command_line_win_over_the_file(write: Write) -> None:
    write("draw.hjson", ONE)
    (run,) = load("draw", "x-draw", ["side=9", "save=false"])
    assert (run.values["side"], run.values["save"]) == (9, False)


def test_a_macro_that_stands_among_the_keys_is_sent_to_def(write: Write) -> None:
    write("draw.hjson", ONE.replace("save_dir: out", "save_dir: ${batch_siz}/${fold}"))
    text = refused("draw", "fold=3", "batch_siz=2")
    remedy = "`, or __def__.fold=... on the command line."
    assert "fold (command line): no such key in x-draw. ${fold} refers to it: write it in `__def__" + remedy in text
    assert "Did you mean 'batch_size'" not in text
    (run,) = load("draw", "x-draw", ["__def__.fold=3", "__def__.batch_siz=2"])
    assert run.values["save_dir"] == "2/3"


def test_keys_of_what_a_built_in_name_switches_off_on_this_machine_alone_are_no_faults(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  save: ${half}\n  save_best: true\n  save_above: 0.5\n  __def__: {half: ${apex}}\n"
    write("draw.hjson", ONE.replace("  side: 3\n", f"  side: 3\n{more}"))
    for there, wanted in ((False, None), (True, 0.5)):
        monkeypatch.setitem(BUILTIN_NAMES, "apex", lambda there=there: there)
        (run,) = load("draw", "x-draw")
        assert (run.values["save"], run.values.get("save_above")) == (there, wanted)
    assert "save_above (command line): is switched off" in refused("draw", "save_best=false", "save_above=0.1")
    assert "save_best (draw.hjson:5): is switched off, because save is false" in refused("draw", "save=false")


def test_a_run_travels_between_processes(write: Write) -> None:
    write("draw.hjson", ONE)
    (run,) = load("draw", "x-draw")
    assert pickle.loads(pickle.dumps(run)) == run  # noqa: S301


def test_every_fault_of_every_run_is_told_with_its_line(write: Write) -> None:
    write("draw.hjson", LOOP.replace("{side: 4}", '{side: "x"}').replace("batch_size", "batchsize"))
    text = refused()
    assert "batchsize (draw.hjson:5): no such key in x-draw. Did you mean 'batch_size'? (in all 3 runs)" in text
    assert "side (draw.hjson:2): is 'x'. Use an integer. (in run 2 of 3)" in text


def test_outputs_that_two_runs_share_are_refused(write: Write) -> None:
    write("draw.hjson", LOOP.replace("out/${side}", "out"))
    assert "save_dir (draw.hjson:4): 'out' is shared by runs 1, 2, 3 of 3." in refused()


PREDICTED = """{
  __parent__: [[{save_dir: a}, {save_dir: b}, {save_dir: c}]]
  predict_file_map: {x.tsv: out.tsv, y.tsv: '${save_dir}.tsv'}
}
"""


def test_files_that_several_runs_of_a_loop_would_write_are_refused(write: Write) -> None:
    write("draw.hjson", PREDICTED)
    with pytest.raises(ConfigError) as refused:
        load("draw", "x-pred", paths=False)
    assert "predict_file_map (draw.hjson:3): 'out.tsv' is shared by runs 1, 2, 3 of 3." in str(refused.value)
    assert len(refused.value.faults) == 1
    assert len(load("draw", "x-pred", ["predict_file_map={x.tsv: '${save_dir}.tsv'}"], paths=False)) == 3


def test_a_file_that_is_added_to_may_be_shared_and_one_that_is_replaced_not(write: Write) -> None:
    write("draw.hjson", "{__parent__: [[{save_dir: a}, {save_dir: b}]], valid_subset: dev, save_to_file: s.tsv}")
    assert len(load("draw", "x-eval", paths=False)) == 2
    with pytest.raises(ConfigError, match=r"save_to_file .*: 's.tsv' is shared by runs 1, 2 of 2"):
        load("draw", "x-eval", ["save_mode=w"], paths=False)


def test_the_same_run_twice_is_refused(write: Write) -> None:
    loop = "[[{side: 3, __def__: {n: 1}}, {side: 3, __def__: {n: 2}}]]"
    write("draw.hjson", f"{{\n__parent__: {loop}\nshape: square\nsave_dir: out/${{n}}\nbatch_size: 32\n}}")
    assert "runs 1, 2: are identical." in refused()


def test_paths_are_looked_at_and_the_nearest_is_offered(write: Write) -> None:
    write("draw.hjson", ONE, "pictures/cat.png", "")
    text = refused("draw", "source=pictures/cta.png")
    assert "source (command line): there is no file 'pictures/cta.png'. Did you mean 'pictures/cat.png'?" in text
    assert "'pictures' is a directory. Name a file." in refused("draw", "source=pictures")


def test_an_output_that_is_a_file_is_refused_and_left_alone(write: Write) -> None:
    folder = write("draw.hjson", ONE, "out", "precious")
    assert "'out' is a file." in refused()
    assert (folder / "out").read_text() == "precious"


def test_checking_an_output_folder_leaves_nothing_behind(write: Write) -> None:
    folder = write("draw.hjson", ONE)
    load("draw", "x-draw")
    assert [path.name for path in folder.iterdir()] == ["draw.hjson"]


def test_further_checks_see_sound_runs_only_and_add_their_faults(write: Write) -> None:
    write("draw.hjson", LOOP.replace("{side: 4}", '{side: "x"}'))
    seen: list[Run] = []

    def inspect(run: Run) -> list[Fault]:
        seen.append(run)
        return [Fault("side", "is odd.")] if run.values["side"] % 2 else []

    with pytest.raises(ConfigError, match=r"side \(draw.hjson:2\): is odd. \(in 2 runs\)"):
        load("draw", "x-draw", inspect=inspect)
    assert [run.index for run in seen] == [0, 2]


def test_the_fingerprint_changes_with_what_is_computed_and_only_with_that() -> None:
    def of(**values: object) -> str:
        base = {"shape": "square", "side": 3, "save_dir": "out", "batch_size": 32, "learning_rate": 1.0}
        return fingerprint(resolve({**base, **values}, "x-draw", source="c", paths=False))

    assert of() == of(save_dir="elsewhere") == of(overwrite=True) == of(learning_rate=1)
    assert of() != of(side=4)


def test_an_unknown_command_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no 'x-darw' is registered. Did you mean 'x-draw'"):
        resolve({}, "x-darw", source="c")


@pytest.mark.parametrize("line", ["side: ${sied}", "side: 1e400", "side: ${batch_size}"])
def test_what_could_not_be_read_is_told_once(write: Write, line: str) -> None:
    text = ONE.replace("side: 3", line).replace(
        "batch_size: 32", "batch_size: ${side}" if "batch" in line else "batch_size: 32"
    )
    write("draw.hjson", text)
    assert refused().startswith("draw.hjson: 1 fault\n")


def test_at_most_ten_faults_are_told_in_full(write: Write) -> None:
    write("draw.hjson", ONE.replace("}", "".join(f"  zork_{number}: 1\n" for number in range(30)) + "}"))
    lines = refused().splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and more: 20 further faults."


def test_half_is_no_advice_for_an_integer(write: Write) -> None:
    write("draw.hjson", ONE.replace("side: 3", "side: .5"))
    assert "write" not in refused()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("zzz://a/b", "'zzz://' is not a known kind of path"),
        ("a" * 300, "File name too long"),
        ("''", "is an empty path"),
    ],
)
def test_a_path_that_cannot_be_is_a_fault(write: Write, path: str, words: str) -> None:
    write("draw.hjson", ONE)
    assert words in refused("draw", f"source={path}")


@pytest.mark.usefixtures("forgotten_s3")  # a client of another test would keep its credentials
def test_a_filesystem_that_cannot_be_asked_is_no_fault_of_the_config(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("draw.hjson", ONE)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(OSError, match="no credentials for s3://"):
        load("draw", "x-draw", ["source=s3://bucket/x"])
    assert "side (command line): is 'x'." in refused("draw", "source=s3://bucket/x", "side=x")


def test_a_number_as_text_needs_quotes_that_the_shell_leaves(write: Write) -> None:
    write("draw.hjson", ONE)
    assert """save_dir (command line): is 7. Use text: put it in two pairs of quotes, "'7'".""" in refused(
        "draw", "save_dir=7"
    )
    assert load("draw", "x-draw", ["save_dir='7'"])[0].values["save_dir"] == "7"


@pytest.mark.parametrize(("path", "told"), [("$HOME/out", True), ("a/$HOME", True), ("$unset/out", False)])
def test_a_variable_of_the_shell_is_no_name_of_a_folder(
    write: Write, path: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("unset", raising=False)
    write("draw.hjson", ONE.replace("out", path))
    if told:
        assert f"save_dir (draw.hjson:4): '{path}' contains $HOME, which is not replaced" in refused()
    else:
        assert load("draw", "x-draw")[0].values["save_dir"] == path


@pytest.mark.parametrize("path", ["out/$(side)", "{{side}}/out", "$｛side｝", "＄{side}/x", "out/%(side)s"])
def test_a_reference_written_as_in_another_language_is_no_name_of_a_folder(write: Write, path: str) -> None:
    write("draw.hjson", ONE.replace("out", f'"{path}"'))
    assert "which is not replaced: a folder of that name would be made. Write ${side}" in refused()


@pytest.mark.parametrize("path", ["“out”", "out”", "`out`", 'out"', "「out」", " out", "out\t"])
def test_a_quote_or_a_blank_around_a_new_folder_is_no_part_of_its_name(write: Write, path: str) -> None:
    write("draw.hjson", ONE)
    kind = "quote" if path == path.strip() else "blank"
    assert f"save_dir (command line): '{path}' has a {kind} at one end" in refused("draw", f"save_dir={path}")
    Path(path).mkdir()
    assert load("draw", "x-draw", [f"save_dir={path}"])[0].values["save_dir"] == path


def test_a_quote_within_the_name_of_a_folder_is_one(write: Write) -> None:
    write("draw.hjson", ONE)
    assert load("draw", "x-draw", ["save_dir=实验“甲”"])[0].values["save_dir"] == "实验“甲”"


def test_a_new_folder_with_an_invisible_character_in_its_path_is_refused(write: Write) -> None:
    write("draw.hjson", ONE.replace("out", '"o\u200but/a"'))
    assert "holds the invisible character U+200B. Remove it;" in refused()
    Path("o\u200but/a").mkdir(parents=True)
    assert len(load("draw", "x-draw")) == 1


@pytest.mark.parametrize("mark", ["。", "；", "，", "、", ";", "\u200b"])
def test_a_new_folder_whose_name_ends_with_a_mark_of_punctuation_is_refused(write: Write, mark: str) -> None:
    write("draw.hjson", ONE.replace("out", f'"数据2{mark}"'))
    shown = ascii(mark) + ", an invisible character" if mark == "\u200b" else f"'{mark}'"
    assert f"save_dir (draw.hjson:4): '数据2{mark}' ends with {shown}. Remove it;" in refused()
    Path(f"数据2{mark}").mkdir()
    assert len(load("draw", "x-draw")) == 1
