import ast
import csv
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from xdpx.commands.predict import TextWriter, _write_arrays, kept_when_interrupted, logits_of, warn_of_commas
from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.training.status import Status
from xdpx.utils import commit


def predict(finished_run, source, **keys):
    target = finished_run.root / "out.tsv"
    finished_run.perform("x-pred", predict_file_map={str(source): str(target)}, **keys)
    return target


def read(path):
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


def expected_probabilities(finished_run, texts, step=10):
    """What the model says of each text alone: batches, order and padding must not matter."""
    words = (finished_run.data / "vocab.txt").read_text().split("\n")
    model = finished_run.build_model(step).eval()
    rows = []
    for text in texts:
        tokens = torch.tensor([[words.index(word) for word in text.split()]])
        with torch.inference_mode():
            rows.append(model(tokens=tokens, mask=torch.ones_like(tokens, dtype=torch.bool)).softmax(-1)[0].tolist())
    return rows


def test_every_row_comes_back_in_order_with_its_predictions(finished_run):
    rows = read(predict(finished_run, finished_run.root / "dev.txt"))
    assert rows[0] == ["text", "target", "pred", "prob", "target_prob"]
    assert [row[:2] for row in rows[1:]] == read(finished_run.root / "dev.txt")
    expected = expected_probabilities(finished_run, [row[0] for row in rows[1:]])
    for row, prob in zip(rows[1:], expected, strict=True):
        assert ast.literal_eval(row[3]) == pytest.approx(prob, abs=1e-5)
        assert row[2] == ["neg", "pos"][int(np.argmax(prob))]
        assert float(row[4]) == pytest.approx(prob[["neg", "pos"].index(row[1])], abs=1e-5)


def test_pandas_reads_texts_with_quotes_back_as_the_docs_say(finished_run):
    pandas = pytest.importorskip("pandas")
    texts = ['"good film', 'bad" film', '""', "NA", "null", " # good", "\\N", "a\u2028b\x85c", "   "]
    (finished_run.root / "odd.txt").write_text("\n".join(texts), encoding="utf-8")
    path = predict(finished_run, finished_run.root / "odd.txt")
    found = pandas.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False)
    assert found["text"].tolist() == texts


def test_a_file_without_labels_is_predicted_too(finished_run):
    rows = read(predict(finished_run, finished_run.root / "plain.txt"))
    assert rows[0] == ["text", "pred", "prob", "target_prob"]
    assert len(rows) == 5
    assert float(rows[1][3]) == max(ast.literal_eval(rows[1][2]))


def test_texts_that_the_model_can_hardly_read_are_told(finished_run, caplog):
    (finished_run.root / "glued.txt").write_text("thefilmwasgood\n" * 120)
    predict(finished_run, finished_run.root / "glued.txt")
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("100.0% of the tokens are not in the vocabulary" in line and "[unknown_tokens]" in line for line in told)
    assert any("Split them as the training texts are split. [long_tokens]" in line for line in told)
    caplog.clear()
    predict(finished_run, finished_run.root / "dev.txt")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_label_that_training_never_saw_does_not_stop_a_prediction(finished_run):
    (finished_run.root / "new.txt").write_text("good film\tmixed\n")
    rows = read(predict(finished_run, finished_run.root / "new.txt"))
    assert rows[1][1] == "mixed"
    assert rows[1][4] == "nan"


def test_the_best_checkpoint_is_the_default_and_any_other_can_be_named(finished_run):
    best = read(predict(finished_run, finished_run.root / "plain.txt"))
    for name in ("<last>", f"{finished_run.run}/<best>", f"{finished_run.run}/checkpoint-10.pt"):
        assert read(predict(finished_run, finished_run.root / "plain.txt", checkpoint=name)) == best
    other = read(
        predict(finished_run, finished_run.root / "plain.txt", checkpoint=f"{finished_run.run}/checkpoint-5.pt")
    )
    expected = expected_probabilities(finished_run, ["good film"], step=5)[0]
    assert ast.literal_eval(other[1][2]) == pytest.approx(expected, abs=1e-5)


def test_header_and_original_columns_can_be_left_out(finished_run):
    rows = read(predict(finished_run, finished_run.root / "dev.txt", header=False, concat_origin=False))
    assert len(rows) == 4
    assert all(row[0] in {"neg", "pos"} and len(row) == 3 for row in rows)


