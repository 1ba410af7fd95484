import numpy as np
import pytest
import torch

import xdpx
from xdpx.inference.mixed_rows import may_mix, warn_of_chance, warn_of_mixing
from xdpx.logger import log
from xdpx.losses.base import Loss

ROWS = torch.tensor([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]])


def warned(capsys, score, batch=ROWS, alone=ROWS[-1:]):
    warn_of_mixing(score, batch, alone, num_rows=len(batch), what="Mine")
    return "Mine: predicts a row differently in a batch than alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "how",
    [
        lambda x: x - x.mean(0),
        lambda x: x.softmax(0),
        lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
        lambda x: (x @ x.T).softmax(1) @ x,
    ],
)
def test_a_network_that_lets_rows_look_at_each_other_is_told(capsys, how):
    assert warned(capsys, lambda x: {"prob": how(x), "pred": np.zeros(len(x), np.int64)})


def test_other_answers_than_those_of_rows_and_rounding_are_not_told(capsys):
    assert not warned(capsys, lambda x: {"prob": x * (1 + 1e-6 * len(x)), "pred": len(x) * torch.ones(len(x)).long()})
    assert not warned(capsys, lambda x: {"loss": x.sum(), "of_classes": x.sum(0), "none": 3.0})
    wide, narrow = torch.ones(2, 5), torch.ones(1, 3)
    assert not warned(capsys, lambda x: {"of_tokens": x}, wide, narrow)


def test_a_network_that_draws_random_numbers_is_told_as_that(capsys):
    warn_of_mixing(lambda x: {"prob": torch.rand(len(x), 2)}, ROWS, ROWS[-1:], num_rows=3, what="Mine")
    told = capsys.readouterr().err
    assert "Mine: gives another answer when the same batch is computed again" in told
    assert "differently in a batch" not in told


def test_answers_that_depend_on_chance_are_told_also_without_the_rows_one_by_one(capsys):
    warn_of_chance(lambda x: {"loss": x.sum(), "prob": x}, ROWS, what="Mine")
    assert not capsys.readouterr().err
    warn_of_chance(lambda x: {"loss": torch.rand(()), "prob": x}, ROWS, what="Mine")
    assert "Mine: gives another answer when the same batch is computed again" in capsys.readouterr().err


def test_trying_changes_neither_random_numbers_nor_what_is_logged(capsys):
    def score(x):
        log.add_summary("tried", 1.0)
        return {"prob": torch.rand(len(x), 2)}

    torch.manual_seed(3)
    expected = torch.rand(())
    torch.manual_seed(3)
    warned(capsys, score)
    assert torch.rand(()) == expected
    assert "tried" not in log.take_summaries()


def test_only_code_of_a_user_is_tried():
    assert not may_mix(object.__new__(Loss))
    assert may_mix(object.__new__(Loss), torch.nn.Linear(1, 1))


def test_prediction_and_evaluation_try_the_first_batch_of_several_rows_once(finished_run, capsys):
    texts = ["good film", "bad plot", "not very good plot"]
    for mixes in (True, False):
        run = xdpx.load_run(finished_run.run)
        assert not run._predictor._is_to_try
        run._predictor._is_to_try = True  # as for a network of one's own
        if mixes:
            run._predictor.task.model.register_forward_hook(lambda _net, _given, out: out - 5 * out.mean(0))
        plain = run.predict(texts[:1])
        assert "predicts a row differently" not in capsys.readouterr().err
        for ask in (
            lambda run=run: run.predict(texts),
            lambda run=run: run.evaluate(str(finished_run.root / "dev.txt")),
        ):
            ask()
        assert capsys.readouterr().err.count("predicts a row differently") == mixes
        assert run.predict(texts[:1]) == plain
