import json
import math
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from xdpx.commands.evaluate import _tell_of_batch_size
from xdpx.config.args_file import PREPRO_ARGS
from xdpx.config.faults import ConfigError
from xdpx.losses import losses


def scores(capsys):
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_raw_file_with_labels_is_scored(finished_run, capsys):
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"))
    row = scores(capsys)[0]
    assert list(row)[:2] == ["checkpoint", "split"]
    assert float(row["acc"]) in {0, 0.25, 0.5, 0.75, 1}
    assert list(row)[2:] == sorted(list(row)[2:])


def test_what_training_was_scored_on_is_the_default(finished_run, capsys):
    dev = str(finished_run.root / "dev.txt")
    (finished_run.run / "args.py").write_text(repr({**finished_run.values, "valid_subset": dev}))
    finished_run.perform("x-eval", valid_subset=dev)
    finished_run.perform("x-eval")
    first, second = scores_of_all(capsys)
    assert first == second


def test_batches_do_not_change_the_scores(finished_run, capsys):
    for size in (1, 2, 50):
        finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), batch_size=size)
    rows = [float(row["loss"]) for row in scores_of_all(capsys)]
    assert rows == pytest.approx([rows[0]] * 3, abs=1e-6)


def scores_of_all(capsys):
    lines = capsys.readouterr().out.splitlines()
    header = lines[0].split("\t")
    return [dict(zip(header, line.split("\t"), strict=True)) for line in lines if line.split("\t") != header]


def test_a_label_that_training_never_saw_is_named_with_its_file_and_line(finished_run):
    path = finished_run.root / "new.txt"
    path.write_text("good film\tpos\nbad film\tmixed\n")
    with pytest.raises(ConfigError, match=r"new\.txt:2: .*'mixed'"):
        finished_run.perform("x-eval", valid_subset=str(path))


def test_labels_that_training_never_saw_can_count_as_class_0(finished_run, capsys):
    path = finished_run.root / "new.txt"
    path.write_text("good film\tpos\nbad film\tmixed\n")
    finished_run.perform("x-eval", valid_subset=str(path), ignore_novel_target=True)
    assert "1 label that training lacks, such as 'mixed'," in capsys.readouterr().err
    finished_run.perform("x-eval", valid_subset=str(path), ignore_novel_target=True)
    (finished_run.root / "same.txt").write_text("good film\tpos\nbad film\tneg\n")
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "same.txt"))
    first, second = scores_of_all(capsys)
    assert first["loss"] == second["loss"]


def test_a_file_without_labels_cannot_be_scored(finished_run):
    with pytest.raises(ConfigError, match="has no labels"):
        finished_run.perform("x-eval", valid_subset=str(finished_run.root / "plain.txt"))


def test_bad_lines_of_one_input_are_not_told_of_the_next(finished_run, capsys):
    root = finished_run.root
    (root / "A.txt").write_text("good film\tpos\nbad film\tpos\nno\tlabel\tat all\nvery good\tneg\n")
    (root / "B.txt").write_text("good film\tpos\nbad film\tneg\n")
    finished_run.perform("x-eval", valid_subset=[f"{root}/A.txt", f"{root}/B.txt"], skip_bad_lines=True)
    told = [line for line in capsys.readouterr().err.splitlines() if "ms per batch" in line]
    assert ["1 bad lines skipped" in line for line in told] == [True, False]


def test_a_student_is_scored_on_labels_although_it_learns_without(finished_run):
    (finished_run.run / "args.py").write_text(repr({**finished_run.values, "loss": "static_distill"}))
    with pytest.raises(ConfigError, match="has no labels"):
        finished_run.perform("x-eval", valid_subset=str(finished_run.root / "plain.txt"))


def test_scores_are_added_to_a_file_under_one_header(finished_run, capsys):
    kept = finished_run.root / "scores.tsv"
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "save_to_file": str(kept)}
    finished_run.perform("x-eval", **keys)
    finished_run.perform("x-eval", **keys)
    assert len(kept.read_text().splitlines()) == 3
    finished_run.perform("x-eval", **keys, save_mode="w")
    assert len(kept.read_text().splitlines()) == 2