def test_at_most_so_many_rows_are_predicted(finished_run):
    for most in (1, 3, 9):
        assert len(read(predict(finished_run, finished_run.root / "dev.txt", max_predict=most))) == min(most, 4) + 1


def test_distill_puts_logits_before_the_label_and_adds_a_predicted_one_where_there_is_none(finished_run):
    labelled = read(predict(finished_run, finished_run.root / "dev.txt", distill=True))
    assert [row[0] for row in labelled] == [row[0] for row in read(finished_run.root / "dev.txt")]
    assert [row[2] for row in labelled] == ["pos", "neg", "pos", "neg"]
    logits = np.array([ast.literal_eval(row[1]) for row in labelled])
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = expected_probabilities(finished_run, [row[0] for row in labelled])
    assert shares == pytest.approx(np.array(expected), abs=1e-4)
    bare = read(predict(finished_run, finished_run.root / "plain.txt", distill=True))
    assert all(row[2] == ["neg", "pos"][int(np.argmax(ast.literal_eval(row[1])))] for row in bare)


def test_written_logits_give_the_probabilities_back_by_a_softmax_or_by_a_sigmoid_per_class():
    prob = np.array([[0.2, 0.8], [0.999999, 0.5]])
    kind = losses["bce"]
    of_each = logits_of({"prob": prob}, kind(kind.Parameters()))
    assert 1 / (1 + np.exp(-of_each)) == pytest.approx(prob)
    assert np.isfinite(logits_of({"prob": np.array([[0.0, 1.0]])}, kind(kind.Parameters()))).all()
    kind = losses["cross_entropy"]
    assert np.exp(logits_of({"prob": prob[:1]}, kind(kind.Parameters()))) == pytest.approx(prob[:1])


def test_binary_predictions_are_arrays_that_torch_loads_safely(finished_run):
    path = predict(finished_run, finished_run.root / "dev.txt", binary=True, concat_origin=False)
    arrays = torch.load(path, weights_only=True)
    assert arrays["row"].tolist() == [0, 1, 2, 3]
    assert arrays["target"].tolist() == [1, 0, 1, 0]
    assert arrays["prob"].shape == (4, 2)


def test_bad_lines_stop_the_prediction_and_leave_what_was_there(finished_run):
    (finished_run.root / "out.tsv").write_text("precious")
    bad = finished_run.root / "bad.txt"
    bad.write_text("good film\tpos\ntoo\tmany\tcolumns\nbad\tneg\n")
    with pytest.raises(ConfigError, match=r"bad\.txt:2: "):
        predict(finished_run, bad)
    assert (finished_run.root / "out.tsv").read_text() == "precious"
    assert not list(finished_run.root.glob("*interrupted*"))
    assert len(read(predict(finished_run, bad, skip_bad_lines=True, concat_origin=False))) == 3


def test_cells_stay_in_their_columns_whatever_they_hold(finished_run):
    (finished_run.root / "odd.jsonl").write_text('{"a": "good\\tfilm\\nplot", "b": "pos"}\n{"a": "", "b": "neg"}\n')
    extra = {"parser": "jsonl", "fields": ["a", "b"]}
    rows = read(predict(finished_run, finished_run.root / "odd.jsonl", extra_config=extra))
    assert rows[0][:2] == ["a", "b"]
    assert rows[1][:2] == ["good film plot", "pos"]
    assert len(rows) == 3


def test_a_column_with_the_name_of_a_predicted_one_gets_another(finished_run):
    source = finished_run.root / "told.txt"
    source.write_text("text\tpred\ngood film\tpos\n")
    rows = read(predict(finished_run, source, extra_config={"fields": ["text", "pred"]}))
    assert rows[0] == ["text", "input_pred", "pred", "prob", "target_prob"]
    assert rows[1][:2] == ["good film", "pos"]


@pytest.mark.parametrize(("name", "told"), [("out.csv", True), ("out.JSONL", True), ("out.txt", False)])
def test_an_ending_that_promises_another_layout_is_told(finished_run, name, told, caplog):
    wanted = {str(finished_run.root / "dev.txt"): str(finished_run.root / name)}
    finished_run.perform("x-pred", predict_file_map=wanted)
    assert ("is written as tab-separated text, despite its ending" in caplog.text) == told


def test_several_files_are_predicted_by_one_model(finished_run):
    targets = {"dev.txt": "a.tsv", "plain.txt": "b.tsv"}
    root = finished_run.root
    finished_run.perform("x-pred", predict_file_map={f"{root}/{key}": f"{root}/{to}" for key, to in targets.items()})
    assert (len(read(root / "a.tsv")[1]), len(read(root / "b.tsv")[1])) == (5, 4)


