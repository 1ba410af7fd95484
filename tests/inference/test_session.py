import ast
import csv
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import xdpx
from tests.commands.conftest import FinishedRun
from xdpx.config.faults import ConfigError
from xdpx.inference import predictor
from xdpx.run import main

TEXTS = ["good film", "bad plot", "very good plot very good", "not good"]


@pytest.fixture
def run(finished_run):
    return xdpx.load_run(finished_run.run)


def refused(call, *given, **named) -> str:
    with pytest.raises(ConfigError) as error:
        call(*given, **named)
    return str(error.value)


def test_predictions_are_those_of_x_pred(finished_run, run):
    target = finished_run.root / "out.tsv"
    finished_run.perform("x-pred", predict_file_map={str(finished_run.root / "plain.txt"): str(target)})
    with target.open(newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
    for one, row in zip(run.predict([row["text"] for row in rows]), rows, strict=True):
        assert (one.label, one.labels) == (row["pred"], (row["pred"],))
        assert list(one.probabilities) == run.labels == ["neg", "pos"]
        assert list(one.probabilities.values()) == pytest.approx(ast.literal_eval(row["prob"]), abs=1e-6)


def test_raw_text_is_read_as_in_training_when_data_dir_is_preprocessed_anew(finished_run):
    (finished_run.run / "vocab.txt").write_bytes((finished_run.data / "vocab.txt").read_bytes())
    args = (finished_run.data / "args.py").read_text()
    (finished_run.run / "prepro.args.py").write_text(args)
    expected = xdpx.load_run(finished_run.run).predict(["Good film"])
    (finished_run.data / "args.py").write_text(args.replace("'workers'", "'lower': False, 'workers'"))
    (finished_run.data / "vocab.txt").write_text("[PAD]\n[UNK]\nGood\n")
    assert xdpx.load_run(finished_run.run).predict(["Good film"]) == expected
    (finished_run.run / "prepro.args.py").unlink()
    assert xdpx.load_run(finished_run.run).predict(["Good film"]) != expected


def test_a_best_checkpoint_that_training_deletes_while_a_run_is_opened_is_looked_up_again(finished_run, monkeypatch):
    engine, best = predictor._engine, finished_run.run / "checkpoint-10.pt"

    def slow(plan, **options):
        best.unlink(missing_ok=True)
        return engine(plan, **options)

    monkeypatch.setattr(predictor, "_engine", slow)
    with pytest.raises(ConfigError, match="does not exist"):
        xdpx.load_run(finished_run.run, checkpoint=best)
    torch.save(finished_run.build_model(10).state_dict(), best)
    assert xdpx.load_run(finished_run.run).checkpoint == str(finished_run.run / "checkpoint-5.pt")


def test_a_name_that_only_the_maker_of_a_run_had_registered_is_said_to_be_of_own_code(finished_run):
    args = finished_run.run / "args.py"
    args.write_text(args.read_text().replace("cls_cnn", "my_cnn"))
    with pytest.raises(
        ConfigError, match=r"no 'my_cnn' is registered\. It was registered where the run was made: .*user/modules"
    ):
        xdpx.load_run(finished_run.run)


def test_any_column_of_texts_will_do(run):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    expected = run.predict(TEXTS)
    assert run.predict(tuple(TEXTS)) == run.predict(iter(TEXTS)) == run.predict(np.array(TEXTS)) == expected
    assert run.predict(pandas.Series(TEXTS, index=[7, 5, 3, 1])) == expected
    assert run.predict(datasets.Dataset.from_dict({"text": TEXTS})["text"]) == expected
    assert run.predict([{"text": text, "label": 3} for text in TEXTS]) == expected
    assert run.predict([[text] for text in TEXTS]) == expected


def test_odd_texts_are_texts(run):
    assert run.predict([]) == []
    odd = ["", " ", 'good\tfilm\n"plot"', "\u200bgood \u202ebad", "\U0001f600" * 3, "good " * 20_000]
    found = run.predict(odd)
    assert len(found) == len(odd)
    assert all(sum(one.probabilities.values()) == pytest.approx(1) for one in found if one.label is not None)
    plain = run.predict(['good film "plot"', "good " * 8])
    for one, other in zip(
        (found[2], found[5]), plain, strict=True
    ):  # white space is that of the tokenizer; cut to max_len
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("good film", "texts: is a single text. Give a list"),
        ({"good film"}, "texts: is a set"),
        ({"text": ["good film"]}, "texts: is a dict"),
        (7, "texts: is a int, 7"),
        (["good", None], "texts[1]: is None"),
        (["good", float("nan")], "texts[1]: is NaN"),
        ([b"good"], "texts[0]: is a bytes"),
        ([("good", "bad")], "texts[0]: is a row of 2 texts"),
        ([["good", 3]], "texts[0]: holds a int, 3"),
        ([[]], "texts[0]: is a row of 0 texts"),
        ([{"body": "good"}], "texts[0]: has no 'text', but body"),
        (["good\0film"], "texts[0]: holds a NUL character"),
        (["good\udc80film"], "texts[0]: is not UTF-8 text (byte 0x80)"),
        ([None] * 9, "and more: 4 further rows"),
    ],
)  # fmt: skip
def test_what_is_no_column_of_texts_is_refused_with_its_place(run, given, said):
    assert said in refused(run.predict, given)


