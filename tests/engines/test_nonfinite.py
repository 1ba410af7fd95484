from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from xdpx.engines.pytorch.nonfinite import Guard, all_finite
from xdpx.engines.pytorch.precision import Precision

FINE, NAN, INF = (torch.tensor(value) for value in (1.0, float("nan"), float("inf")))
PLAIN = Precision("no", torch.device("cpu"))


def test_nothing_is_waited_for_unless_asked_for() -> None:
    assert Guard.of("keep", Precision("no", torch.device("cuda"))) is None


def test_an_update_that_is_kept_is_told_on_a_cpu_before_it_is_taken() -> None:
    heard: list[int] = []
    guard = Guard.of("keep", PLAIN, hear=heard.append)
    assert guard is not None
    assert not guard.leaves_out(FINE, FINE, 1)
    assert not guard.leaves_out(NAN, FINE, 2)
    assert heard == [2]


@pytest.mark.parametrize(("loss", "norm", "bad"), [(FINE, FINE, False), (NAN, FINE, True), (FINE, INF, True)])
def test_an_update_is_left_out_when_its_loss_or_gradient_is_not_finite(
    loss: torch.Tensor, norm: torch.Tensor, bad: bool
) -> None:
    guard = Guard.of("skip", PLAIN)
    assert guard is not None
    assert guard.leaves_out(loss, norm, 1) is bad


def test_the_error_names_step_numbers_and_remedies() -> None:
    guard = Guard.of("raise", PLAIN)
    assert guard is not None
    assert not guard.leaves_out(FINE, FINE, 6)
    with pytest.raises(FloatingPointError, match=r"step 7: the loss is nan and the norm of the gradient 1\."):
        guard.leaves_out(NAN, FINE, 7)


def test_gradients_that_overflow_under_a_loss_scale_are_left_to_it() -> None:
    guard = Guard.of("raise", SimpleNamespace(scaler=object()))  # type: ignore[arg-type]
    assert guard is not None
    assert not guard.leaves_out(FINE, INF, 1)
    with pytest.raises(FloatingPointError):
        guard.leaves_out(INF, INF, 1)


def test_updates_left_out_one_after_another_end_the_training_and_single_ones_do_not() -> None:
    guard = Guard.of("skip", PLAIN)
    assert guard is not None
    for step in range(1, 300):
        assert guard.leaves_out(FINE if step % 50 == 0 else NAN, FINE, step) is (step % 50 != 0)
    for step in range(300, 350):
        guard.leaves_out(NAN, FINE, step)
    with pytest.raises(FloatingPointError, match=r"step 350: the last 100 .* The weights are of step 250"):
        guard.leaves_out(NAN, FINE, 350)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_number_among_many_weights_is_found(kind: torch.dtype, bad: float) -> None:
    weights = [torch.zeros(0), torch.full((3, 2), torch.finfo(kind).max, dtype=kind), torch.ones(2, dtype=torch.int8)]
    assert all_finite(weights)
    weights[1][2, 1] = bad
    assert not all_finite(weights)
    assert all_finite([])
    assert all_finite([torch.full((2,), bad, device="meta")])
