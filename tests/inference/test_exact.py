import random

import numpy as np
import pytest
import torch

import xdpx
from xdpx.config.faults import ConfigError
from xdpx.engines.base import Task
from xdpx.engines.pytorch.exact import ExactRows, next_count

WORDS = ["good", "bad", "film", "very", "not", "plot"]


@pytest.fixture
def texts():
    dice = random.Random(3)
    return [" ".join(dice.choices(WORDS, k=dice.randint(1, 12))) for _ in range(70)]


def bits(found):
    return np.array([list(one.probabilities.values()) for one in found]).tobytes()


def test_a_row_gets_the_same_bits_in_every_batch(finished_run, texts):
    run = xdpx.load_run(finished_run.run, exact=True)
    rows = run.encode(texts)
    expected = bits(run.predict(texts))
    for size in (1, 7, 32, 70):
        found = [one for start in range(0, len(rows), size) for one in run.answer(rows[start : start + size])]
        assert bits(found) == expected
    backwards = run.answer(rows[::-1], batch_size=5)
    assert bits(backwards[::-1]) == expected
    assert "x the time of batches as they come, on 8 rows" in run.cost_of_exact()


def test_x_pred_and_x_eval_give_the_bits_of_the_session(finished_run, texts, capsys):
    (finished_run.root / "rows.txt").write_text("".join(f"{text}\n" for text in texts))
    target = finished_run.root / "out.pt"
    for size in (1, 16):
        keys = {"binary": True, "concat_origin": False, "exact": True, "batch_size": size}
        finished_run.perform("x-pred", predict_file_map={str(finished_run.root / "rows.txt"): str(target)}, **keys)
        prob = torch.load(target)["prob"].numpy().astype(np.float64).tobytes()
        assert prob == bits(xdpx.load_run(finished_run.run, exact=True).predict(texts))
    capsys.readouterr()
    scores = []
    for exact in (False, True):
        finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), exact=exact, page="")
        header, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
        scores.append({name: float(cell) for name, cell in zip(header, row, strict=True) if name in ("acc", "loss")})
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)  # rows that fill up a batch count nothing


def test_what_cannot_be_exact_is_refused(finished_run):
    with pytest.raises(ConfigError, match="exact: is true, but the engine is spmd"):
        xdpx.load_run(finished_run.run, exact=True, engine="spmd")


# ---- how the numbers of rows are found


class Numbers(torch.nn.Module):
    """What its rows get depends on how many they are, and on where they stand, as far as a test wants it."""

    def __init__(self, least: int, places: int) -> None:
        super().__init__()
        self.least, self.places, self.seen = least, places, []

    def forward(self, x):
        self.seen.append(len(x))
        place = torch.arange(len(x)) * (len(x) > self.places)
        return x[:, 0] + (len(x) < self.least) + place, torch.ones(3)


class Numbered(Task):
    def __init__(self, model):
        self.model = model


@pytest.mark.parametrize(
    ("least", "places", "rows", "expected"),
    [
        (1, 99, 1, [1]),
        (4, 99, 1, [4]),
        (4, 99, 7, [8]),
        (4, 99, 20, [16, 4]),
        (32, 99, 3, [32]),
        (1, 8, 20, [8, 8, 4]),
        (1, 0, 3, [1, 1, 1]),
    ],
)
def test_rows_are_computed_in_numbers_that_give_the_same_bits(least, places, rows, expected):
    model, exact = Numbers(least, places), ExactRows()
    given = torch.arange(rows * 2.0).reshape(rows, 2)
    for _ in range(2):  # the first time the numbers are tried
        model.seen.clear()
        with exact.inside(Numbered(model)):
            found, one = model(x=given)
    assert model.seen == expected
    assert one.shape == (3,)
    assert found.tolist() == given[:, 0].tolist()
    assert "forward" not in vars(model)


class Mixing(torch.nn.Module):
    """Looks at other rows of its batch: two of them give the same bits in either order."""

    def __init__(self, mixed):
        super().__init__()
        self.mixed = mixed

    def forward(self, x):
        return x - self.mixed(x)


@pytest.mark.parametrize(
    "mixed", [lambda x: x.mean(0), lambda x: x.max(0).values, lambda x: x.roll(1, 0), lambda x: (x @ x.T) @ x]
)
def test_a_network_that_mixes_the_rows_of_a_batch_gets_them_one_by_one(mixed):
    model, given = Mixing(mixed), torch.randn(9, 6)
    with ExactRows().inside(Numbered(model)):
        together, alone = model(x=given), torch.cat([model(x=row[None]) for row in given])
    assert torch.equal(together, alone)
    assert not torch.equal(model(x=given), alone)


class Inside(torch.nn.Module):
    """A part of which few rows, or none that the end shows, get other bits in small numbers."""

    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        return x + (x % self.share == 0) * (len(x) < 4)


