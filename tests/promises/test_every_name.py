"""What holds of every name that ships: it trains from its family, its weights come back, padding means nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests import tiers
from tests.promises import name_recipes as recipes
from xdpx.checkpoints import trusted
from xdpx.config import catalogue
from xdpx.config.loading import Run, load
from xdpx.config.registry import registry_of
from xdpx.datasets.store import Store
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.engines.pytorch.transfer import to_arrays, to_device
from xdpx.optimizers import NEEDED
from xdpx.optimizers.pytorch.building import of_run
from xdpx.run import main
from xdpx.tokenizers.vocabulary import Vocabulary

RECIPES = sorted(recipes.RECIPES)
NEVER_TRAINED = {
    ("model", "savedmodel"),
    *(("optimizer", name) for name in NEEDED),
}
"""A program of TensorFlow: tests/models/test_deployed.py has what holds of it. Optimizers of packages that are not
installed for tests: tests/optimizers/test_named_optimizers.py."""
HERE = tiers.some(
    RECIPES,
    [
        *("albert_pretrain", "bert_cl", "bert_classification", "bert_classification_concat", "bert_classification_pkm"),
        *("bert_classification_rezero", "bert_classification_self_attn", "bert_dpr_qa", "bert_freelb"),
        *("bert_lm of whole words", "bert_mix of pairs", "bert_pretrain", "bert_pretrain_cl behind a prompt"),
        *("bert_pretrain_lopkm", "bert_prompt", "bert_qa", "bert_regression", "bert_token with a CRF", "bow"),
        *("causal_lm", "circle", "cls_cnn", "cnn_regression", "deberta_classification", "distill", "dpcnn", "dssm"),
        *("electra_classification", "electra_pretrain", "esim", "fewshot of pairs", "freelb_cnn", "gru_token"),
        *("listnet", "lopkm_student", "lstm", "match_gru", "match_lstm", "minilm of other heads", "mlman"),
        *("modernbert_classification", "pgd", "pkm_student", "protonet", "re2", "rmr with what is read"),
        *("sbert_nli of pairs", "simcse of triplets", "slm", "smart", "static_distill", "string_mix", "t5"),
        *("tinybert_for_gd", "tinybert_for_td", "torchscript", "xdp_cls_cnn_bce"),
    ],
)
"""The recipes whose weights, rows and gradients are looked at. In the short form: one for each network, and each task
that passes it otherwise; no loss, optimizer or schedule of the same network, each of which has tests in its own room.
"""
AT_THE_DOORS = tiers.some(
    RECIPES,
    [
        *("balanced", "bert_cl", "bert_gentle", "bert_pretrain_lopkm", "causal_lm", "circle", "distill", "esim"),
        *("freelb_cnn", "greedy", "gru_token", "pair", "prompt_single", "protonet", "reduce_lr_on_plateau", "slm"),
        *("smart", "sparse_adam", "string_mix", "tinybert_for_gd", "torchscript"),
    ],
)
"""The recipes that x-train and x-eval run. In the short form: tasks and corpora that the short form of test_examples.py
does not train; samplers and schedules that look at rows or scores; none that differs by its network alone."""
COVERED = ("model", "task", "loss", "optimizer", "lr_scheduler", "sampler", "processor", "loader")
STEPS = 4
CPU = torch.device("cpu")


# ---- a model trained for a few steps, each once for all tests


@dataclass
class Trained:
    """A model after a few updates.

    Attributes:
        untrained: what it predicted of the held-out rows before.
        gradients: the largest entry of each weight's gradient over all updates; 0 where there was none.
    """

    run: Run
    task: Any
    processor: Any
    held_out: Store
    untrained: Mapping[str, Any]
    gradients: Mapping[str, float]

    def predict(self, task: Any = None, rows: list[int] | None = None, **options: Any) -> dict[str, Any]:
        task = task or self.task
        task.model.eval()
        chosen = np.arange(len(self.held_out)) if rows is None else np.array(rows)
        batch = self.processor.collate(self.held_out.take(chosen), seed=1, **options)
        with torch.no_grad():
            return to_arrays(task.valid_step(to_device(batch, CPU)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the config that made the preprocessed data of a kind; `files/data` beside it holds them."""

    @cache
    def prepared(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        (folder / "prepro.json").write_text(json.dumps(recipes.write_raw(kind, folder / "files")))
        assert main(["x-prepro", str(folder / "prepro.json")]) == 0
        return folder / "prepro.json"

    return prepared


@pytest.fixture(scope="module")
def config(data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the training config of a recipe, whose data are there."""

    @cache
    def written(name: str) -> Path:
        folder, data_dir = tmp_path_factory.mktemp("run"), data(recipes.RECIPES[name].data).parent / "files/data"
        declared = {item.key for item in catalogue.entry("model", recipes.model_of(name)).parameters}
        values = recipes.train_config(name, data_dir, folder / "run", declared)
        (folder / "train.json").write_text(json.dumps(values))
        if recipes.RECIPES[name].prefix:
            write_teacher(load(str(folder / "train.json"), "x-train", paths=False)[0])
        if "model_path" in values:
            write_script(load(str(folder / "train.json"), "x-train", paths=False)[0])
        return folder / "train.json"

    return written


@pytest.fixture(scope="module")
def trained(config: Callable[[str], Path]) -> Callable[[str], Trained]:
    """Return what a recipe trained; each trains once."""
    return cache(lambda name: train(load(str(config(name)), "x-train")[0]))


def train(run: Run) -> Trained:
    data_dir = Path(run.values["data_dir"])
    processor, samples = build_processor(run, data_dir), Store.open(str(data_dir / "train.pt"))
    engine = PyTorchEngine(
        lambda: build_task(run),
        make_optimizer=lambda model: of_run(run, model.parameter_groups(0.01)),
        options=EngineOptions(device="cpu"),
    )
    state = engine.start(0)
    found = Trained(run, state.task, processor, Store.open(str(data_dir / "dev.pt")), {}, {})
    found.untrained, found.gradients = found.predict(), watch_gradients(found.task.model)
    for rows in np.array_split(np.arange(len(samples)), STEPS):
        state, _ = engine.update(state, [processor.collate(samples.take(rows), epoch=1, seed=1, training=True)])
    return found


def write_teacher(run: Run) -> None:
    """Write the random weights of the teacher that a run names."""
    torch.manual_seed(3)
    with Path(run.values["teacher_pretrained_model"]).open("wb") as file:
        trusted.save_tensors(run.build("model", "teacher_").state_dict(), file)


class Mean(nn.Module):
    """A network of another program: the mean of word vectors, and one layer."""

    def __init__(self, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.table, self.classify = nn.Embedding(vocab_size, 8), nn.Linear(8, num_classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        inside = mask.unsqueeze(-1).float()
        return self.classify((self.table(tokens) * inside).sum(1) / inside.sum(1))  # type: ignore[no-any-return]


def write_script(run: Run) -> None:
    """Write the network that a run names as TorchScript."""
    torch.manual_seed(3)
    network = Mean(run.values["vocab_size"], run.values["num_classes"])
    torch.jit.script(network).save(run.values["model_path"])  # type: ignore[no-untyped-call]


def watch_gradients(model: nn.Module) -> dict[str, float]:
    """Return what fills with the largest entry of each trained weight's gradient."""
    largest: dict[str, float] = {}
    for name, weight in trained_weights(model):
        largest[name] = 0.0

        def note(weight: Tensor, name: str = name) -> None:
            largest[name] = max(largest[name], float(weight.grad.abs().max()))

        weight.register_post_accumulate_grad_hook(note)
    return largest


def trained_weights(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def build_processor(run: Run, data_dir: Path) -> Any:
    known = run.parameters("processor")
    words = {"pad_word": known.pad_word, "unk_word": known.unk_word}
    return run.build("processor", vocabulary=Vocabulary.read(str(data_dir / "vocab.txt"), **words))


def build_task(run: Run, seed: int | None = None) -> Any:
    if seed is not None:
        torch.manual_seed(seed)
    return run.picked("task").built(run, run.build("loss"))


# ---- what holds of each


def test_every_name_that_ships_is_used_by_a_recipe(config: Callable[[str], Path], data: Callable[[str], Path]) -> None:
    used = {pick for kind in recipes.DATA for pick in picks(load(str(data(kind)), "x-prepro", paths=False)[0])}
    used |= {pick for name in RECIPES for pick in picks(load(str(config(name)), "x-train")[0])}
    shipped = {(kind, name) for kind in COVERED for name in registry_of(kind).shipped}
    assert sorted(shipped - used - NEVER_TRAINED) == [], "add recipes for these to tests/promises/name_recipes.py"


def picks(run: Run) -> set[tuple[str, str]]:
    return {(kind, name) for (_, kind), name in run.picks.items()}


@pytest.mark.parametrize("name", HERE)
def test_weights_that_were_trained_saved_and_read_back_predict_the_same(
    trained: Callable[[str], Trained], name: str, tmp_path: Path
) -> None:
    one = trained(name)
    expected = one.predict()
    assert not same(expected, one.untrained)
    with (tmp_path / "weights.pt").open("wb") as file:
        trusted.save_tensors(one.task.model.state_dict(), file)
    again = build_task(one.run, seed=9)
    assert not same(one.predict(again), expected)
    again.model.load_state_dict(trusted.load_weights(str(tmp_path / "weights.pt")))
    assert same(one.predict(again), expected)


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", HERE)
def test_more_padding_changes_no_prediction(trained: Callable[[str], Trained], name: str) -> None:
    one = trained(name)
    assert_close(one.predict(pad_multiple=32), one.predict(pad_multiple=1))


@pytest.mark.parametrize("name", [name for name in HERE if recipes.RECIPES[name].alone])
def test_a_row_is_predicted_alike_alone_and_among_others(trained: Callable[[str], Trained], name: str) -> None:
    one = trained(name)
    together = one.predict()
    alone = [one.predict(rows=[row]) for row in range(len(one.held_out))]
    for key, value in together.items():
        if np.ndim(value):
            for row, single in enumerate(alone):
                assert_close({key: single[key][0]}, {key: value[row]})
        else:
            assert_close({key: sum(single[key] for single in alone)}, {key: value})


def assert_close(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare predictions; of arrays with a place for each token, the places that both have."""
    assert found.keys() == expected.keys()
    for key in found:
        left, right = np.asarray(found[key]), np.asarray(expected[key])
        if left.dtype.kind in "OU":  # texts
            np.testing.assert_array_equal(left, right, err_msg=key)
            continue
        common = tuple(slice(0, min(sizes)) for sizes in zip(left.shape, right.shape, strict=True))
        np.testing.assert_allclose(left[common], right[common], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", HERE)
def test_gradients_reach_every_weight_that_is_trained(trained: Callable[[str], Trained], name: str) -> None:
    one = trained(name)
    grouped = {id(w) for group in one.task.model.parameter_groups(0.1) for w in group["params"]}
    assert grouped == {id(weight) for _, weight in trained_weights(one.task.model)}
    assert {weight: size for weight, size in one.gradients.items() if not 0 < size < math.inf} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_THE_DOORS)
def test_a_run_from_its_family_is_scored_alike_when_it_is_read_back(
    config: Callable[[str], Path], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["x-train", str(config(name)), f"save_dir={tmp_path / 'run'}"]) == 0
    scored = {"save_dir": str(tmp_path / "run"), "valid_subset": "dev", "compare_origin": True}
    (tmp_path / "eval.json").write_text(json.dumps(scored))
    assert main(["x-eval", str(tmp_path / "eval.json")]) == 0
    assert "loss" in capsys.readouterr().out