def test_an_unlabelled_and_an_unknown_input_are_refused_before_the_model_is_built(finished_run):
    with pytest.raises(ConfigError, match="'dve' is neither a split"):
        finished_run.perform("x-eval", valid_subset="dve")


def test_max_eval_steps_counts_batches(finished_run, capsys):
    (finished_run.root / "one.txt").write_text(
        "".join((finished_run.root / "dev.txt").read_text().splitlines(True)[:2])
    )
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), max_eval_steps=99)
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), max_eval_steps=1)
    whole, part = scores_of_all(capsys)
    assert whole["loss"] != part["loss"]


def test_compare_origin_needs_a_finished_run_and_a_logged_step(finished_run):
    config = finished_run.config("train.hjson", **finished_run.values)
    with pytest.raises(ConfigError, match="compare_origin.*Give its save_dir"):
        finished_run.perform("x-eval", valid_subset="dev", config=config, compare_origin=True)
    weights = finished_run.run / "mine.pt"
    (finished_run.run / "checkpoint-10.pt").rename(weights)
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "compare_origin": True, "checkpoint": str(weights)}
    with pytest.raises(ConfigError, match="has no row for this checkpoint"):
        finished_run.perform("x-eval", **keys)


def test_compare_origin_fails_where_a_score_is_another_one(finished_run, capsys):
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"))
    row = scores(capsys)[0]
    log = finished_run.run / "valid.log.tsv"
    log.write_text(f"epoch\tstep\tvalid_acc\tvalid_loss\tbest_score\n1\t10\t{row['acc']}\t{row['loss']}\t0.5\n")
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "compare_origin": True}
    finished_run.perform("x-eval", **keys)
    log.write_text("epoch\tstep\tvalid_acc\tvalid_loss\tbest_score\n1\t10\t0.123\t9\t0.5\n")
    with pytest.raises(SystemExit, match="2 metrics differ"):
        finished_run.perform("x-eval", **keys)


# ---- on what x-prepro and x-train really made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Pairs of texts, preprocessed and trained on by the commands themselves; whether two texts share a word."""
    root = tmp_path_factory.mktemp("trained")
    draw = random.Random(1)
    words = [f"w{number}" for number in range(30)]
    for name, count in (("train", 200), ("dev", 57)):
        pairs = [(draw.choices(words, k=draw.randint(1, 9)), draw.choices(words, k=3)) for _ in range(count)]
        lines = [f"{' '.join(left)}\t{' '.join(right)}\t{int(bool({*left} & {*right}))}\n" for left, right in pairs]
        (root / f"{name}.txt").write_text("".join(lines))
    prepro = {"data_source": str(root), "data_dir": str(root / "data"), "loader": "pair", "tokenizer": "space"}
    perform(root, "x-prepro", **prepro, processor="pair", max_len=16)
    train = {"__parent__": str(root / "data/meta"), "data_dir": str(root / "data"), "save_dir": str(root / "run")}
    train |= {"model": "re2", "embedding_dim": 8, "hidden_size": 8, "blocks": 1, "encoder_layers": 1, "batch_size": 16}
    train |= {"loss": "cross_entropy", "learning_rate": 0.01, "max_update": 20, "eval_interval": 10}
    perform(root, "x-train", **train, major_metric="acc", save_full_checkpoint=True)
    return root


def perform(root, command, **keys):
    from xdpx.commands import commands
    from xdpx.config.loading import load

    (root / f"{command}.hjson").write_text(json.dumps(keys))
    made = commands[command]
    for run in load(str(root / command), command, inspect=lambda run: made(run).check()):
        made(run).run()


def test_x_eval_gives_the_very_scores_that_training_logged(trained, capsys):
    keys = {"save_dir": str(trained / "run"), "valid_subset": "dev", "compare_origin": True}
    for checkpoint in ("<best>", "<last>", str(trained / "run/checkpoint-10.pt")):
        perform(trained, "x-eval", **keys, checkpoint=checkpoint)
    assert len({row["checkpoint"] for row in scores_of_all(capsys)}) == 2


def test_a_split_a_store_and_the_raw_file_are_scored_alike(trained, capsys):
    inputs = ["dev", str(trained / "data/dev.pt"), str(trained / "dev.txt")]
    perform(trained, "x-eval", save_dir=str(trained / "run"), valid_subset=inputs)
    first, *others = scores_of_all(capsys)
    for row in others:
        assert {key: float(first[key]) for key in ("acc", "loss")} == pytest.approx(
            {key: float(row[key]) for key in ("acc", "loss")}, abs=1e-6
        )


