"""TensorFlow, both ways, by the library itself: what it wrote is read, and what is written it runs alike.

All that needs TensorFlow stands here: importing it costs six CPU seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests import tiers
from tests.commands.conftest import FinishedRun
from xdpx import load_run
from xdpx.checkpoints import tf_files, trusted
from xdpx.commands.script import main as script
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.inference.plan import InferenceParameters, make_plan
from xdpx.inference.predictor import Predictor
from xdpx.models import models
from xdpx.models.pytorch import google_names
from xdpx.run import main as door

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

HEADS, WIDTH = 2, 16
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "max_position_embeddings": 12, "type_vocab_size": 2, "vocab_size": 30, "hidden_act": "gelu",
}  # fmt: skip
IDS = np.array([[2, 7, 9, 3, 0, 0], [2, 11, 3, 12, 13, 3]])
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
MASK = IDS > 0


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


# ---- networks as Google wrote them: names, shapes and arithmetic of their own


def dense(name: str, size_in: int, size_out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (size_in, size_out), f"{name}/bias": (size_out,)}


def norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (size,), f"{name}/beta": (size,)}


def embeddings(width: int) -> dict[str, tuple[int, ...]]:
    tables = {"word_embeddings": (30, width), "position_embeddings": (12, width), "token_type_embeddings": (2, width)}
    return {f"bert/embeddings/{name}": shape for name, shape in tables.items()} | norm(
        "bert/embeddings/LayerNorm", width
    )


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    dice = np.random.default_rng(5)
    return {name: dice.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def google_bert() -> dict[str, NDArray[np.float32]]:
    shapes = embeddings(WIDTH) | dense("bert/pooler/dense", WIDTH, WIDTH)
    for layer in ("bert/encoder/layer_0", "bert/encoder/layer_1"):
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= dense(f"{layer}/attention/{part}", WIDTH, WIDTH)
        shapes |= dense(f"{layer}/intermediate/dense", WIDTH, 32) | dense(f"{layer}/output/dense", 32, WIDTH)
        shapes |= norm(f"{layer}/attention/output/LayerNorm", WIDTH) | norm(f"{layer}/output/LayerNorm", WIDTH)
    return drawn(shapes | {"output_weights": (3, WIDTH), "output_bias": (3,)})


def google_albert() -> dict[str, NDArray[np.float32]]:
    inner = "bert/encoder/transformer/group_0/inner_group_0"
    shapes = embeddings(8) | dense("bert/encoder/embedding_hidden_mapping_in", 8, WIDTH)
    for part in ("self/query", "self/key", "self/value", "output/dense"):
        shapes |= dense(f"{inner}/attention_1/{part}", WIDTH, WIDTH)
    shapes |= dense(f"{inner}/ffn_1/intermediate/dense", WIDTH, 32)
    shapes |= dense(f"{inner}/ffn_1/intermediate/output/dense", 32, WIDTH)
    shapes |= norm(f"{inner}/LayerNorm", WIDTH) | norm(f"{inner}/LayerNorm_1", WIDTH)
    shapes |= dense("bert/pooler/dense", WIDTH, WIDTH)
    return drawn(shapes | {"output_weights": (3, WIDTH), "output_bias": (3,)})


def logits_of(tf: Any, weights: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return logits (B, C) as Devlin et al. (2019) and Lan et al. (2020) have them, in TensorFlow's arithmetic."""

    def apply(name: str, x: Any) -> Any:
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def normalise(name: str, x: Any) -> Any:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-12) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def heads(x: Any) -> Any:
        return tf.transpose(tf.reshape(x, [*x.shape[:2], HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    def layer(x: Any, attention: str, norm_1: str, grow: str, shrink: str, norm_2: str) -> Any:
        query, key, value = (heads(apply(f"{attention}/self/{part}", x)) for part in ("query", "key", "value"))
        scores = query @ tf.transpose(key, [0, 1, 3, 2]) / np.sqrt(WIDTH / HEADS)
        seen = tf.nn.softmax(scores + (1.0 - MASK[:, None, None, :].astype(np.float32)) * -1e9) @ value
        merged = tf.reshape(tf.transpose(seen, [0, 2, 1, 3]), x.shape)
        x = normalise(norm_1, x + apply(f"{attention}/output/dense", merged))
        return normalise(norm_2, x + apply(shrink, tf.nn.gelu(apply(grow, x), approximate=False)))

    table = "bert/embeddings"
    x = tf.gather(weights[f"{table}/word_embeddings"], IDS) + tf.gather(
        weights[f"{table}/token_type_embeddings"], SEGMENTS
    )
    x = normalise(f"{table}/LayerNorm", x + weights[f"{table}/position_embeddings"][: IDS.shape[1]])
    if "bert/encoder/embedding_hidden_mapping_in/kernel" in weights:
        x = apply("bert/encoder/embedding_hidden_mapping_in", x)
        one = "bert/encoder/transformer/group_0/inner_group_0"
        inner = f"{one}/ffn_1/intermediate"
        for _ in range(2):
            x = layer(
                x,
                f"{one}/attention_1",
                f"{one}/LayerNorm",
                f"{inner}/dense",
                f"{inner}/output/dense",
                f"{one}/LayerNorm_1",
            )
    else:
        for one in ("bert/encoder/layer_0", "bert/encoder/layer_1"):
            first, last = f"{one}/attention/output/LayerNorm", f"{one}/output/LayerNorm"
            x = layer(x, f"{one}/attention", first, f"{one}/intermediate/dense", f"{one}/output/dense", last)
    pooled = tf.tanh(apply("bert/pooler/dense", x[:, 0]))
    found: NDArray[np.float32] = (pooled @ tf.transpose(weights["output_weights"]) + weights["output_bias"]).numpy()
    return found


KINDS: dict[str, tuple[str, Any, str, dict[str, Any]]] = {
    "bert": ("bert_classification", google_bert, "bert_config.json", SIZES),
    "albert": (
        "albert_classification", google_albert, "albert_config.json",
        {**SIZES, "embedding_size": 8, "num_hidden_groups": 1, "inner_group_num": 1},
    ),
}  # fmt: skip


def write_checkpoint(tf: Any, folder: Path, weights: Mapping[str, Any], config: str, sizes: Mapping[str, Any]) -> str:
    """Write a checkpoint as scripts of TensorFlow 1 do, with what Adam keeps, and return its prefix."""
    folder.mkdir()
    (folder / config).write_text(json.dumps(sizes))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in weights.items():
            tf.compat.v1.get_variable(name, initializer=value)
            tf.compat.v1.get_variable(f"{name}/adam_m", initializer=np.zeros_like(value))
        tf.compat.v1.get_variable("global_step", initializer=3)
        session.run(tf.compat.v1.global_variables_initializer())
        return str(tf.compat.v1.train.Saver().save(session, str(folder / "model.ckpt"), write_state=False))


@pytest.fixture(scope="module")
def checkpoints(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return prefix and weights of a checkpoint of each kind."""
    root, found = tmp_path_factory.mktemp("google"), {}
    for kind, (_, make, config, sizes) in KINDS.items():
        weights = make()
        found[kind] = (write_checkpoint(tf, root / kind, weights, config, sizes), weights)
    return found


def loaded(name: str, path: str, **keys: Any) -> Any:
    kind = models[name]
    keys = {"num_classes": 3, "load_cls_weights": True, **keys}
    model = kind(kind.Parameters(pretrained_model=tf_files.index_of(path), from_tf=True, **keys)).eval()
    model.load_pretrained(trusted.load_weights)
    return model


def answers(model: Any) -> NDArray[np.float32]:
    ids, mask, segments = (torch.from_numpy(each) for each in (IDS, MASK, SEGMENTS))
    with torch.no_grad():
        found: NDArray[np.float32] = model(input_ids=ids, attention_mask=mask, token_type_ids=segments).numpy()
    return found


# ---- into XDPX


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_tensorflow_wrote_gives_the_logits_that_tensorflow_gives(
    tf: Any, checkpoints: dict[str, tuple[str, dict[str, Any]]], kind: str
) -> None:
    prefix, weights = checkpoints[kind]
    np.testing.assert_allclose(answers(loaded(KINDS[kind][0], prefix)), logits_of(tf, weights), atol=1e-5)


def test_names_of_a_hub_module_and_a_saved_model_are_read_alike(
    tf: Any, checkpoints: dict[str, tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    prefix, weights = checkpoints["bert"]
    held = tf.Module()
    held.kept = [tf.Variable(value, name=f"module/{name}") for name, value in weights.items()]
    tf.saved_model.save(held, str(tmp_path / "saved"))
    (tmp_path / "saved/assets").mkdir(exist_ok=True)
    (tmp_path / "saved/assets/bert_config.json").write_text(json.dumps(SIZES))
    assert np.array_equal(
        answers(loaded("bert_classification", str(tmp_path / "saved"))), answers(loaded("bert_classification", prefix))
    )


def test_a_table_of_the_user_maps_a_network_of_his_own(tf: Any, tmp_path: Path) -> None:
    shapes = {"net/words": (9, 4), "net/conv_0/w": (4, 6), "net/out/w": (6, 2), "net/out/b": (2,)}
    prefix = write_checkpoint(tf, tmp_path / "own", drawn(shapes), "notes.json", {})
    kind = models["dssm"]
    keys: dict[str, Any] = {"embedding_dim": 4, "hidden_size": 6, "output_size": 2, "vocab_size": 9, "pad_index": 0}
    table = [["net/words", "embedding.table.weight"], ["net/conv_{}/w", "tower1.{}.weight", True]]
    parameters = kind.Parameters(
        pretrained_model=tf_files.index_of(prefix), from_tf=True, tf_names=table, num_classes=2, **keys
    )
    model = kind(parameters)
    model.load_pretrained(trusted.load_weights)
    assert np.array_equal(model.tower1[0].weight.detach().numpy(), drawn(shapes)["net/conv_0/w"].T)
    assert np.array_equal(model.embedding.table.weight.detach().numpy(), drawn(shapes)["net/words"])


def test_no_variable_takes_the_place_of_another_of_the_same_name(tf: Any, tmp_path: Path) -> None:
    network = tf.Module()
    network.a, network.b, network.c = (tf.Variable(float(value), name=name) for value, name in enumerate("xxy"))
    found = tf_files.read(tf_files.index_of(tf.train.Checkpoint(net=network).write(str(tmp_path / "own"))))
    keys = {f"net/{name}/.ATTRIBUTES/VARIABLE_VALUE": float(value) for value, name in enumerate("ab")}
    assert {name: value.item() for name, value in found.items()} == {**keys, "y": 2.0}
    with pytest.raises(ConfigError, match=r"makes 'x' of both module/x and x"):
        google_names.ours({"module/x": torch.ones(1), "x": torch.zeros(1)})


def test_what_is_no_matrix_is_not_turned() -> None:
    name = "bert/encoder/layer_0/attention/self/query/kernel"
    with pytest.raises(ConfigError, match=r"turns bert/.*/kernel into '.*query.weight', but .* its size is 4x2x2"):
        google_names.ours({name: torch.ones(4, 2, 2)})


def test_a_variable_that_the_table_names_is_none_of_an_optimizer() -> None:
    found = {"net/step/w:0": torch.ones(1), "net/Adam/w": torch.ones(1), "global_step:0": torch.ones(1)}
    assert [*google_names.ours(found, google_names.user_table([["net/step/w", "step.weight"]]))] == ["step.weight"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (["net/words"], r"tf_names\[0\]: is \['net/words'\]\. Write \[name in TensorFlow"),
        (["a_{}", "b.{}.{}"], r"has 1 numbers \{\} in 'a_\{\}', but 2 in"),
        (["output_.*", 3], "Write "),
    ],
)
def test_a_row_of_the_table_that_is_none_is_refused(row: list[Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        google_names.user_table([row])


def test_a_size_that_differs_is_refused_and_left_out_only_where_that_is_asked_for(
    checkpoints: dict[str, tuple[str, dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    prefix, _ = checkpoints["bert"]
    with pytest.raises(
        ConfigError, match=r"contains weights of another size: .*word_embeddings.weight 30x16 there, 31x16"
    ):
        loaded("bert_classification", prefix, extra_config={"vocab_size": 31})
    model = loaded("bert_classification", prefix, extra_config={"vocab_size": 31}, strict_size=False)
    assert model.bert.embeddings.word_embeddings.weight.shape == (31, WIDTH)


def test_a_damaged_checkpoint_and_a_wrong_path_are_named(
    checkpoints: dict[str, tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    prefix, _ = checkpoints["bert"]
    for size in (200, None):  # both files, or the values alone
        for end, most in ((".index", size), (".data-00000-of-00001", 200)):
            (tmp_path / f"cut.ckpt{end}").write_bytes(Path(prefix + end).read_bytes()[:most])
        with pytest.raises(trusted.DamagedFile, match=r"cut.ckpt.index: is not a complete checkpoint of TensorFlow \("):
            trusted.load_weights(tf_files.index_of(str(tmp_path / "cut.ckpt")))
    with pytest.raises(
        FileNotFoundError, match=r"'.*model.index' does not exist, and '.*' is not a folder of a SavedModel"
    ):
        tf_files.index_of(str(tmp_path / "model"))
    assert tf_files.index_of(f"{prefix}.meta") == f"{prefix}.index"


def test_without_tensorflow_one_sentence_names_the_extra(
    checkpoints: dict[str, tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(
        ConfigError, match=r"from_tf: is true, which needs TensorFlow. Install it: pip install 'xdpx\[tf\]'"
    ):
        loaded("bert_classification", checkpoints["bert"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_export_pt_writes_what_a_checkpoint_holds_with_its_architecture(
    tf: Any, checkpoints: dict[str, tuple[str, dict[str, Any]]], kind: str, tmp_path: Path
) -> None:
    prefix, weights = checkpoints[kind]
    name, _, config, _ = KINDS[kind]
    (Path(prefix).parent / "vocab.txt").write_text("[PAD]\n")
    out = tmp_path / "out"
    line = [f"tf_ckpt_path={prefix}", f"tf_config={Path(prefix).with_name(config)}", f"out_dir={out}", "num_classes=3"]
    assert script(["export_pt", *line, f"model_class={name}"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["bert_model.pt", "config.json", "vocab.txt"]
    kept = models[name]
    keys = {"pretrained_model": str(out / "bert_model.pt"), "num_classes": 3, "load_cls_weights": True}
    model = kept(kept.Parameters(**keys)).eval()
    model.load_pretrained(trusted.load_weights)
    np.testing.assert_allclose(answers(model), logits_of(tf, weights), atol=1e-5)


def test_export_pt_leaves_out_what_the_file_lacks_and_refuses_what_it_cannot_know(
    checkpoints: dict[str, tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    prefix, _ = checkpoints["bert"]
    assert script(["export_pt", f"tf_path={prefix}", f"out_dir={tmp_path / 'out'}", "out_name=lm.pt"]) == 0
    kept = trusted.load_weights(str(tmp_path / "out/lm.pt"))
    assert "bert.pooler.dense.weight" in kept
    assert not any(name.startswith("cls.predictions.transform") for name in kept)
    with pytest.raises(ConfigError, match=r"tf_ckpt_path.* cannot be used: '.*nowhere.index' does not exist"):
        script(["export_pt", f"tf_path={tmp_path / 'nowhere'}", f"out_dir={tmp_path / 'x'}"])
    with pytest.raises(ConfigError, match=r"tf_ckpt_path.*and tf_path are both missing"):
        script(["export_pt", f"out_dir={tmp_path / 'x'}"])
    line = ["export_pt", f"tf_path={prefix}", f"out_dir={tmp_path / 'x'}"]
    with pytest.raises(ConfigError, match=r"extra_configs\.embedding_dim: Field required\. cls_cnn requires this"):
        script([*line, "model_class=cls_cnn"])
    with pytest.raises(ConfigError, match=r"num_classes: is 3, but bert_lm has no classes"):
        script([*line, "model_class=bert_lm", "num_classes=3"])
    for name in ("../lm.pt", "config.json", "lm.safetensors"):
        with pytest.raises(ConfigError, match=rf"out_name.*is '{name}'"):
            script(["export_pt", f"tf_path={prefix}", f"out_dir={tmp_path / 'x'}", f"out_name={name}"])
    with pytest.raises(ConfigError, match=r"no 'brt_lm'|model_class.*'brt_lm'"):
        script(["export_pt", f"tf_path={prefix}", f"out_dir={tmp_path / 'x'}", "model_class=brt_lm"])


@pytest.mark.parametrize("more", [{}, {"tf_names": [["a", "b"]]}, {"pretrained_model": None}])
def test_weights_of_tensorflow_that_no_key_names_are_refused_in_training(
    finished_run: Any, more: dict[str, Any]
) -> None:
    wanted = r"from_tf.*is switched off, because pretrained_model is null\. Set pretrained_model to something other"
    with pytest.raises(ConfigError, match=wanted):
        resolve({**finished_run.values, "from_tf": True, **more}, "x-train", source="test", paths=False)


def test_a_run_that_began_with_tensorflow_goes_on_and_is_scored_when_its_files_are_gone(
    tf: Any, data: Path, tmp_path: Path
) -> None:
    count = len((data / "vocab.txt").read_text().splitlines())
    prefix = write_checkpoint(tf, tmp_path / "theirs", drawn({"net/words": (count, 4)}), "notes.json", {})
    values = {"__parent__": str(data / "meta"), "data_dir": str(data), "save_dir": str(tmp_path / "run")}
    values |= {"model": "cls_cnn", "embedding_dim": 4, "hidden_size": 6, "loss": "cross_entropy", "max_update": 2}
    values |= {"batch_size": 8, "learning_rate": 0.01, "eval_interval": 1, "major_metric": "acc"}
    values |= {"pretrained_model": prefix, "from_tf": True, "tf_format": "checkpoint", "save_full_checkpoint": True}
    values |= {"tf_names": [["net/words", "embedding.table.weight"]]}

    def run(command: str, **keys: Any) -> None:
        (tmp_path / "config.json").write_text(json.dumps(keys))
        assert door([command, str(tmp_path / "config.json")]) == 0

    run("x-train", **values, train_steps=1)
    theirs = InferenceParameters(save_dir=f"{tmp_path}/run", checkpoint=prefix, from_tf=True)
    with pytest.raises(ConfigError, match=r"checkpoint: lacks weights of the model: encoder.*They would be random"):
        Predictor(make_plan(theirs, "test"))
    shutil.rmtree(tmp_path / "theirs")
    run("x-train", **values, resume=True)
    run("x-eval", save_dir=f"{tmp_path}/run", valid_subset="dev")
    run("x-pred", save_dir=f"{tmp_path}/run", predict_file_map={f"{data.parent}/raw/dev.txt": f"{tmp_path}/found.tsv"})
    assert len((tmp_path / "found.tsv").read_text().splitlines()) == 41


# ---- out of XDPX


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["signature_def_key="], r"signature_def_key.*is empty\. Name the signature of token ids"),
        (["signature_def_key=text"], r"is 'text', the signature that takes strings\."),
        (["export_format=checkpoint", "out_name=../bert.ckpt"], r"out_name.*is '\.\./bert\.ckpt'\. Use a name without"),
        (["export_format=checkpoint", "out_name="], r"out_name.*is ''\. Use a name without"),
    ],
)
def test_names_that_a_signature_or_a_file_cannot_have_are_refused(
    finished_run: Any, tmp_path: Path, more: list[str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        script(["export_tf", f"save_dir={finished_run.root}/run", f"out_dir={tmp_path / 'out'}", *more, "--dry"])


@pytest.fixture(scope="module")
def saved(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel of the run beside it. One serves several tests: TensorFlow compiles for seconds."""
    root = FinishedRun(tmp_path_factory.mktemp("saved")).root
    assert script(["export_tf", f"save_dir={root}/run", f"out_dir={root}/saved", "check_outputs=true"]) == 0
    return Path(root) / "saved"


def test_a_saved_model_is_compared_with_its_run_and_names_labels(tf: Any, saved: Path) -> None:
    out = saved
    told = json.loads((out / "export.json").read_text())["compared"]
    assert told["outputs"] < 1e-5
    assert told["changed"] == 0
    call = tf.saved_model.load(str(out)).signatures["serving_default"]
    found = call(tokens=tf.constant([[2, 3, 4]], tf.int64), mask=tf.constant([[True, True, True]]))
    assert found["pred"].numpy()[0].decode() in {"neg", "pos"}
    assert sorted(path.name for path in (out / "assets").iterdir()) == ["labels.txt", "vocab.txt"]


@pytest.mark.parametrize("length", tiers.some(["any length", "one length"], ["any length"]))
def test_strings_are_cut_and_numbered_in_the_graph_as_the_run_does(tf: Any, saved: Path, length: str) -> None:
    run, out, texts = saved.parent / "run", saved, ["good film", "", "B\u00c4D  plot\u3000\U0001f600", "good " * 50]
    texts.append("\u7535\u5f71")
    if length == "one length":
        out = saved.parent / "one"
        assert script(["export_tf", f"save_dir={run}", f"out_dir={out}", "fix_len=true"]) == 0
    opened = tf.saved_model.load(str(out))
    expected = load_run(run).predict(texts)
    for rows in (texts, *([text] for text in texts)):
        found = opened.signatures["text"](text=tf.constant(rows))
        for text, label, prob in zip(rows, found["pred"].numpy(), found["prob"].numpy(), strict=True):
            wanted = expected[texts.index(text)]
            assert label.decode() == wanted.label
            np.testing.assert_allclose(prob, list(wanted.probabilities.values()), atol=1e-6)


RECURRENCE_POOLING_ALIGNMENT: dict[str, dict[str, int]] = {
    "lstm": {}, "gru": {}, "dpcnn": {"blocks": 2}, "re2": {"blocks": 2, "encoder_layers": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", tiers.some(RECURRENCE_POOLING_ALIGNMENT, ["gru"]))
def test_recurrence_pooling_and_alignment_are_the_same_in_tensorflow(tf: Any, name: str) -> None:
    from xdpx.inference.tf.graph import Graph, program_of
    from xdpx.inference.tracing import work_out_weights
    from xdpx.models.pytorch.positional import Positional

    def real(ids: torch.Tensor) -> torch.Tensor:
        return torch.arange(ids.shape[1]).expand(ids.shape) < ids[:, :1].clamp(max=ids.shape[1])

    sizes = {"embedding_dim": 6, "hidden_size": 6, "vocab_size": 20, "pad_index": 0, "num_classes": 2}
    torch.manual_seed(3)
    model = models[name](models[name].Parameters(**sizes, **RECURRENCE_POOLING_ALIGNMENT[name])).eval()
    work_out_weights(model)
    texts = [torch.randint(1, 20, shape) for shape in ((3, 7), (3, 5), (1, 2), (1, 9))]
    first, *others = (
        [each for ids in pair for each in (ids, real(ids))] if name == "re2" else [pair[0], real(pair[0])]
        for pair in (texts[:2], texts[2:])
    )
    names = ["tokens1", "mask1", "tokens2", "mask2"] if name == "re2" else ["tokens", "mask"]
    network = Positional(model, names)
    specs = [tf.TensorSpec([None, None], tf.bool if each.dtype == torch.bool else tf.int64) for each in first]
    run = tf.function(Graph(tf, program_of(network, first)), input_signature=[specs], autograph=False)
    for given in (first, *others):
        with torch.no_grad():
            wanted = network(*given).numpy()
        (found,) = run([tf.constant(each.numpy()) for each in given])
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5, err_msg=name)


def test_an_operation_that_tensorflow_lacks_is_refused_by_name(tf: Any) -> None:
    from xdpx.inference.tf.graph import Graph, program_of

    class Odd(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(given[0])

    program = program_of(Odd(), [torch.zeros(2, 3)])
    with pytest.raises(
        ConfigError, match=r"uses aten.special_bessel_j0.default, for which TensorFlow has no counterpart"
    ):
        Graph(tf, program)