def test_a_table_is_refused_before_its_names_are_predicted(run):
    frame = pytest.importorskip("pandas").DataFrame({"text": TEXTS})
    assert 'Give one, such as table["text"]' in refused(run.predict, frame)


def test_scores_are_those_of_x_eval_and_of_the_log(finished_run, run, capsys):
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"))
    header, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    printed = dict(zip(header, row, strict=True))
    found = run.evaluate(finished_run.root / "dev.txt")
    assert found == pytest.approx({name: float(printed[name]) for name in found}, abs=1e-6)
    assert run.evaluate(TEXTS, ["pos", "neg", "pos", "neg"]) == found
    assert run.scores == {"acc": 0.5}
    assert run.config["learning_rate"] == 0.1


def test_labels_that_do_not_fit_the_texts_are_refused(finished_run, run):
    assert "labels: are 1, but there are 4 texts" in refused(run.evaluate, TEXTS, ["pos"])
    assert "is labelled 'good', which the target map lacks" in refused(run.evaluate, TEXTS, ["good"] * 4)
    assert "labels: are missing" in refused(run.evaluate, TEXTS)
    assert "labels[0]: is None" in refused(run.evaluate, TEXTS, [None] * 4)
    assert "'nowhere' is neither a split" in refused(run.evaluate, "nowhere")
    assert "data: contains no row to score" in refused(run.evaluate, [], [])
    assert "data: has no labels, so it cannot be scored" in refused(run.evaluate, finished_run.root / "plain.txt")


def test_a_preprocessed_split_without_labels_is_not_scored(finished_run, run):
    prepro = ast.literal_eval((finished_run.data / "args.py").read_text())
    (finished_run.root / "prepro.json").write_text(json.dumps({**prepro, "data_files": {"plain.txt": "plain"}}))
    assert main(["x-prepro", str(finished_run.root / "prepro.json")]) == 0
    assert "data: has no labels, so it cannot be scored" in refused(run.evaluate, "plain")


def test_extra_config_may_be_a_file(finished_run):
    path = finished_run.config("extra.hjson", batch_size=3)
    for given in (str(path), Path(path)):
        assert xdpx.load_run(finished_run.run, extra_config=given)._plan.batch_size == 3
    with pytest.raises(ConfigError, match=r"extra_config: there is no '.*gone\.hjson'"):
        xdpx.load_run(finished_run.run, extra_config=str(finished_run.root / "gone.hjson"))


