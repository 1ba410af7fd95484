import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import xdpx
from xdpx.commands import python_door
from xdpx.config.faults import ConfigError
from xdpx.search.spaces import Float, Space


def refused(call, *given, **named) -> str:
    with pytest.raises(ConfigError) as error:
        call(*given, **named)
    return str(error.value)


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
    assert "nothing: contains a object" in said
    said = refused(xdpx.train, small(data, tmp_path, learning_rte=1), max_update="many")
    assert "the dict: 2 faults" in said
    assert "learning_rte: no such key" in said
    assert "max_update (command line): is 'many'" in said
    loop = small(data, tmp_path, __parent__=[f"{data}/meta", [{"seed": 1}, {"seed": 2}]], save_dir="out/${seed}")
    assert "describes 2 runs" in refused(xdpx.train, loop)
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
    told = refused(moved.evaluate)
    assert "'dev' is neither a split" in told
    assert "That folder no longer exists: if it was moved, give the new path" in told


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    run = xdpx.train(small(data, tmp_path))
    with open(run.checkpoint, "r+b") as file:
        file.truncate(900)
    with pytest.raises(OSError, match=r"checkpoint-\d\.pt"):
        xdpx.load_run(tmp_path / "run")


def test_a_search_space_may_be_a_path_a_space_or_its_dimensions(tmp_path: Path) -> None:
    dimension = Float("dropout", 0.1, 0.5)
    written = {"dropout": {"type": "float", "values": [0.1, 0.5], "log": False}}
    given = (written, Space([dimension]), [dimension], (dimension,), tmp_path / "space.hjson", "space.hjson", None)
    paths = [str(tmp_path / "space.hjson"), "space.hjson", None]
    assert [python_door._space_of(each) for each in given] == [*[written] * 4, *paths]
    with pytest.raises(ConfigError, match=r"space: is \[\{dropout: \[0.1\]\}\]. Give \{name:"):
        python_door.tune({}, space=[{"dropout": [0.1]}])  # type: ignore[list-item]
