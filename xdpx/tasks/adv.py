"""Adversarial training under the names used in the guide, for users' tasks that inherit from them."""

from xdpx.tasks.freelb import FreeLB as FreeLBTask
from xdpx.tasks.freelb import FreeLBCNN as FreeLBCNNTask

__all__ = ["FreeLBCNNTask", "FreeLBTask"]