def test_texts_without_labels_are_scored_by_a_loss_that_compares_them(tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdef"]))
    for name, count in (("train", 12), ("dev", 9)):
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"{'abcdef'[row % 6]} a\t{'bcd'[row % 3]} f\n" for row in range(count))
        )
    prepro = {"data_source": str(tmp_path), "data_files": {"train.txt": "train", "dev.txt": "dev"}, "loader": "pair"}
    prepro |= {
        "processor": "bert_cl_pair",
        "tokenizer": "space",
        "max_len": 16,
        "vocab_file": str(tmp_path / "vocab.txt"),
    }
    perform(tmp_path, "x-prepro", **prepro, data_dir=str(tmp_path / "data"))
    train = {
        "__parent__": str(tmp_path / "data/meta"),
        "data_dir": str(tmp_path / "data"),
        "save_dir": str(tmp_path / "r"),
    }
    train |= {"model": "simcse", "loss": "simcse", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    train |= {
        "num_attention_heads": 2,
        "max_position_embeddings": 20,
        "batch_size": 4,
        "max_update": 2,
        "eval_interval": 2,
    }
    perform(tmp_path, "x-train", **train, learning_rate=0.01, pretrained_model=None, major_metric="acc")
    perform(tmp_path, "x-eval", save_dir=str(tmp_path / "r"), valid_subset=["dev", str(tmp_path / "dev.txt")])
    split, raw = scores_of_all(capsys)
    assert {**split, "split": ""} == {**raw, "split": ""}


def test_predictions_agree_with_the_score(trained, capsys):
    perform(trained, "x-eval", save_dir=str(trained / "run"), valid_subset="dev")
    accuracy = float(scores(capsys)[0]["acc"])
    files = {str(trained / "dev.txt"): str(trained / "raw.tsv")}
    perform(trained, "x-pred", save_dir=str(trained / "run"), predict_file_map=files)
    rows = [line.split("\t") for line in (trained / "raw.tsv").read_text().splitlines()]
    assert rows[0] == ["text1", "text2", "target", "pred", "prob", "target_prob"]
    assert sum(row[2] == row[3] for row in rows[1:]) / 57 == pytest.approx(accuracy)
    files = {"dev": str(trained / "split.tsv")}
    perform(trained, "x-pred", save_dir=str(trained / "run"), predict_file_map=files, concat_origin=False)
    split = [line.split("\t") for line in (trained / "split.tsv").read_text().splitlines()]
    assert [row[3] for row in rows] == [row[0] for row in split]


def test_a_run_can_be_used_without_its_preprocessed_data_only_where_that_is_not_needed(trained, tmp_path):
    moved = {"data_dir": str(trained / "gone")}
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / PREPRO_ARGS).unlink()
    keys = {"save_dir": str(tmp_path / "run"), "extra_config": moved}
    with pytest.raises(ConfigError, match=r"is raw text, but .*gone/args\.py.* no longer exists"):
        perform(trained, "x-eval", **keys, valid_subset=str(trained / "dev.txt"))
    perform(trained, "x-eval", **keys, valid_subset=str(trained / "data/dev.pt"))


def test_keys_that_act_only_on_texts_are_refused_for_a_split_and_told_beside_a_file(trained, caplog):
    keys = {"save_dir": str(trained / "run"), "extra_config": {"max_len": 5, "lower": False}}
    with pytest.raises(ConfigError, match=r"max_len: would change nothing: the samples of 'dev'[^$]*lower: would"):
        perform(trained, "x-eval", **keys, valid_subset="dev")
    perform(trained, "x-eval", **keys, valid_subset=["dev", str(trained / "dev.txt")])
    assert "dev: prepared already, so that max_len, lower of extra_config have no effect" in caplog.text
    same = {"max_len": 16, "lower": True, "vocab_file": None}
    perform(trained, "x-eval", save_dir=str(trained / "run"), extra_config=same, valid_subset="dev")