def test_initial_weights_of_a_config_can_be_used(finished_run):
    config = finished_run.config("train.hjson", **finished_run.values)
    target = predict(finished_run, finished_run.root / "plain.txt", config=config, seed=7)
    same = read(target)
    assert read(predict(finished_run, finished_run.root / "plain.txt", config="./train", seed=7)) == same
    assert read(predict(finished_run, finished_run.root / "plain.txt", config="./train", seed=8)) != same


def test_extra_config_may_be_a_file_and_decides_over_the_run(finished_run):
    finished_run.config("extra.hjson", batch_size=3)
    predict(finished_run, finished_run.root / "plain.txt", extra_config="./extra")
    with pytest.raises(ConfigError, match="extra_config.batch_sise.*Did you mean 'batch_size'"):
        predict(finished_run, finished_run.root / "plain.txt", extra_config={"batch_sise": 3})


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"processor": "pair"}, r"extra_config\.processor: 'pair' takes 2 texts per sample"),
        ({"loader": "pair"}, r"extra_config\.loader: 'single' takes 1 text per sample"),
        ({"label_separator": ","}, r'label_separator: is ",", but the model was trained with one label per row'),
    ],
)
def test_an_override_with_which_a_row_would_not_be_what_the_model_takes_is_refused(finished_run, extra, problem):
    with pytest.raises(ConfigError, match=problem):
        predict(finished_run, finished_run.root / "plain.txt", extra_config=extra)


def test_labels_with_a_comma_are_told_of_where_commas_stand_between_labels(capsys):
    warn_of_commas(["film", "plot"])
    assert not capsys.readouterr().err
    warn_of_commas(["film", "news, world"])
    assert "the label 'news, world' contains a comma, which also stands between" in capsys.readouterr().err