class Ended(torch.nn.Module):
    def __init__(self, share, scale):
        super().__init__()
        self.inside, self.scale, self.seen = Inside(share), scale, []

    def forward(self, x):
        self.seen.append(len(x))
        return (self.inside(x) * self.scale + 0.5)[:, 0]


@pytest.mark.parametrize(("share", "scale"), [(1, 1e-12), (7, 1.0)], ids=["rounded away at the end", "in few rows"])
def test_other_bits_are_seen_inside_and_in_few_rows(share, scale):
    model, exact = Ended(share, scale), ExactRows()
    for _ in range(2):  # the first time the numbers are tried
        model.seen.clear()
        with exact.inside(Numbered(model)):
            model(x=torch.full((1, 1), 20))
    assert model.seen == [4]


class Looked(torch.nn.Module):
    """Gives rows other bits in small numbers if they have an id above 1."""

    def __init__(self, table):
        super().__init__()
        self.table, self.seen = table, []
        self.places = torch.nn.Embedding(8, 1)

    def forward(self, ids):
        self.seen.append(len(ids))
        found = self.table(ids) + self.places(torch.arange(8))[:, 0]
        return found + (found > 1.5) * (len(ids) < 4)


class Whole(torch.nn.Embedding):
    def forward(self, ids):
        return super().forward(ids)[..., 0]


@pytest.mark.parametrize("tries", [1, 2], ids=["embedded", "looked up by hand"])
def test_a_first_batch_of_few_ids_does_not_hide_that_others_get_other_bits(tries):
    table = Whole(50, 1)
    model, exact = Looked(table if tries == 1 else lambda ids: table.weight[ids][..., 0]), ExactRows()
    with torch.inference_mode(), exact.inside(Numbered(model)):
        table.weight.copy_(torch.arange(50.0)[:, None])
        model.places.weight.zero_()
        model(ids=torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0]]))
        rows = torch.randint(2, 50, (3, 8))
        together, alone = model(ids=rows), [model(ids=row[None]) for row in rows]
    assert torch.equal(together, torch.cat(alone))
    assert model.seen[-1] == 4


class Padded(torch.nn.Module):
    """Gives rows other bits in small numbers if they are longer than one token."""

    def __init__(self, real):
        super().__init__()
        self.real, self.seen = real, []

    def forward(self, x, mask):
        self.seen.append(len(x))
        return x * mask + ((mask == self.real).sum(1, keepdim=True) > 1) * (len(x) < 4)


@pytest.mark.parametrize("real", [True, False], ids=["marked as real", "marked as padding"])
def test_a_first_batch_of_short_texts_does_not_hide_that_longer_ones_get_other_bits(real):
    model, exact = Padded(real), ExactRows()
    for length in (1, 5):
        model.seen.clear()
        with exact.inside(Numbered(model)):
            model(x=torch.ones(1, 8), mask=(torch.arange(8) < length)[None] == real)
    assert model.seen == [4]


def test_a_mask_that_is_not_of_padding_is_tried_as_it_is():
    class Holes(torch.nn.Module):
        def forward(self, x, marks):
            return x[marks].view(len(x), 2)

    model, marks = Holes(), torch.tensor([[True, False, True, False], [True, False, False, True]])
    with ExactRows().inside(Numbered(model)):
        assert model(x=torch.arange(8.0).view(2, 4), marks=marks).tolist() == [[0, 2], [4, 7]]


class Signed(torch.nn.Module):
    """Gives zeros, which have another sign where rows are few."""

    def forward(self, x):
        self.seen = len(x)
        return x * (0.0 if len(x) >= 4 else -0.0)


def test_zeros_of_another_sign_are_other_bits():
    model = Signed()
    exact = ExactRows()
    for _ in range(2):
        with exact.inside(Numbered(model)):
            model(torch.ones(1, 3))
    assert model.seen == 4


class Looking(torch.nn.TransformerEncoderLayer):
    """Computes another way where it finds hooks, as torch's own does."""

    def __init__(self):
        super().__init__(4, 1)
        self.hooked = False

    def forward(self, x):
        self.hooked |= any(len(part._forward_hooks) for part in self.modules())
        return x


def test_what_computes_another_way_with_hooks_is_given_none():
    model = torch.nn.Sequential(torch.nn.Sequential(Looking()), torch.nn.ReLU())
    with ExactRows().inside(Numbered(model)):
        model(torch.ones(3, 4))
    assert not model[0][0].hooked