def test_a_processor_of_other_columns_than_a_split_has_is_refused(trained):
    keys = {"save_dir": str(trained / "run"), "extra_config": {"processor": "bert_pair"}}
    with pytest.raises(ConfigError, match=r"processor: is 'bert_pair', but the data were made with 'pair'"):
        perform(trained, "x-eval", **keys, valid_subset="dev")


def test_a_split_whose_words_were_made_otherwise_is_told(trained, tmp_path, capsys):
    shutil.copytree(trained / "data", tmp_path / "data")
    args, keys = tmp_path / "data/args.py", {"save_dir": str(trained / "run"), "page": ""}
    perform(trained, "x-eval", **keys, valid_subset=str(tmp_path / "data/dev.pt"))
    assert "was preprocessed otherwise" not in capsys.readouterr().err
    assert "'lower': True" in args.read_text()
    args.write_text(args.read_text().replace("'lower': True", "'lower*': False"))
    (tmp_path / "data/resources.manifest.json").unlink()
    perform(trained, "x-eval", **keys, valid_subset=str(tmp_path / "data/dev.pt"))
    assert f"was preprocessed otherwise: lower is false in {args}, and true for this model" in capsys.readouterr().err


def test_keys_that_act_only_while_data_are_prepared_are_refused_for_every_input(trained):
    keys = {"save_dir": str(trained / "run"), "extra_config": {"vocab_file": "words.txt"}}
    for name in ("dev", str(trained / "dev.txt")):
        with pytest.raises(ConfigError, match=r"vocab_file: would change nothing: x-prepro acts on it"):
            perform(trained, "x-eval", **keys, valid_subset=name)


def test_a_run_does_not_need_the_weights_it_was_started_from(trained, tmp_path):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(30))]
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(tmp_path / "start")
    (tmp_path / "start" / "vocab.txt").write_text("\n".join(words))
    prepro = {"data_source": str(trained), "data_files": ["train.txt", "dev.txt"], "data_dir": str(tmp_path / "data")}
    prepro |= {"loader": "pair", "tokenizer": "bert", "vocab_file": str(tmp_path / "start/vocab.txt"), "max_len": 24}
    perform(tmp_path, "x-prepro", **prepro, processor="bert_pair")
    train = {"__parent__": str(tmp_path / "data/meta"), "data_dir": str(tmp_path / "data"), "eval_interval": -1}
    train |= {"save_dir": str(tmp_path / "run"), "model": "bert_classification", "loss": "cross_entropy"}
    train |= {"pretrained_model": str(tmp_path / "start"), "learning_rate": 0.01, "max_update": 2, "batch_size": 16}
    perform(tmp_path, "x-train", **train, major_metric="acc")
    (tmp_path / "start").rename(tmp_path / "moved")
    perform(tmp_path, "x-eval", save_dir=str(tmp_path / "run"), valid_subset="dev", compare_origin=True)


def test_a_run_that_does_not_say_its_unit_is_scored_in_bits_as_it_was_trained(finished_run, capsys):
    keys = {"valid_subset": str(finished_run.root / "dev.txt")}
    finished_run.perform("x-eval", **keys)
    (finished_run.run / "args.py").write_text(repr({**finished_run.values, "loss_unit": "nats"}))
    finished_run.perform("x-eval", **keys)
    bits, nats = (float(row["loss"]) for row in scores_of_all(capsys))
    assert nats == pytest.approx(bits * math.log(2), rel=1e-4)


# ---- what is told beside the scores


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_json_tells_the_worst_errors_with_their_texts_and_places(finished_run, capsys):
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), print_json=True)
    found = told(capsys)
    (each,) = found["inputs"]
    worst = each["errors"]["worst"]
    assert each["errors"]["count"] == len(worst) == round(4 * (1 - each["scores"]["acc"]))
    lines = (finished_run.root / "dev.txt").read_text().splitlines()
    for error in worst:
        path, _, line = error["place"].rpartition(":")
        assert path == str(finished_run.root / "dev.txt")
        assert lines[int(line) - 1] == f"{error['texts'][0]}\t{error['true']}"
    assert [error["probability"] for error in worst] == sorted((e["probability"] for e in worst), reverse=True)
    assert sum(map(sum, each["confusion"]["counts"])) == each["rows"] == 4


