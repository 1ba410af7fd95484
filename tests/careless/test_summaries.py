"""What a loss or a network notes is written down, beside the data that it was noted of."""

import csv
from pathlib import Path

import pytest

from tests.careless.two_classes import prepare, train
from xdpx.logger import log
from xdpx.losses import losses
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.models import models
from xdpx.models.pytorch.convolutional import ClsCnn
from xdpx.run import main


class NotingCnn(ClsCnn):
    """Notes which phase it is in."""

    def forward(self, **inputs):
        log.add_summary("phase", 1.0 if self.training else 100.0)
        if not self.training:
            log.add_accumulative_summary("visits", 1, lambda values: {"visits": sum(values)})
        return super().forward(**inputs)


class NotingLoss(CrossEntropy):
    """Counts over an evaluation, as the guide says; once guarded, once not."""

    def __call__(self, model, batch):
        count = len(batch["target"])
        log.add_accumulative_summary("all", count, lambda values: {"rows": sum(values)})
        if not model.training:
            log.add_accumulative_summary("held out", count, lambda values: {"rows_held_out": sum(values)}, prefix="my_")
        return super().__call__(model, batch)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with both."""
    folder = tmp_path_factory.mktemp("noting")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(losses._loaded, "noting", NotingLoss)
        patched.setitem(models._loaded, "noting_cnn", NotingCnn)
        data = prepare(folder)
        assert train(data, folder / "run", loss="noting", model="noting_cnn", eval_interval=4) == 0
        scores = str(folder / "scores.tsv")
        words = [f"save_dir={folder}/run", f"valid_subset={data}/dev.pt", f"save_to_file={scores}"]
        assert main(["x-eval", *words]) == 0
    return folder


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_what_a_loss_accumulates_in_its_call_is_that_of_the_evaluation(run):
    """24 held-out rows, 16 in a batch; training adds nothing to what an evaluation adds, too."""
    for row in table(run / "run/valid.log.tsv"):
        assert [row[name] for name in ("rows", "my_rows_held_out", "visits")] == ["24", "24", "4"]


def test_x_eval_shows_the_same(run):
    (row,) = table(run / "scores.tsv")
    assert [float(row[name]) for name in ("rows", "my_rows_held_out", "visits", "phase")] == [24, 24, 4, 100]


def test_summaries_of_an_evaluation_are_not_mixed_with_those_of_training(run):
    assert {row["phase"] for row in table(run / "run/train.log.tsv")} == {"1"}
    assert {row["phase"] for row in table(run / "run/valid.log.tsv")} == {"100"}


def test_a_loss_that_accumulates_nothing_is_not_called_twice():
    assert NotingLoss.accumulates()
    assert not CrossEntropy.accumulates()


def test_what_a_layer_of_x_exp_notes_stands_among_the_summaries_of_evaluations_too(tmp_path):
    """Once per batch, as a mean over the batches; and not among the metrics, of which the best is chosen."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    import jax.numpy as jnp

    from tests.experiments.running import tiny
    from xdpx.experiments.running import run
    from xdpx.models.spmd.language_model import LanguageModel

    class NotingModel(LanguageModel):
        def __call__(self, batch):
            self.add_summary("phase", jnp.float32(100.0 if self.do_eval else 1.0))
            return super().__call__(batch)

    class Noting(tiny.Tiny):
        def task(self):
            task = super().task()
            return task.set(model=NotingModel.HParams(lm_tpl=task.model.lm_tpl, decoder_tpl=task.model.decoder_tpl))

    folder = str(tmp_path / "job")
    assert run(Noting(STEPS=2, EVAL=2, SAVE=2), job_log_dir=folder, plots=False, eval_on_test=True) == 0
    for program, wanted in (("train", 1.0), ("eval_train", 100.0), ("eval_test_text", 100.0)):
        events = reading.EventAccumulator(f"{folder}/summaries/{program}")
        events.Reload()
        assert {event.value for event in events.Scalars("phase_scalar")} == {wanted}
    assert "phase" not in "".join(table(Path(folder, "valid.log.tsv"))[0])
