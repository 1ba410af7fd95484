"""The examples of the Trainer run from end to end, on small files; the first by the command of the documents."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import environment

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "examples/trainer"
GOOD = ("a delight", "warm and funny", "the best film of the year", "clever , moving and never dull")
BAD = ("a mess", "flat and joyless", "far too long", "the plot makes no sense")
QUIET = "--use_cpu --report_to none --disable_tqdm true"
AGAIN = (
    f"--model_name_or_path model --task_name mrpc --do_train --per_device_train_batch_size 32 --output_dir out/again "
    f"--save_strategy epoch {QUIET}"
)
LINES = {
    "documented command": f"run_classification.py --model_name_or_path model --task_name mrpc --do_train --do_eval "
    f"--max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 "
    f"--output_dir out/mrpc/ --overwrite_output_dir {QUIET}",
    "predicting": f"run_classification.py --model_name_or_path out/mrpc --task_name mrpc --do_predict "
    f"--no_pad_to_max_length --output_dir out/predicted --max_predict_samples 6 {QUIET}",
    "begun": f"run_classification.py {AGAIN} --num_train_epochs 2",
    "going on": f"run_classification.py {AGAIN} --num_train_epochs 4",
    "numbers": f"run_classification.py --model_name_or_path model --train_file numbers.tsv --ignore_mismatched_sizes "
    f"--validation_file numbers.tsv --do_train --do_eval --max_seq_length 16 --max_steps 2 --save_strategy no "
    f"--output_dir out/numbers {QUIET}",
    "causal_lm": f"causal_lm.py --train_file text.txt --do_train --do_eval --output_dir out/lm --block_size 32 "
    f"--max_steps 40 --learning_rate 1e-2 --save_strategy no {QUIET}",
    "seq2seq": f"seq2seq.py --train_file pairs.tsv --do_train --do_eval --predict_with_generate --output_dir out/pairs "
    f"--max_steps 60 --learning_rate 1e-2 --max_target_length 4 --save_strategy no {QUIET}",
    "weighted_loss": f"weighted_loss.py --train_file uneven.tsv --model_name_or_path model --output_dir out/weighted "
    f"--max_steps 60 --learning_rate 2e-3 --save_strategy no {QUIET}",
    "custom_callback": f"custom_callback.py --train_file uneven.tsv --model_name_or_path model --output_dir out/timed "
    f"--minutes 0 --logging_steps 1 {QUIET}",
    "refusal": f"run_classification.py --model_name_or_path model --do_train --output_dir out/refused {QUIET}",
}  # fmt: skip


def write_model(folder: Path) -> None:
    """Save a BERT of two layers from random weights, with a tokenizer of a few words."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, set_seed

    words = sorted({word for text in (*GOOD, *BAD) for word in text.split()})
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    set_seed(1)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), **shape)).save_pretrained(folder)
    BertTokenizerFast(vocab=vocabulary, do_lower_case=True).save_pretrained(folder)


def write_files(folder: Path) -> None:
    dice = random.Random(1)
    task = folder / "data/mrpc"
    task.mkdir(parents=True)
    for split, count in (("train", 64), ("dev", 16), ("test", 8)):
        rows = [(dice.choice(side), dice.choice(side), name) for _ in range(count // 2)
                for side, name in ((GOOD, "equivalent"), (BAD, "not_equivalent"))]  # fmt: skip
        lines = ["\t".join(row if split != "test" else row[:2]) for row in rows]
        (task / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    uneven = [f"{dice.choice(GOOD)}\tgood" for _ in range(40)] + [f"{dice.choice(BAD)}\tbad" for _ in range(4)]
    (folder / "uneven.tsv").write_text("\n".join(uneven) + "\n", encoding="utf-8")
    numbers = [f"{dice.choice(GOOD)}\t{dice.random():.2f}" for _ in range(16)]
    (folder / "numbers.tsv").write_text("\n".join(numbers) + "\n", encoding="utf-8")
    (folder / "text.txt").write_text("the king sleeps and the queen sings. " * 120, encoding="utf-8")
    pairs = [f"{a}{b}\t{b}{a}" for a in "abcd" for b in "efgh"]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all lines have run."""
    folder = tmp_path_factory.mktemp("examples")
    write_model(folder / "model")
    write_files(folder)
    lines = [[str(EXAMPLES / line.split()[0]), *line.split()[1:]] for line in LINES.values()]
    (folder / "lines.json").write_text(json.dumps(lines), encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name("run_examples.py")), "lines.json"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def said(place: Path, name: str) -> str:
    """What a line said; it must not have failed."""
    number = list(LINES).index(name)
    failure = place / f"failed-{number}.txt"
    assert not failure.exists(), failure.read_text(encoding="utf-8")
    return (place / f"said-{number}.txt").read_text(encoding="utf-8")


def results(place: Path, path: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((place / "out" / path).read_text(encoding="utf-8"))
    return read


def test_the_command_of_the_documents_trains_and_scores_a_classifier(place: Path) -> None:
    said(place, "documented command")
    scores = results(place, "mrpc/all_results.json")
    assert scores["epoch"] == 3
    assert scores["eval_accuracy"] >= 0.5
    assert (place / "out/mrpc/model.safetensors").exists()


def test_a_classifier_names_its_labels_in_its_predictions(place: Path) -> None:
    said(place, "predicting")
    lines = (place / "out/predicted/predict_results_mrpc.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 7
    assert {line.split("\t")[1] for line in lines[1:]} <= {"equivalent", "not_equivalent"}


def test_a_classifier_goes_on_from_its_last_checkpoint_unless_told_to_overwrite(place: Path) -> None:
    said(place, "going on")
    assert results(place, "again/trainer_state.json")["global_step"] == 8
    told = results(place, "again/train_results.json")
    assert told["epoch"] == 4
    assert round(told["train_steps_per_second"] * told["train_runtime"]) == 4  # of the second stretch alone


def test_labels_with_a_point_are_learned_as_numbers(place: Path) -> None:
    said(place, "numbers")
    assert "eval_mse" in results(place, "numbers/eval_results.json")


def test_a_language_model_learns_a_text(place: Path) -> None:
    said(place, "causal_lm")
    assert results(place, "lm/eval_results.json")["perplexity"] < 20  # 256 when nothing is known


def test_pairs_are_learned_and_generated(place: Path) -> None:
    said(place, "seq2seq")
    assert results(place, "pairs/eval_results.json")["eval_exact"] > 0.2


def test_a_rare_class_is_found_when_it_weighs_more(place: Path) -> None:
    said(place, "weighted_loss")
    scores = results(place, "weighted/eval_results.json")
    assert min(scores["eval_recall_0"], scores["eval_recall_1"]) > 0.7


def test_a_callback_stops_the_training_when_the_time_is_over(place: Path) -> None:
    assert "stopped at step 1 of" in said(place, "custom_callback")
    lines = (place / "out/timed/diary.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["step"] == 1
    assert (place / "out/timed/checkpoint-1/optimizer.pt").exists()


def test_a_classifier_without_rows_says_what_to_give(place: Path) -> None:
    failure = (place / f"failed-{list(LINES).index('refusal')}.txt").read_text(encoding="utf-8")
    assert "Give --task_name, or --train_file" in failure


def test_labels_have_the_order_in_which_a_model_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("run_classification")
    ours = example.Labels(("neg", "pos"))
    known = SimpleNamespace(id2label={0: "pos", 1: "neg"})
    assert example.in_order_of(known, ours).names == ("pos", "neg")
    assert example.in_order_of(SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"}), ours) == ours
