"""A user's loss may leave out whatever the base class has a default for, whether it derives from it or not."""

import torch

from xdpx.losses import losses, register
from xdpx.losses.base import Loss


def test_a_loss_that_does_not_derive_from_the_base_has_its_defaults():
    @register("bare_for_this_test")
    class Bare:
        def __call__(self, model, batch):
            return model(batch).sum(), len(batch), {}

        def metrics(self, gathered):
            return {"mean": float(gathered["value"].mean())}

    try:
        kind = losses["bare_for_this_test"]
        assert issubclass(kind, Bare)
        assert issubclass(kind, Loss)
        assert (kind.learns_labels, kind.compares_rows, kind.__name__) == (False, False, "Bare")
        loss = kind(None)
        assert loss.scores({"value": torch.ones(2)}) == {"mean": 1.0}
        assert (loss.each_class({}, None), loss.state_dict(), loss.average) == ([], {}, None)
        assert losses["bare_for_this_test"] is kind
    finally:
        losses._loaded.pop("bare_for_this_test")
