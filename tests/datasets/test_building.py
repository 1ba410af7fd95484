"""From raw files to a data_dir, and again: what is made, what stays, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import tiers
from xdpx.commands import batch, child
from xdpx.commands.prepro import Prepro
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run, load, resolve
from xdpx.config.stored_args import read_args
from xdpx.datasets.meta import write_meta
from xdpx.datasets.store import Store
from xdpx.utils import commit

WORDS = {"parser": "csv", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": 5}


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content, encoding="utf-8")
    return folder


def run_of(source: Path, data_dir: Path, **values: Any) -> Run:
    known = {**WORDS, "data_source": str(source), "data_dir": str(data_dir), **values}
    return resolve(known, "x-prepro", source="test")


def build(source: Path, data_dir: Path, **values: Any) -> dict[str, Any]:
    run = run_of(source, data_dir, **values)
    assert not Prepro(run).check()
    Prepro(run).run()
    return meta(data_dir)


def meta(data_dir: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((data_dir / "meta.hjson").read_text())
    return loaded


def samples(data_dir: Path, split: str) -> list[dict[str, Any]]:
    store = Store.open(str(data_dir / f"{split}.pt"))
    return [store.sample(index) for index in range(len(store))]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "raw", train="a b a\tPos\nb c\tneg\na\tpos\n", dev="c d\tneg\n", test="a x\n")


def test_a_data_dir_holds_what_the_documentation_says(source: Path, tmp_path: Path) -> None:
    found = build(source, tmp_path / "data")
    names = {path.name for path in (tmp_path / "data").iterdir() if not path.name.endswith(".manifest.json")}
    assert names == {
        "args.py",
        "train.pt", "dev.pt", "test.pt", "log.txt", "meta.hjson", "status.json", "target_map.txt", "vocab.txt",
        "findings.json",
    }  # fmt: skip
    assert (tmp_path / "data" / "vocab.txt").read_text() == "[PAD]\n[UNK]\na\nb\nc\n"
    assert (tmp_path / "data" / "target_map.txt").read_text() == "neg\nPos\n"
    assert found["data_size"] == {"dev": 1, "test": 1, "train": 3}
    assert {key: found[key] for key in ("vocab_size", "num_classes", "pad_index", "max_len", "processor")} == {
        "vocab_size": 5, "num_classes": 2, "pad_index": 0, "max_len": 5, "processor": "single",
    }  # fmt: skip
    assert read_args(str(tmp_path / "data" / "args.py"))["loader"] == "single"
    assert json.loads((tmp_path / "data" / "status.json").read_text())["status"] == "finished"


def test_samples_are_numbered_texts_with_their_class(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "data")
    assert samples(tmp_path / "data", "train")[0] == {"tokens": [2, 3, 2], "length": 3, "target": 1}
    assert samples(tmp_path / "data", "test") == [{"tokens": [2, 1], "length": 2}]


def test_words_count_in_the_splits_that_vocab_subset_names(source: Path, tmp_path: Path) -> None:
    def words(name: str, **values: Any) -> str:
        build(source, tmp_path / name, **values)
        return (tmp_path / name / "vocab.txt").read_text().replace("\n", " ")

    assert words("all", vocab_subset="*") == "[PAD] [UNK] a b c d x "
    assert words("dev", vocab_subset=["de?"]) == "[PAD] [UNK] c d "
    assert words("none", vocab_subset="other") == words("all_again", vocab_subset="*")
    assert words("renamed", data_files={"train.txt": "sst2_train", "dev.txt": "dev"}) == "[PAD] [UNK] a b c "


def test_every_commit_is_valid_to_the_last_byte(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "data")
    names = commit.manifests(str(tmp_path / "data"))
    assert names == ["dev", "resources", "test", "train"]
    assert [commit.problems(str(tmp_path / "data"), name, hashes=True) for name in names] == [[]] * 4


@pytest.mark.parametrize("loader", tiers.some(["single", "corpus"], ["corpus"]))  # kills are tested with single
def test_four_workers_write_the_bytes_of_one(tmp_path: Path, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdpx.loaders.parsers.files.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("xdpx.datasets.workers.available_cores", lambda: 4)
    label = "" if loader == "corpus" else "\t{0}"
    lines = [("w{0} x{1} y" + label).format(number % 7, number % 50) if number % 9 else "" for number in range(3000)]
    source = write(tmp_path / "raw", train="\n".join(lines) + "\n")
    values = {"loader": loader, "parser": "csv", "remove_duplicate": loader == "corpus", "max_len": 20}
    for workers in (1, 4):
        build(source, tmp_path / f"data{workers}", workers=workers, **values)
    for name in ("train.pt", "vocab.txt", "meta.hjson"):
        assert (tmp_path / "data1" / name).read_bytes() == (tmp_path / "data4" / name).read_bytes()
    assert meta(tmp_path / "data1")["data_size"]["train"] > 10


def test_building_again_replaces_the_named_splits_alone(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    build(source, data)
    before = (data / "train.pt").read_bytes()
    ready = {"vocab_file": str(data / "vocab.txt"), "target_map_file": str(data / "target_map.txt")}
    write(source, dev="a\tneg\nb\tpos\n", more="a\n")
    found = build(source, data, data_files=["dev.txt", "more.txt"], max_len=9, **ready)
    assert found["data_size"] == {"train": 3, "dev": 2, "test": 1, "more": 1}
    assert found["max_len"] == 9
    assert (data / "train.pt").read_bytes() == before
    assert len(samples(data, "dev")) == 2


def test_an_unlabelled_split_keeps_the_labels_of_the_others(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    build(source, data)
    found = build(source, data, data_files="test.txt", vocab_file=str(data / "vocab.txt"))
    assert found["num_classes"] == 2


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "log.txt" and path.is_file()}


def test_changed_meta_data_are_refused_and_nothing_is_touched(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    build(source, data)
    before = tree(data)
    with pytest.raises(ConfigError, match="Metadata have changed") as caught:
        build(source, data, data_files="dev.txt")
    assert {fault.key for fault in caught.value.faults} == {"vocab_size", "num_classes", "vocab.txt", "target_map.txt"}
    assert tree(data) == before


def test_splits_cut_into_other_words_are_not_put_beside_those_that_stay(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    build(source, data)
    ready = {"vocab_file": str(data / "vocab.txt"), "target_map_file": str(data / "target_map.txt")}
    before = tree(data)
    with pytest.raises(ConfigError, match="lower: is false, but true in the earlier splits") as caught:
        build(source, data, data_files="dev.txt", lower=False, rm_punc=True, **ready)
    assert [fault.key for fault in caught.value.faults] == ["lower", "rm_punc"]
    assert tree(data) == before
    build(source, data, lower=False, **ready)  # all of them are made anew
    (data / "args.py").write_text("damaged(")
    build(source, data, data_files="dev.txt", lower=False, **ready)


def test_a_vocabulary_of_the_same_size_but_another_order_is_refused(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "data")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nb\na\nc\n")
    with pytest.raises(ConfigError, match=r"vocab\.txt: would differ .* \(another order\)"):
        build(source, tmp_path / "data", vocab_file=str(tmp_path / "vocab.txt"))


BAD = {
    "columns": ("a\tx\nb\tx\ty\n", r"train\.txt: 1 fault\n  .*train\.txt:2: has 3 columns, not 2: 'b\\tx\\ty'\. Fix"),
    "first line": ("a\tx\ty\n", r"train\.txt:1: has 3 columns, not text and a label, or text alone"),
    "label": ("a\t \n", r"train\.txt:1: has an empty label"),
    "nothing": ("", r"train\.txt.*\n  data_files: is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    with pytest.raises(ConfigError, match=message):
        build(write(tmp_path / "raw", train=content), tmp_path / "data")
    assert not (tmp_path / "data" / "train.pt").exists()


def test_bad_utf8_is_refused_with_file_and_line(tmp_path: Path) -> None:
    source = write(tmp_path / "raw")
    (source / "train.txt").write_bytes(b"a\tx\n\xe4\tx\n")
    with pytest.raises(ConfigError, match=r"train\.txt:2: is not UTF-8 text"):
        build(source, tmp_path / "data")


def test_bad_lines_can_be_skipped_and_are_counted(tmp_path: Path) -> None:
    source = write(tmp_path / "raw", train="x\ty\tz\na\tx\nb\tx\ty\nc\ty\n")
    assert build(source, tmp_path / "data", skip_bad_lines=True)["data_size"] == {"train": 2}
    log = (tmp_path / "data" / "log.txt").read_text()
    assert "2 bad lines were skipped" in log
    assert "line 3 has 3 columns" in log


def test_duplicates_are_dropped_by_text_and_label(tmp_path: Path) -> None:
    source = write(tmp_path / "raw", train="a b\tx\na b\ty\na b\tx\na\tx\na b\tX\n")
    build(source, tmp_path / "data", remove_duplicate=True)
    assert [sample["tokens"] for sample in samples(tmp_path / "data", "train")] == [[2, 3], [2, 3], [2]]
    assert "2 duplicates were removed" in (tmp_path / "data" / "log.txt").read_text()


def test_limits_that_leave_most_words_unknown_are_told(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(source, tmp_path / "data", threshold=9)
    told = "100.0% of 6 words are not in the vocabulary and become '[UNK]'. Lower threshold (now 9)"
    assert f"warning: {told}" in capsys.readouterr().err
    build(source, tmp_path / "other")
    assert "words are not in the vocabulary" not in capsys.readouterr().err


def test_a_label_that_the_map_lacks_is_refused_with_the_nearest(source: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("pos\nnegg\n")
    with pytest.raises(ConfigError, match=r"dev\.txt:1: is labelled 'neg'.*did you mean 'negg'"):
        build(source, tmp_path / "data", target_map_file=str(tmp_path / "labels.txt"))


def test_a_blank_line_among_given_labels_is_no_class(source: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("pos\nneg\n\n")
    with pytest.raises(ConfigError, match="target_map_file: line 3 is blank"):
        build(source, tmp_path / "data", target_map_file=str(tmp_path / "labels.txt"))


def test_unknown_labels_can_have_a_label_of_their_own(source: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("other\npos\n")
    build(source, tmp_path / "data", target_map_file=str(tmp_path / "labels.txt"), target_unk="other")
    assert [sample["target"] for sample in samples(tmp_path / "data", "train")] == [1, 0, 1]


def test_labels_that_are_numbers_are_ordered_as_numbers(tmp_path: Path) -> None:
    source = write(tmp_path / "raw", train="".join(f"w\t{label}\n" for label in [10, 2, *range(10)]))
    build(source, tmp_path / "data", target_type="index")
    assert [sample["target"] for sample in samples(tmp_path / "data", "train")][:2] == [10, 2]


def test_a_longest_length_is_measured_and_too_long_a_sample_refused(source: Path, tmp_path: Path) -> None:
    assert build(source, tmp_path / "data", check_max_len=True)["max_len"] == 3
    with pytest.raises(ConfigError, match=r"train\.txt.*\n  max_len: is 2, but check_max_len found a sample of 3"):
        build(source, tmp_path / "other", check_max_len=True, max_len=2)


def test_rows_of_json_can_be_written_instead_of_a_store(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "data")
    build(source, tmp_path / "data", save_format="jsonl")
    lines = (tmp_path / "data" / "train.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"tokens": [2, 3, 2], "length": 3, "target": 1}
    assert not (tmp_path / "data" / "train.pt").exists()


def test_splits_are_announced_until_they_are_there(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[list[str], list[str]]] = []

    def note(data_dir: str, meta: dict[str, Any]) -> None:
        told.append((sorted(meta["data_size"]), meta.get("arriving", [])))
        write_meta(data_dir, meta)

    monkeypatch.setattr("xdpx.datasets.building.write_meta", note)
    assert "arriving" not in build(source, tmp_path / "data")
    all_of_them = ["dev", "test", "train"]
    assert told == [(all_of_them[:count], all_of_them[count:]) for count in range(4)]
    told.clear()
    build(source, tmp_path / "data")  # all over again: what is there needs no announcement
    assert {tuple(arriving) for _, arriving in told} == {()}


def test_training_inherits_the_format_of_the_last_build(source: Path, tmp_path: Path) -> None:
    assert build(source, tmp_path / "data", save_format="jsonl")["dataset_format"] == "jsonl"
    assert "dataset_format" not in build(source, tmp_path / "data")


def test_labels_that_a_split_lacks_are_told(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "data")
    assert "warning: dev: no sample is labelled 'Pos'" in (tmp_path / "data" / "log.txt").read_text()


def test_a_split_need_not_have_every_number(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\t0.5\nb\t1.5\n")
    (tmp_path / "dev.txt").write_text("c\t0.5\n")
    build(tmp_path, tmp_path / "data", target_type="number", data_files="*.txt")
    assert "no sample is labelled" not in (tmp_path / "data" / "log.txt").read_text()


def test_a_label_that_all_samples_share_is_told(tmp_path: Path) -> None:
    build(write(tmp_path / "raw", train="a\tpos\nb\tpos\n"), tmp_path / "data")
    assert "every sample is labelled 'pos': there is nothing to learn" in (tmp_path / "data" / "log.txt").read_text()


def test_an_interrupted_build_is_finished_and_keeps_what_was_done(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    build(source, data)
    expected = tree(data)
    status = json.loads((data / "status.json").read_text())
    (data / "status.json").write_text(json.dumps({**status, "status": "running"}))
    (data / "train.pt").unlink()
    (data / ".parts").mkdir()
    (data / ".parts" / "train.tokens").write_bytes(b"half")
    build(source, data, workers=2)  # another number of them, as after one was killed for lack of memory
    assert {name: tree(data)[name] for name in expected if name.endswith((".pt", ".txt"))} == {
        name: content for name, content in expected.items() if name.endswith((".pt", ".txt"))
    }
    log = (data / "log.txt").read_text()
    assert "dev: already finished, kept" in log
    assert "leave out what was finished before the interruption (dev, test)" in log
    assert not (data / ".parts").exists()


def test_sentences_become_blocks(tmp_path: Path) -> None:
    source = write(tmp_path / "raw", train="a b c\nd e\n\nf\ng h i j k l m\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklm"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    build(
        source, tmp_path / "data", loader="corpus", parser="none", processor="bert_lm", break_mode="complete_doc",
        vocab_file=str(tmp_path / "vocab.txt"), max_len=8,
    )  # fmt: skip
    blocks = [
        "".join(vocabulary[token] for token in sample["input_ids"]) for sample in samples(tmp_path / "data", "train")
    ]
    assert blocks == ["abcde", "f", "ghijk", "lm"]


CONFLICTS = {
    "processor": {"processor": "pair"},
    "data_files": {"data_files": {"train.txt": "x", "dev.txt": "x"}},
    "vocab_file": {"vocab_file": "nowhere.txt"},
    "pretrained_embeddings": {"pretrained_embeddings": "nowhere.txt"},
    "fields": {"parser": "jsonl", "fields": ["a", "b", "c"]},
}


@pytest.mark.parametrize("key", CONFLICTS)
def test_what_does_not_fit_together_is_found_before_anything_is_read(source: Path, tmp_path: Path, key: str) -> None:
    faults = Prepro(run_of(source, tmp_path / "data", **CONFLICTS[key])).check()
    assert [fault.key for fault in faults] == [key]


def test_a_run_of_a_loop_may_read_what_an_earlier_one_makes(source: Path, tmp_path: Path) -> None:
    def load_two(name: str, *, in_order: bool = True) -> list[Run]:
        first: dict[str, Any] = {**WORDS, "data_source": str(source), "data_dir": str(tmp_path / "a")}
        reading = {
            key: str(tmp_path / "a" / file) for key, file in (("target_map_file", name), ("vocab_file", "vocab.txt"))
        }
        config = tmp_path / "loop.json"
        config.write_text(json.dumps([first, first | reading | {"data_dir": str(tmp_path / "b")}]))
        return load(str(config), "x-prepro", inspect=batch.inspect, in_order=in_order)

    with pytest.raises(ConfigError, match=r"target_map_file .*: there is no file"):
        load_two("target_map.txt", in_order=False)
    assert [run.awaits for run in load_two("target_map.txt")] == [False, True]
    assert [child.perform(run) for run in load_two("target_map.txt")] == [0, 0]
    assert (tmp_path / "b/vocab.txt").read_bytes() == (tmp_path / "a/vocab.txt").read_bytes()
    with pytest.raises(ConfigError, match=r"target_map_file .*: there is no file .* Did you mean '.*target_map.txt'"):
        child.perform(load_two("target_mpa.txt")[1])


def test_logits_in_the_order_of_the_teacher_need_its_list_of_labels(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    rows = ["a\t[-3.0, -0.1]\tneg\n"] * 40 + ["b\t[-0.1, -3.0]\tpos\n"] * 9
    (tmp_path / "raw/train.txt").write_text("".join(rows))
    (tmp_path / "labels.txt").write_text("pos\nneg\n")
    kind = {"loader": "single_with_logits", "processor": "single_with_logits"}
    with pytest.raises(ConfigError, match=r"in the order 'pos', 'neg'\. .*target_map_file"):
        Prepro(run_of(tmp_path / "raw", tmp_path / "data", **kind)).run()
    assert not (tmp_path / "data/train.pt").exists()
    Prepro(run_of(tmp_path / "raw", tmp_path / "data", **kind, target_map_file=str(tmp_path / "labels.txt"))).run()


def test_runs_of_a_loop_do_not_replace_the_splits_of_each_other(source: Path, tmp_path: Path) -> None:
    def load_two(first: dict[str, Any], second: dict[str, Any]) -> list[Run]:
        known = {**WORDS, "data_source": str(source), "data_dir": str(tmp_path / "data")}
        config = tmp_path / "loop.json"
        config.write_text(json.dumps([known | first, known | second]))
        return load(str(config), "x-prepro", inspect=batch.inspect)

    with pytest.raises(ConfigError, match=r"data_dir .*: '.*data/train' is shared by runs 1, 2 of 2") as refused:
        load_two({"max_len": 5}, {"max_len": 6, "data_files": "tr*.txt", "data_dir": f"{tmp_path}/raw/../data/"})
    assert len(refused.value.faults) == 1
    assert len(load_two({"data_files": "train.txt"}, {"data_files": ["dev.txt", "test.txt"]})) == 2
    assert len(load_two(*({"num_shards": 2, "shard_index": index} for index in range(2)))) == 2


@pytest.mark.parametrize("known", [{"nwords": -5}, {"processor": "bert_single_mix", "max_word_vocab": -5}])
def test_a_negative_size_of_a_vocabulary_is_refused(source: Path, tmp_path: Path, known: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is -5\. Use a number >= -1"):
        run_of(source, tmp_path / "data", **known)


def test_word_pieces_need_a_vocabulary(source: Path, tmp_path: Path) -> None:
    faults = Prepro(run_of(source, tmp_path / "data", tokenizer="bert")).check()
    assert [fault.key for fault in faults] == ["vocab_file"]


def test_raw_files_and_data_dir_may_be_anywhere(source: Path, tmp_path: Path) -> None:
    from xdpx.utils import io

    build(source, tmp_path / "data")
    io.copytree(str(source), "memory://raw")
    values = {**WORDS, "data_source": "memory://raw", "data_dir": "memory://out/data", "data_files": "*.txt"}
    run = resolve(values, "x-prepro", source="test")
    assert not Prepro(run).check()
    Prepro(run).run()
    for name in ("train.pt", "dev.pt", "vocab.txt", "meta.hjson"):
        with io.open(f"memory://out/data/{name}", "rb") as file:
            assert file.read() == (tmp_path / "data" / name).read_bytes()


def test_any_legal_name_will_do(tmp_path: Path) -> None:
    name = "a b'\"%#=é\U0001f600 -rf"
    source = write(tmp_path / name, **{name: "a\tx\n"})
    assert build(source, tmp_path / "out" / name)["data_size"] == {name: 1}


def test_labels_in_any_script_come_back_as_they_were(tmp_path: Path) -> None:
    labels = ["中性", "négatif", "إيجابي", "नकारात्मक", "좋음", "\U0001f600", "a\u2028b", "x y"]
    source = write(tmp_path / "raw", train="".join(f"w\t{label}\n" for label in labels))
    build(source, tmp_path / "data")
    written = (tmp_path / "data" / "target_map.txt").read_bytes().decode().split("\n")[:-1]
    assert sorted(written) == sorted(labels)


def test_a_full_disk_leaves_what_was_there(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    build(source, data)
    before = tree(data)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    write(source, dev="a\tneg\nb\tneg\nc d\tneg\n")
    monkeypatch.setattr("xdpx.datasets.writing.write_archive", full)
    with pytest.raises(OSError, match="No space left"):
        build(source, data)
    kept = before.keys() - {"status.json", "resources.manifest.json"}
    assert {name: tree(data)[name] for name in kept} == {name: before[name] for name in kept}
    assert json.loads((data / "status.json").read_text())["status"] == "failed"
    assert not (data / ".parts").exists()
    monkeypatch.undo()
    assert build(source, data)["data_size"]["dev"] == 3


def test_pretrained_vectors_become_embeddings(source: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "vectors.txt").write_text("a 1 2\nc 3 4\n")
    found = build(source, tmp_path / "data", pretrained_embeddings=str(tmp_path / "vectors.txt"), threshold=1)
    matrix = torch.load(tmp_path / "data" / "embeddings.pt", weights_only=True)
    words = (tmp_path / "data" / "vocab.txt").read_text().split()
    assert (found["embedding_dim"], tuple(matrix.shape)) == (2, (len(words), 2))
    assert matrix[words.index("c")].tolist() == [3, 4]
    assert not matrix[:2].any()