def test_a_network_with_many_weights_is_tried_with_fewer_rows(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    for size in (1, 4000):
        model = Numbers(1, 99)
        model.weights = torch.nn.Parameter(torch.zeros(size, size))
        with ExactRows().inside(Numbered(model)):
            model(x=torch.ones(40, 64))
        seen.append(max(model.seen))
    assert seen[0] == 16
    assert seen[1] < 16


def test_a_network_that_is_not_called_whole_or_reads_no_rows_is_refused():
    model = Numbers(1, 99)
    with pytest.raises(ConfigError, match="'Numbers' is called by its parts"), ExactRows().inside(Numbered(model)):
        pass
    with pytest.raises(ConfigError, match="do not have a row for each"), ExactRows().inside(Numbered(model)):
        model(x=torch.ones(2, 2), places=torch.ones(5))


def test_few_rows_are_filled_up_and_many_are_cut():
    counts = (32, 16, 8, 4)
    assert [next_count(counts, left) for left in (1, 4, 7, 17, 25, 99)] == [4, 4, 8, 16, 32, 32]


# ---- the other doors


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The config of a tiny CNN whose training scores exactly, and a function that trains it."""
    folder, dice = tmp_path_factory.mktemp("trained"), random.Random(3)
    for split, rows in (("train", 40), ("dev", 30)):
        texts = (" ".join(dice.choices(WORDS, k=dice.randint(1, 12))) for _ in range(rows))
        (folder / f"{split}.txt").write_text("".join(f"{text}\t{index % 2}\n" for index, text in enumerate(texts)))
    keys = {"loader": "single", "processor": "single", "tokenizer": "space", "parser": "csv", "max_len": 12}
    data = xdpx.preprocess({"data_source": str(folder), "data_dir": str(folder / "data"), "workers": 1, **keys})
    config = {
        "__parent__": f"{data}/meta.hjson",
        "data_dir": data,
        "save_dir": str(folder / "run"),
        "model": "cls_cnn",
        "loss": "cross_entropy",
    }
    config |= {"embedding_dim": 4, "hidden_size": 8, "encoder_layers": 1, "max_update": 2, "eval_interval": 2}
    config |= {"major_metric": "acc", "learning_rate": 0.1, "plots": False, "exact": True, "overwrite": True}
    return lambda **more: xdpx.train(config | more)


def test_training_scores_with_the_bits_of_x_eval(trained):
    run = trained(batch_size=7)
    found = xdpx.load_run(run.save_dir, exact=True).evaluate()["loss"]
    assert run.scores["loss"] == pytest.approx(found, abs=5e-9)  # the log has eight digits


def test_where_training_cannot_score_so_it_is_refused(trained):
    for key in ("bf16", "compile"):
        with pytest.raises(ConfigError, match=f"exact: is true, but {key}"):
            trained(batch_size=7, **{key: True})


WAYS = {
    "torchscript": {"exact": True},
    "onnx": {"exact": True},
    "onnx quantise=int8 most_lost=100": {},  # whose range would be that of all rows of a batch, and of their padding
}


@pytest.mark.parametrize("way", WAYS)
def test_an_export_gives_a_row_the_same_bits_in_every_batch(way, trained, texts, tmp_path, capsys):
    from xdpx.run import main

    name, *more = way.split()
    pytest.importorskip("onnxruntime" if name == "onnx" else "torch")
    words = [f"save_dir={trained(batch_size=8).save_dir}", f"out_dir={tmp_path / name}", "num_rows=4", *more]
    assert main(["x-script", f"export_{name}", *words]) == 0, capsys.readouterr().err
    export = xdpx.load_run(tmp_path / name, **WAYS[way])
    rows, expected = export.encode(texts), bits(export.predict(texts))
    for size in (1, 7):
        found = [one for start in range(0, len(rows), size) for one in export.answer(rows[start : start + size])]
        assert bits(found) == expected


def test_an_export_of_one_number_a_row_computes_each_row_alone(tmp_path, texts, capsys):
    from xdpx.run import main

    for split in ("train", "dev"):
        lines = (f"{text}\t{len(text) / 50}\n" for text in texts)
        (tmp_path / f"{split}.txt").write_text("".join(lines))
    keys = {"loader": "single", "processor": "single", "tokenizer": "space", "parser": "csv"}
    keys |= {"max_len": 12, "target_type": "number"}
    data = xdpx.preprocess({"data_source": str(tmp_path), "data_dir": str(tmp_path / "data"), "workers": 1, **keys})
    config = {"__parent__": f"{data}/meta.hjson", "data_dir": data, "save_dir": str(tmp_path / "run")}
    config |= {
        "model": "cnn_regression",
        "loss": "mse",
        "major_metric": "loss",
        "embedding_dim": 4,
        "hidden_size": 8,
        "encoder_layers": 1,
    }
    config |= {"batch_size": 8, "ascending_metric": False, "max_update": 2, "eval_interval": 2, "plots": False}
    xdpx.train(config | {"learning_rate": 0.1})
    words = [f"save_dir={tmp_path / 'run'}", f"out_dir={tmp_path / 'export'}", "num_rows=4"]
    assert main(["x-script", "export_torchscript", *words]) == 0, capsys.readouterr().err
    export = xdpx.load_run(tmp_path / "export", exact=True)
    together = export.predict(texts)
    assert [each.score for each in together] == [export.predict([text])[0].score for text in texts]
    assert export._predictor._one_by_one
    assert (export.labels, xdpx.load_run(tmp_path / "run").labels) == (None, None)  # no list of all numbers seen