def test_after_ctrl_c_what_was_written_is_kept_beside_and_the_target_stays(tmp_path):
    target = tmp_path / "out.tsv"
    target.write_text("precious")

    def interrupted():
        with kept_when_interrupted(str(target)) as out:
            out.write("first row\n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "precious"
    assert (tmp_path / "out.interrupted.tsv").read_text() == "first row\n"


def test_ctrl_c_keeps_whole_rows_of_text_and_arrays(finished_run, monkeypatch):
    from xdpx.inference import predictor

    monkeypatch.setattr(predictor, "CHUNK_ROWS", 2)
    predict_chunk = predictor.Predictor.predict

    def interrupted(self, chunk):
        if chunk.rows[0][0].startswith("very"):
            raise KeyboardInterrupt
        return predict_chunk(self, chunk)

    monkeypatch.setattr(predictor.Predictor, "predict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict(finished_run, finished_run.root / "dev.txt")
    assert len(read(finished_run.root / "out.interrupted.tsv")) == 3
    with pytest.raises(KeyboardInterrupt):
        predict(finished_run, finished_run.root / "dev.txt", binary=True, concat_origin=False)
    assert torch.load(finished_run.root / "out.interrupted.tsv", weights_only=True)["row"].tolist() == [0, 1]
    assert not (finished_run.root / "out.tsv").exists()


def test_predictions_may_come_from_and_go_to_a_store(finished_run):
    from xdpx.utils import io

    io.copytree(str(finished_run.run), "memory://predict/run")
    io.copy(str(finished_run.root / "dev.txt"), "memory://predict/dev.txt")
    files = {"memory://predict/dev.txt": "memory://predict/out.tsv"}
    finished_run.perform("x-pred", save_dir="memory://predict/run", predict_file_map=files)
    with io.open("memory://predict/out.tsv") as table:
        assert len(table.read().splitlines()) == 5
    assert not io.exists("memory://predict/out.interrupted.tsv")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"predict_file_map": {}}, "predict_file_map.*is empty"),
        ({"predict_file_map": {"nowhere.txt": "out"}}, "'nowhere.txt' is neither a split"),
        ({"predict_file_map": {"{root}/dev.txt": "{root}/dev.txt"}}, "would replace its input"),
        ({"predict_file_map": {"{root}/dev.txt": "{root}/data"}}, "cannot be written"),
        ({"predict_file_map": {"{root}/dev.txt": "{root}/data/../dev.txt"}}, "would replace its input"),
        ({"predict_file_map": {"{root}/dev.txt": "{root}/plain.txt", "{root}/plain.txt": "o"}}, "replace its input"),
        ({"predict_file_map": {"{root}/dev.txt": "o.tsv.gz"}}, "'o.tsv.gz' would be tab-separated text"),
        ({"predict_file_map": {"{root}/dev.txt": "o", "{root}/plain.txt": "o"}}, "writes 'o' twice"),
        ({"predict_file_map": {"{root}/dev.txt": "o", "{root}/plain.txt": "./o"}}, "writes './o' twice"),
        ({"skip_bad_lines": True}, "contradicts skip_bad_lines"),
        ({"binary": True}, "contradicts binary"),
        ({"distill": True, "concat_origin": False}, "distill writes the texts"),
        ({"distill": True, "header": True}, "header.*switched off"),
        ({"save_dir": None}, "and config are both missing"),
        ({"save_dir": "{root}/run", "config": "train"}, "and config are both given"),
        ({"save_dir": "{root}/data"}, "checkpoint|args"),
        ({"checkpoint": "{root}/run/checkpoint-7.pt"}, "checkpoint-7.pt' does not exist"),
        ({"from_tf": True}, "is true, but checkpoint is missing"),
        ({"from_tf": True, "checkpoint": "{root}/run"}, "cannot be used: '.*' contains no saved_model.pb"),
        ({"max_predict": 0}, "max_predict"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_built(finished_run, keys, message):
    def filled(value):
        if isinstance(value, dict):
            return {filled(key): filled(each) for key, each in value.items()}
        return value.format(root=finished_run.root) if isinstance(value, str) else value

    wanted = {"predict_file_map": {"{root}/dev.txt": "{root}/out.tsv"}, "save_dir": "{root}/run"} | keys
    with pytest.raises(ConfigError, match=message):
        finished_run.perform("x-pred", **filled(wanted))


def test_no_raw_data_of_the_run_is_replaced_by_predictions(finished_run):
    raw, source = finished_run.root / "dev.txt", str(finished_run.root / "new.txt")
    before = raw.read_bytes()
    shutil.copy(raw, source)
    (finished_run.run / "args.py").write_text(repr({**finished_run.values, "data_size": {"dev": 4}}))
    with pytest.raises(ConfigError, match="dev.txt' is raw data that the run was trained or scored on"):
        finished_run.perform("x-pred", predict_file_map={source: str(raw)})
    assert raw.read_bytes() == before
    for _ in range(2):  # predictions may be replaced, although the pattern of raw files matches them
        finished_run.perform("x-pred", predict_file_map={source: str(finished_run.root / "out.txt")})


def test_no_file_of_the_model_is_replaced_by_predictions(finished_run):
    commit.seal(finished_run.data, "resources", ["vocab.txt"])
    Status("finished", 10, 10, "abc").write(str(finished_run.run))
    for target in (finished_run.data / "vocab.txt", finished_run.run / "valid.log.tsv"):
        before = target.read_bytes()
        with pytest.raises(ConfigError, match=f"'{target}' is a file of a run, an export or its data"):
            finished_run.perform("x-pred", predict_file_map={str(finished_run.root / "dev.txt"): str(target)})
        assert target.read_bytes() == before


def test_logits_that_a_loss_predicts_itself_are_written_once(tmp_path):
    of_rows = {"prob": np.array([[0.3, 0.7]]), "logits": np.array([[1.0, 2.0]])}
    predictor = SimpleNamespace(predict=lambda chunk: of_rows, task=SimpleNamespace(loss=None))
    chunks = [SimpleNamespace(kept=np.arange(1), num_rows=1)] * 2
    assert _write_arrays(chunks, predictor, str(tmp_path / "out.pt"), logits=True) == 2
    written = torch.load(tmp_path / "out.pt")
    assert written["logits"].tolist() == [[1.0, 2.0]] * 2
    assert written["row"].tolist() == [0, 1]


def test_fewer_rows_than_samples_are_the_fault_of_the_loss():
    task = SimpleNamespace(rows=lambda predictions, labels: iter([["a"]]), loss={})
    predictor = SimpleNamespace(predict=lambda chunk: {}, labels=None, task=task)
    writer = SimpleNamespace(_predictor=predictor, _options=SimpleNamespace(distill=False))
    chunk = SimpleNamespace(samples=[1, 2], kept=[0, 1])
    with pytest.raises(ConfigError, match=r"loss: 'dict.rows' returns 1 rows for 2 samples"):
        TextWriter._cells(writer, chunk)
