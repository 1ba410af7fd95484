"""A run leaves as a folder that answers elsewhere what it answered here, in every format."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import xdpx
from tests.checkpoints.test_folders import dead_owner
from tests.scripts.conftest import trained
from xdpx.commands import export_int8, rounding
from xdpx.commands.script import SHIPPED, main
from xdpx.config.faults import ConfigError
from xdpx.inference import export_folder, exporting
from xdpx.inference.answering import answers_fully
from xdpx.inference.exported import ExportedEngine
from xdpx.inference.formats import FORMATS, format_named
from xdpx.inference.plan import InferenceParameters, Input, make_plan
from xdpx.inference.predictor import Predictor
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.losses.static_distill import StaticDistill
from xdpx.processors.samples import Samples
from xdpx.run import main as command
from xdpx.tokenizers.words import SpaceTokenizer
from xdpx.utils import io

TEXTS = ["good film", "very bad", "", "I 💛 \U0001d518 好", "good " * 200]
LIGHT = ("onnx", "openvino", "pt2", "torchscript")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light")
    trained(folder, "single", "cls_cnn", {"embedding_dim": 4, "hidden_size": 8})
    rows = [f"{words}\t{label}\n" for words, label in (("good film", "pos"), ("bad film", "neg"), ("very bad", "neg"))]
    (folder / "rows.tsv").write_text("".join(rows * 4))
    return folder / "run"


def export(name: str, run_dir: Path, out: Path, *more: str) -> int:
    keys = [f"save_dir={run_dir}", "checkpoint=<last>", f"out_dir={out}", f"rows={run_dir.parent / 'rows.tsv'}"]
    return main([f"export_{name}", *keys, *more])


@pytest.fixture(scope="module")
def exported(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def folder(name: str) -> Path:
        out = tmp_path_factory.mktemp(name) / "out"
        assert export(name, run_dir, out) == 0
        return out

    return folder


@pytest.mark.parametrize("name", LIGHT)
def test_an_export_answers_as_its_run_wherever_it_lies(
    name: str, run_dir: Path, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    for package in format_named(name).packages:
        pytest.importorskip(package)
    moved = shutil.copytree(exported(name), tmp_path / "moved")
    wanted, found = (xdpx.load_run(str(each), **how).predict(TEXTS) for each, how in ((run_dir, LAST), (moved, {})))
    assert [one.label for one in found] == [one.label for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)
    assert json.loads((moved / "export.json").read_text())["compared"]["rows"] >= 12


LAST: dict[str, Any] = {"checkpoint": "<last>"}
SAYS = """
import json, sys
import xdpx