def test_a_folder_without_a_run_is_refused(finished_run, tmp_path):
    assert "contains no args.py" in refused(xdpx.load_run, tmp_path / "nothing")
    assert "contains no checkpoint" in refused(xdpx.load_run, finished_run.data)
    assert "batch_size: is 'many'" in refused(xdpx.load_run, finished_run.run, batch_size="many", cuda=1)
    assert "batch_size: is 0" in refused(xdpx.load_run, finished_run.run, batch_size=0)
    for checkpoint in finished_run.run.glob("*.pt"):
        checkpoint.unlink()
    assert "checkpoint: '<best>'" in refused(xdpx.load_run, finished_run.run)


def test_several_threads_and_two_runs_give_what_one_gives(finished_run, run):
    other = xdpx.load_run(finished_run.run, checkpoint=finished_run.run / "checkpoint-5.pt")
    expected, of_other, found = run.predict(TEXTS), other.predict(TEXTS), []
    assert expected != of_other
    threads = [threading.Thread(target=lambda: found.append(run.predict(TEXTS) == expected)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    assert other.predict(TEXTS) == of_other


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """What a fresh process has imported when it has predicted, and the exit code of its fork that predicts, too."""
    folder = FinishedRun(tmp_path_factory.mktemp("fresh")).run
    program = (
        "import os, sys, json, xdpx\n"
        f"run = xdpx.load_run({str(folder)!r})\n"
        "before = run.predict(['good film'] * 9)\n"
        "loaded = sorted(sys.modules)\n"
        "child = os.fork() if hasattr(os, 'fork') else None\n"
        "if child == 0: os._exit(0 if run.predict(['good film'] * 9) == before else 3)\n"
        "code = os.waitpid(child, 0)[1] if child else None\n"
        "print(json.dumps([loaded, code]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=100, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


TRAINS = ("training", "runs", "optimizers", "trainer", "tuning", "search", "launch", "experiments", "commands")


def test_no_code_that_trains_is_loaded_to_predict(fresh):
    assert [name for name in fresh[0] if name.startswith("xdpx.") and name.split(".")[1] in TRAINS] == []
    assert "xdpx.inference.session" in fresh[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_predicts_too(fresh):
    assert fresh[1] == 0


# ---- the two halves of predict


def test_the_two_halves_give_what_predict_gives(run):
    expected = run.predict(TEXTS)
    rows = run.encode(TEXTS)
    assert [row.length for row in rows] == [2, 2, 5, 2]
    assert run.answer(rows) == expected
    apart = [*run.encode(TEXTS[2:]), *run.encode(TEXTS[:2])]  # of two calls, in another order
    mixed = run.answer([apart[2], apart[0], apart[3], apart[1], apart[2]], batch_size=2)
    for one, index in zip(mixed, (0, 2, 1, 3, 0), strict=True):
        assert one.label == expected[index].label
        assert one.probabilities == pytest.approx(expected[index].probabilities, abs=1e-6)
    assert run.answer([]) == run.encode([]) == []


def test_a_thread_encodes_while_another_computes(run):
    with run._turn(run._locks.computing):
        done = []
        thread = threading.Thread(target=lambda: done.append(run.encode(TEXTS)))
        thread.start()
        thread.join(timeout=30)
        assert [row.length for row in done[0]] == [2, 2, 5, 2]


def test_what_is_no_text_is_refused_by_encode_with_its_place(run):
    assert "texts[1]: is a int, 3" in refused(run.encode, ["good", 3])


def test_weights_that_are_nan_are_told_of_by_name(finished_run, caplog):
    path = finished_run.run / "checkpoint-10.pt"
    weights = torch.load(path, weights_only=True)
    name = next(iter(weights))
    weights[name][0] = float("nan")
    torch.save(weights, path)
    xdpx.load_run(finished_run.run)
    (told,) = [each.getMessage() for each in caplog.records if "NaN" in each.getMessage()]
    assert f"checkpoint-10.pt: {name}: contains NaN" in told
