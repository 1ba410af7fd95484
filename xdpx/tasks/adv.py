"""The names that the guide gives to adversarial training, for tasks of a user's own that inherit them."""

from xdpx.tasks.freelb import FreeLB as FreeLBTask
from xdpx.tasks.freelb import FreeLBCNN as FreeLBCNNTask

__all__ = ["FreeLBCNNTask", "FreeLBTask"]