found = xdpx.load_run(sys.argv[1]).predict(json.loads(sys.argv[2]))
print(json.dumps(["torch" in sys.modules, [one.label for one in found], [one.probabilities for one in found]]))
"""


def test_a_classifier_in_onnx_predicts_without_torch(run_dir: Path, exported: Callable[[str], Path]) -> None:
    for package in format_named("onnx").packages:
        pytest.importorskip(package)
    words = [sys.executable, "-c", SAYS, str(exported("onnx")), json.dumps(TEXTS)]
    done = subprocess.run(words, timeout=100, check=True, capture_output=True, text=True, cwd=run_dir)
    with_torch, labels, probabilities = json.loads(done.stdout)
    wanted = xdpx.load_run(run_dir, **LAST).predict(TEXTS)
    assert not with_torch
    assert labels == [one.label for one in wanted]
    for one, other in zip(probabilities, wanted, strict=True):
        assert one == pytest.approx(other.probabilities, abs=1e-6)


def test_a_file_with_answers_does_not_answer_for_a_loss_that_was_changed(exported: Callable[[str], Path]) -> None:
    for package in format_named("onnx").packages:
        pytest.importorskip(package)
    folder = str(exported("onnx"))
    plain = xdpx.load_run(folder).predict(TEXTS)
    assert {one.label for one in plain} == {"neg", "pos"}
    certain = xdpx.load_run(folder, extra_config={"predict_threshold": 1.0}).predict(TEXTS)
    assert {one.label for one in certain} == {"neg"}
    predictor = Predictor(make_plan(InferenceParameters(save_dir=folder), folder), temperature=100.0)
    chunk = next(
        predictor.chunks(Input("rows", "rows", is_store=False, reading=predictor.plan.prepro, rows=[["good"]]))
    )
    assert predictor.predict(chunk)["prob"] == pytest.approx(0.5, abs=0.02)


def test_a_loss_of_a_user_is_asked_itself_and_not_written_into_a_file() -> None:
    class Own(CrossEntropy):
        pass

    def written(loss: type[CrossEntropy]) -> bool:
        return answers_fully(SimpleNamespace(outputs=["logits"], loss=loss(loss.Parameters())))  # type: ignore[arg-type]

    assert written(CrossEntropy)
    assert written(StaticDistill)  # a student is served without its teacher
    assert not written(Own)


def test_the_commands_take_an_export_for_a_run(
    exported: Callable[[str], Path], run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = run_dir.parent / "rows.tsv", shutil.copytree(exported("torchscript"), tmp_path / "taken")
    config = {"save_dir": str(out), "predict_file_map": {str(rows): str(tmp_path / "found.tsv")}}
    (tmp_path / "pred.json").write_text(json.dumps(config))
    assert command(["x-pred", str(tmp_path / "pred.json")]) == 0
    assert len((tmp_path / "found.tsv").read_text().splitlines()) == 13
    (tmp_path / "eval.json").write_text(json.dumps({"save_dir": str(out), "valid_subset": str(rows)}))
    assert command(["x-eval", str(tmp_path / "eval.json")]) == 0
    with pytest.raises(ConfigError, match=r"checkpoint: is <best>, but .* is an export: one network, for the CPU"):
        xdpx.load_run(out, checkpoint="<best>")


def test_files_of_a_users_own_tokenizer_leave_with_the_network(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpaceTokenizer, "files", lambda self: {"rules.json": "{}"})
    assert export("torchscript", run_dir, tmp_path / "out") == 0
    assert (tmp_path / "out/rules.json").read_text() == "{}"
    assert not export_folder.foreign_files(str(tmp_path / "out"))


def test_what_a_user_has_in_a_folder_is_never_replaced(
    exported: Callable[[str], Path], run_dir: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    for way in (mine, mine / "new" / ".."):
        with pytest.raises(ConfigError, match="contains something that is not a complete export"):
            export("torchscript", run_dir, way)
    earlier = shutil.copytree(exported("torchscript"), tmp_path / "earlier")
    with pytest.raises(ConfigError, match="is an export to torchscript"):
        export("pt2", run_dir, earlier)
    with pytest.raises(ConfigError, match="is already an export"):
        main(["export_torchscript", f"save_dir={earlier}", f"out_dir={tmp_path / 'again'}"])
    (earlier / "labels.txt").write_text("altered")
    assert export("torchscript", run_dir, earlier) == 0
    assert (earlier / "labels.txt").read_text() == "neg\npos\n"
    (earlier / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"it also contains notes\.txt"):
        export("torchscript", run_dir, earlier)
    assert (earlier / "notes.txt").read_text() == (mine / "notes.txt").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["earlier", "mine"]


def test_what_an_export_cannot_do_is_refused_and_not_passed_over(
    exported: Callable[[str], Path], run_dir: Path, tmp_path: Path
) -> None:
    network = {"model": "gru", "hidden_size": 16, "num_classes": 3, "pad_index": 1, "task": "fewshot", "engine": "spmd"}
    with pytest.raises(ConfigError) as refused:
        xdpx.load_run(exported("torchscript"), extra_config=network)
    assert [fault.key for fault in refused.value.faults] == [f"extra_config.{key}" for key in network]
    assert "would change nothing: '" in str(refused.value)
    with pytest.raises(ConfigError, match=r"extra_config\.exact: .* key of the command.*beside extra_config"):
        xdpx.load_run(exported("torchscript"), extra_config={"exact": True})
    assert xdpx.load_run(exported("torchscript"), extra_config={"max_len": 5}).predict(TEXTS)
    with pytest.raises(
        ConfigError, match=r"extra_config\.max_len: is 41, but .* texts of up to 40 tokens\. Use at most"
    ):
        xdpx.load_run(exported("torchscript"), extra_config={"max_len": 41})
    for word, said in (
        ("exact=true", "True, but other libraries"),
        ("cuda=true", "True, but an export is one network"),
        ("nproc=2", "2, but one process"),
        ("engine=spmd", "spmd, but an export is written by PyTorch"),
    ):
        with pytest.raises(ConfigError, match=rf"{word.partition('=')[0]} .*is {said}"):
            export("torchscript", run_dir, tmp_path / "out", word)
    for threads in (0, -2, 1.5):
        with pytest.raises(ConfigError, match=rf"load_run: 1 fault\n  threads: is {threads}\. Use a whole number"):
            xdpx.load_run(exported("torchscript"), threads=threads)
    with pytest.raises(ConfigError, match=r"save_dir: is empty\. Name the folder of a run"):
        xdpx.load_run("")


def test_the_current_folder_is_never_replaced(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk/notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path / "desk")
    for empty in ("", " "):
        with pytest.raises(ConfigError, match="out_dir.*is an empty path"):
            main(["export_torchscript", f"save_dir={run_dir}", "checkpoint=<last>", f"out_dir={empty}"])
    with pytest.raises(ConfigError, match="contains something"), exporting.staged("", {"format": "onnx"}):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["desk", "notes.txt"]


def test_what_came_into_a_folder_while_an_export_was_written_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def written_slowly() -> None:
        with exporting.staged(str(out), {"format": "onnx"}):
            out.mkdir()
            (out / "notes.txt").write_text("mine")

    with pytest.raises(ConfigError, match="contains something"):
        written_slowly()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


@pytest.mark.parametrize("error", [RuntimeError("basic_ios::clear: iostream error"), ConfigError("x", [])])
def test_a_full_disk_is_told_of_whatever_error_a_library_makes_of_it(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(error)), exporting.told_of_full_disk(str(tmp_path)):
        raise error
    monkeypatch.setattr(io.local_files, "usable_space", lambda path: 0)
    with pytest.raises(OSError, match="No space left on device"), exporting.told_of_full_disk(str(tmp_path)):
        raise error


def test_what_a_killed_export_left_is_cleared_by_the_next_and_what_it_replaced_comes_back(
    exported: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(exported("torchscript"), tmp_path / f"out.replaced.tmp-{dead_owner()}")
    for name in ("out", "other"):
        shutil.copytree(exported("torchscript"), tmp_path / f"{name}.tmp-{dead_owner()}")

    def fails() -> None:
        with exporting.staged(str(tmp_path / "out"), {"format": "torchscript"}):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fails()
    other, out = sorted(tmp_path.iterdir())
    assert out.name == "out"
    assert other.name.startswith("other.tmp-")


def test_pages_of_scores_and_a_temperature_do_not_stand_in_the_way_of_the_next_export(
    exported: Callable[[str], Path], run_dir: Path, tmp_path: Path
) -> None:
    out, rows = shutil.copytree(exported("torchscript"), tmp_path / "taken"), run_dir.parent / "rows.tsv"
    (tmp_path / "eval.json").write_text(json.dumps({"save_dir": f"{out}/", "valid_subset": str(rows)}))
    assert command(["x-eval", str(tmp_path / "eval.json")]) == 0
    assert [path.name for path in (tmp_path / "taken.eval").glob("*.html")] == ["model-rows.tsv.html"]
    (out / "temperature.json").write_text("{}")
    assert export("torchscript", run_dir, out) == 0
    assert not (out / "temperature.json").exists()


def test_an_export_that_answers_other_than_the_run_is_refused(
    exported: Callable[[str], Path], run_dir: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(run_dir, tmp_path / "other")
    weights = torch.load(other / "checkpoint-5.pt", weights_only=True)
    torch.save({name: 2 * value for name, value in weights.items()}, other / "checkpoint-5.pt")
    plan = make_plan(InferenceParameters(save_dir=str(other), checkpoint="<last>"), "test")
    predictor, outputs = Predictor(plan, cuda=False), exporting.Compared(0, 0.0, 0.0, 0, "12 rows")
    chunks, _ = exporting.real_rows(predictor, str(run_dir.parent / "rows.tsv"), 12, "test")
    with pytest.raises(ConfigError, match=r"differs from the run: predictions for 12 rows differ by"):
        exporting.compared(predictor, str(exported("torchscript")), chunks, outputs, 1e-4)
    rounded = exporting.compared(predictor, str(exported("torchscript")), chunks, outputs, exporting.ANY_NUMBER)
    assert rounded.predictions > 1e-4


def test_what_a_file_answers_itself_is_compared_on_labelled_rows_too(
    exported: Callable[[str], Path], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in format_named("onnx").packages:
        pytest.importorskip(package)
    own = ExportedEngine._answered
    plan = make_plan(InferenceParameters(save_dir=str(run_dir), checkpoint="<last>"), "test")
    predictor = Predictor(plan, cuda=False)
    (chunk, *_), _ = exporting.real_rows(predictor, str(run_dir.parent / "rows.tsv"), 4, "test")
    labelled = Samples({**chunk.samples.columns, "target": np.zeros(4, np.int64)})
    of_store, none = chunk._replace(rows=[], samples=labelled), exporting.Compared(0, 0.0, 0.0, 0, "4 rows")
    assert exporting.compared(predictor, str(exported("onnx")), [of_store], none, 1e-4).changed == 0
    monkeypatch.setattr(ExportedEngine, "_answered", lambda self, batch: own(self, batch) | {"prob": np.zeros((4, 2))})
    with pytest.raises(ConfigError, match="differs from the run: predictions for 4 rows differ by"):
        exporting.compared(predictor, str(exported("onnx")), [of_store], none, 1e-4)


def test_rows_that_a_loss_compares_are_scored_together_though_8_bits_take_them_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    trained(tmp_path, "single", "cls_cnn", {"embedding_dim": 4, "hidden_size": 8, "loss": "circle"})
    (tmp_path / "rows.tsv").write_text("good film\tpos\nvery bad\tneg\n" * 2)
    assert export("onnx", tmp_path / "run", tmp_path / "out", "quantise=int8", "most_lost=100") == 0
    rows = ["good film", "very bad"] * 2, ["pos", "neg"] * 2
    wanted, found = (
        xdpx.load_run(tmp_path / name, **how).evaluate(*rows) for name, how in (("run", LAST), ("out", {}))
    )
    assert wanted["loss"] > 1
    assert found["loss"] == pytest.approx(wanted["loss"], rel=0.05)


def test_rows_that_are_there_but_not_to_be_used_are_not_called_gone(run_dir: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run_dir, tmp_path / "run")
    data = shutil.copytree(run_dir.parent / "data", tmp_path / "data")
    (other / "args.py").write_text((run_dir / "args.py").read_text().replace(str(run_dir.parent), str(tmp_path)))
    shutil.copy(data / "vocab.txt", other), shutil.copy(data / "target_map.txt", other)
    keys = [f"save_dir={other}", "checkpoint=<last>", f"out_dir={tmp_path / 'out'}"]
    assert main(["export_torchscript", *keys]) == 0
    assert "no rows of dev, which is gone" in json.loads((tmp_path / "out/export.json").read_text())["compared"]["what"]
    (data / "dev.pt").touch()
    (data / "vocab.txt").write_text("[PAD]\n[UNK]\nother\n")
    with pytest.raises(ConfigError, match=r"rows: .*vocab\.txt"):
        main(["export_torchscript", *keys])


def test_ranges_that_are_calibrated_on_the_rows_of_the_score_are_warned_of(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = make_plan(InferenceParameters(save_dir=str(run_dir), checkpoint="<last>"), "test")
    predictor = Predictor(plan, cuda=False)
    chunks, _ = exporting.real_rows(predictor, str(run_dir.parent / "rows.tsv"), 12, "test")
    assert exporting.exportable_of(predictor, chunks, calibrated=True).calibration
    assert "the training rows are gone" in caplog.text


def test_a_damaged_export_is_refused(exported: Callable[[str], Path], tmp_path: Path) -> None:
    moved = shutil.copytree(exported("torchscript"), tmp_path / "moved")
    content = bytearray((moved / "model.pth").read_bytes())
    content[len(content) // 2] ^= 1
    (moved / "model.pth").write_bytes(content)
    with pytest.raises(OSError, match=r"model\.pth: its content is not what was written.*Export it again"):
        xdpx.load_run(moved)
    (moved / "vocab.txt").write_bytes((moved / "vocab.txt").read_bytes().replace(b"film", b"fiml"))
    with pytest.raises(OSError, match=r"vocab\.txt: its content is not what was written.*Export it again"):
        make_plan(InferenceParameters(save_dir=str(moved)), "test")
    (moved / "export.json").write_text('{"version": 1, "format": "torchscript"}')
    with pytest.raises(ConfigError, match="export: cannot be read .'file'.*Export it again"):
        xdpx.load_run(moved)
    (moved / "export.json").write_text('{"version": 99, "format": "torchscript"}')
    with pytest.raises(ConfigError, match="written by a newer xdpx"):
        xdpx.load_run(moved)
    (moved / "export.json").unlink()
    with pytest.raises(ConfigError, match=r"is an export, but its export\.json is missing\. Export it again"):
        xdpx.load_run(moved)


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_eight_bits_tell_what_they_cost(
    name: str, run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in (*format_named(name).packages, *(["nncf"] if name == "openvino" else [])):
        pytest.importorskip(package)
    out = tmp_path / "out"
    assert export(name, run_dir, out, "quantise=int8", "most_lost=100") == 0
    told = capsys.readouterr().out
    assert "after rounding" in told
    assert "times as fast)" in told
    assert {"before", "after", "metric"} <= json.loads((out / "export.json").read_text())["rounding"].keys()
    assert len(xdpx.load_run(out).predict(TEXTS)) == len(TEXTS)


def test_the_faster_way_to_eight_bits_is_kept_and_all_are_told(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("onnxruntime", "openvino", "nncf"):
        pytest.importorskip(package)
    out = tmp_path / "out"
    for kept, seconds in (("openvino", [2.0, 1.0]), ("onnx", [1.0, 2.0])):  # one is replaced by the other
        monkeypatch.setattr(export_int8.ExportInt8, "_in_turn", lambda command, tried, told=seconds: told)
        assert export("int8", run_dir, out, "most_lost=100") == 0
        told = capsys.readouterr().out
        assert [told.count(way) for way in ("ONNX, dynamic", "OpenVINO, static", "acc before")] == (
            [2, 1, 1] if kept == "onnx" else [1, 2, 1]
        )
        assert json.loads((out / "export.json").read_text())["format"] == kept
        assert len(xdpx.load_run(out).predict(TEXTS)) == len(TEXTS)
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_way_to_eight_bits_that_is_not_installed_is_said(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(format_named("openvino"), "rounding_packages", ("no_such_package",))
    assert export("int8", run_dir, tmp_path / "out", "most_lost=100") == 0
    told = capsys.readouterr().out
    assert "not kept: export_openvino needs " in told
    assert "no_such_package, which this environment lacks. Run: pip install 'xdpx[openvino]'." in told
    with pytest.raises(ConfigError, match="which this environment lacks"):
        export("openvino", run_dir, tmp_path / "other", "quantise=int8")
    (tmp_path / "plain.tsv").write_text("good film\n")
    with pytest.raises(ConfigError, match="rows: has no labels"):
        export("int8", run_dir, tmp_path / "other", f"rows={tmp_path / 'plain.tsv'}")
    monkeypatch.setattr(rounding, "scored", lambda predictor, source: {"acc": float("nan")})
    with pytest.raises(ConfigError, match=r"quantise: takes acc on .* from nan to nan"):
        export("int8", run_dir, tmp_path / "other", "most_lost=100")
    assert {each.name for each in tmp_path.iterdir()} == {"out", "plain.tsv"}


def test_eight_bits_that_cost_too_much_leave_nothing(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    scores = iter([{"acc": 0.9}, {"acc": 0.893}])
    monkeypatch.setattr(rounding, "scored", lambda predictor, source: next(scores))
    with pytest.raises(ConfigError, match=r"quantise: takes acc on .* from 0\.9000 to 0\.8930: 0\.70 points lost"):
        export("onnx", run_dir, tmp_path / "out", "quantise=int8")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("metric", "before", "after", "ascending", "lost"),
    [
        ("loss", 190.1082, 190.4830, False, "0.20 %"),
        ("mse", 0.02, 0.03, False, "50.00 %"),
        ("mse", 0.0, 0.1, False, "inf %"),
        ("r2", -0.5, -0.6, True, "20.00 %"),
        ("f1", 0.90, 0.893, True, "0.70 points"),
        ("mcc", -0.1, 0.1, True, "-20.00 points"),
    ],
)
def test_what_rounding_costs_is_judged_in_points_or_for_metrics_without_bounds_in_percent(
    metric: str, before: float, after: float, ascending: bool, lost: str
) -> None:
    unit = rounding.unit_of(metric)
    assert f"{rounding.lost_of(before, after, unit=unit, ascending=ascending):.2f} {unit}" == lost


def test_every_format_has_its_script() -> None:
    assert {f"export_{name}" for name in FORMATS} <= set(SHIPPED)