def test_the_page_lies_in_the_folder_of_the_run_and_is_named_after_what_was_scored(finished_run, capsys, figures):
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "print_json": True}
    finished_run.perform("x-eval", **keys)
    page = finished_run.run / "eval" / "checkpoint-10-dev.txt.html"
    assert told(capsys)["page"] == str(page)
    assert f"{finished_run.root}/dev.txt: 4 rows" in page.read_text()
    assert page.with_name("checkpoint-10-dev.txt.confusion.png").read_bytes().startswith(b"\x89PNG")
    finished_run.perform("x-eval", **keys, page="")
    assert told(capsys)["page"] is None


def test_pages_and_pictures_of_long_names_and_of_equal_ones_have_files_of_their_own(finished_run, capsys, figures):
    names = [f"{folder}/{'很长的名字' * 12}.txt" for folder in "ab"]
    for name in names:
        (finished_run.root / name).parent.mkdir()
        shutil.copy(finished_run.root / "dev.txt", finished_run.root / name)
    inputs = [str(finished_run.root / name) for name in names]
    finished_run.perform("x-eval", valid_subset=inputs, print_json=True)
    page = Path(told(capsys)["page"])
    pictures = sorted(page.parent.glob(f"{page.stem}.*.confusion.png"))
    assert len(pictures) == 2
    assert all(len(each.name.encode()) < 255 for each in (page, *pictures))


def test_a_page_is_written_over_nothing_else(finished_run):
    other = finished_run.root / "dev.txt"
    with pytest.raises(ConfigError, match=r"dev\.txt' contains something other than a report"):
        finished_run.perform("x-eval", valid_subset=str(other), page=str(other))
    for _ in range(2):  # its own page it does write again
        finished_run.perform("x-eval", valid_subset=str(other), page=str(finished_run.root / "mine.html"))


def test_errors_of_a_split_are_those_of_its_raw_file(trained, capsys):
    keys = {"save_dir": str(trained / "run"), "print_json": True, "worst_errors": 7}
    perform(trained, "x-eval", **keys, valid_subset=["dev", str(trained / "dev.txt")])
    split, raw = told(capsys)["inputs"]
    assert split["errors"] == raw["errors"]
    assert len(split["errors"]["worst"]) == min(7, split["errors"]["count"]) > 0
    assert split["by_length"] == raw["by_length"]
    assert sum(each["rows"] for each in split["by_length"]) == 57
    assert set(split["intervals"]) == set(split["scores"]) > {"acc", "macro_f1", "auc", "loss"}
    described = (Path(__file__).parents[2] / "docs/files.md").read_text()
    assert [key for key in keys_of(split) if f"`{key}`" not in described] == []


def keys_of(value):
    """Every key of nested objects, but for those of scores, which are names of metrics."""
    if isinstance(value, list):
        return {key for part in value for key in keys_of(part)}
    if not isinstance(value, dict):
        return set()
    inner = (keys_of(part) for name, part in value.items() if name not in {"scores", "intervals"})
    return {*value}.union(*inner)


def test_errors_are_shown_as_tokens_where_the_raw_file_was_changed(trained, capsys):
    raw = trained / "dev.txt"
    text = raw.read_text()
    raw.write_text("".join(f"w1 {line}\n" for line in text.splitlines()))
    try:
        perform(trained, "x-eval", save_dir=str(trained / "run"), valid_subset="dev", print_json=True)
    finally:
        raw.write_text(text)
    worst = told(capsys)["inputs"][0]["errors"]["worst"]
    lines = [line.split("\t") for line in text.splitlines()]
    for error in worst:
        path, _, number = error["place"].partition(": sample ")
        assert path == str(trained / "data/dev.pt")
        assert error["texts"][0].split()[:1] == lines[int(number)][0].split()[:1]


def test_scores_among_the_rows_of_a_batch_are_told_if_batches_have_another_size(capsys):
    names = losses["bert_dpr"].within_batch
    for size, own in ((8, names), (4, ()), (4, names)):
        assert "batch_size is 4 here" not in capsys.readouterr().err
        _tell_of_batch_size(SimpleNamespace(batch_size=size, trained_batch_size=8), own)
    assert "loss, acc, in_batch_mrr: computed among the rows of a batch" in capsys.readouterr().err
