from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from xdpx.engines.pytorch.nonfinite import Guard
from xdpx.engines.pytorch.precision import Precision

FINE, NAN, INF = (torch.tensor(value) for value in (1.0, float("nan"), float("inf")))
PLAIN = Precision("no", torch.device("cpu"))


def test_nothing_is_looked_at_unless_asked_for() -> None:
    assert Guard.of("keep", PLAIN) is None


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
