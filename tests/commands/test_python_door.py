import ast
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import xdpx
from xdpx.config.faults import ConfigError

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


def test_labels_that_do_not_fit_the_texts_are_refused(run):
    assert "labels: are 1, but there are 4 texts" in refused(run.evaluate, TEXTS, ["pos"])
    assert "is labelled 'good', which the target map lacks" in refused(run.evaluate, TEXTS, ["good"] * 4)
    assert "labels: are missing" in refused(run.evaluate, TEXTS)
    assert "labels[0]: is None" in refused(run.evaluate, TEXTS, [None] * 4)
    assert "'nowhere' is neither a split" in refused(run.evaluate, "nowhere")


def test_a_folder_without_a_run_is_refused(finished_run, tmp_path):
    assert "holds no args.py" in refused(xdpx.load_run, tmp_path / "nothing")
    assert "holds no checkpoint" in refused(xdpx.load_run, finished_run.data)
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_predicts_too(finished_run):
    program = (
        "import os, sys, xdpx\n"
        f"run = xdpx.load_run({str(finished_run.run)!r})\n"
        "before = run.predict(['good film'] * 9)\n"
        "child = os.fork()\n"
        "if not child: os._exit(0 if run.predict(['good film'] * 9) == before else 3)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=100, check=False).returncode == 0


def test_the_package_is_imported_without_a_heavy_library():
    program = "import sys, xdpx; dir(xdpx); sys.exit(bool({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ---- doing commands


def small(data, folder, **more):
    keys = {"__parent__": f"{data}/meta", "data_dir": str(data), "save_dir": folder / "run", "model": "cls_cnn"}
    keys |= {"embedding_dim": 4, "hidden_size": 4, "loss": "cross_entropy", "max_update": 6, "batch_size": 16}
    return {**keys, "learning_rate": 0.01, "eval_interval": 3, "major_metric": "acc", "log_interval": 3, **more}


def test_training_in_a_thread_gives_the_weights_of_the_command(data, tmp_path, monkeypatch):
    from xdpx import run as door

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.json").write_text(json.dumps(small(data, tmp_path, save_dir="by_command"), default=str))
    assert door.main(["x-train", "train.json", "seed=3"]) == 0
    made = []
    config = small(data, tmp_path, save_dir="./by_thread")
    thread = threading.Thread(target=lambda: made.append(xdpx.train(config, seed=3, figext="png")))
    thread.start()
    thread.join()
    torch = pytest.importorskip("torch")
    weights = [torch.load(path) for path in ("by_thread/checkpoint-6.pt", "by_command/checkpoint-6.pt")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert made[0].evaluate()["acc"] == pytest.approx(made[0].scores["acc"], abs=1e-6)
    assert xdpx.train(config, seed=3, resume="auto").checkpoint == made[0].checkpoint


def test_all_faults_of_a_dict_are_told_before_anything_is_touched(data, tmp_path):
    said = refused(xdpx.train, small(data, tmp_path, learning_rte=1), max_update="many", nothing=object())
    assert "nothing: holds a object" in said
    said = refused(xdpx.train, small(data, tmp_path, learning_rte=1), max_update="many")
    assert "the dict: 2 faults" in said
    assert "learning_rte: no such key" in said
    assert "max_update (command line): is 'many'" in said
    loop = small(data, tmp_path, __parent__=[f"{data}/meta", [{"seed": 1}, {"seed": 2}]], save_dir="out/${seed}")
    assert "stands for 2 runs" in refused(xdpx.train, loop)
    assert not (tmp_path / "run").exists()


def test_an_interruption_saves_and_gives_the_handlers_back(data, tmp_path, monkeypatch):
    from xdpx.training.loop import Session

    before, number = signal.getsignal(signal.SIGINT), Session.number
    sent = []

    def counted(session):
        if number.fget(session) == 3 and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))
        return number.fget(session)

    monkeypatch.setattr(Session, "number", property(counted))
    with pytest.raises(KeyboardInterrupt, match="SIGINT"):
        xdpx.train(small(data, tmp_path, resume="auto", save_full_checkpoint=True))
    assert signal.getsignal(signal.SIGINT) is before
    assert xdpx.train(small(data, tmp_path, resume="auto", save_full_checkpoint=True)).scores


def test_preprocessing_gives_its_folder_and_refuses_as_the_command_does(data, tmp_path):
    config = {"data_source": data.parent / "raw", "data_dir": tmp_path / "data", "processor": "single"}
    config |= {"loader": "single", "tokenizer": "space", "max_len": 16}
    assert xdpx.preprocess(config) == str(tmp_path / "data")
    assert (tmp_path / "data" / "meta.hjson").is_file()
    assert "data_source" in refused(xdpx.preprocess, config, data_source=tmp_path / "nowhere")


def test_a_run_that_was_moved_without_its_data_predicts_the_same(data, tmp_path):
    copied = shutil.copytree(data, tmp_path / "data")
    run = xdpx.train(small(copied, tmp_path))
    expected, scores = run.predict(["w21 w22", "w45"]), run.scores
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "data")
    moved = xdpx.load_run(tmp_path / "elsewhere")
    assert moved.predict(["w21 w22", "w45"]) == expected
    assert moved.scores == scores
    assert "'dev' is neither a split" in refused(moved.evaluate)


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    run = xdpx.train(small(data, tmp_path))
    with open(run.checkpoint, "r+b") as file:
        file.truncate(900)
    with pytest.raises(OSError, match=r"checkpoint-\d\.pt"):
        xdpx.load_run(tmp_path / "run")
