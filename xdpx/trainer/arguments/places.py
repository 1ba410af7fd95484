"""Properties of the arguments about this process: device, rank, log levels.

Constructing arguments initialises no process group and no device: that happens when one of these is first read.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from xdpx.trainer.arguments.enums import ParallelMode
from xdpx.trainer.arguments.fields import Fields

if TYPE_CHECKING:
    import torch

    from xdpx.engines.pytorch.world import World

_MODES = {
    "single": ParallelMode.NOT_PARALLEL,
    "data_parallel": ParallelMode.NOT_DISTRIBUTED,
    "distributed": ParallelMode.DISTRIBUTED,
}


def library_level() -> int:
    """Return the log level of transformers as the program has set it, by default WARNING."""
    if "transformers" not in sys.modules:
        word = os.environ.get("TRANSFORMERS_VERBOSITY", "warning").upper()
        return logging.getLevelNamesMapping().get(word, logging.WARNING)
    from transformers.utils import logging as levels

    return int(levels.get_verbosity())


def level_of(word: str) -> int:
    """Return the number of a log level; `passive`: the current one."""
    if word == "passive":
        return library_level()
    return logging.DEBUG if word == "detail" else logging.getLevelNamesMapping()[word.upper()]


class ProcessFields(Fields):
    """Rank, device and log level of this process, by the arguments and its launcher."""

    @property
    def world(self) -> World:
        """Rank and device of this process. The first read, on all processes, initialises a process group if needed."""
        found = vars(self).get("_world")
        if found is None:
            from xdpx.engines.pytorch import world

            found = world.current(use_cpu=self.use_cpu, backend=self.ddp_backend, timeout=self.ddp_timeout_delta)
            vars(self)["_world"] = found
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the state of this process, so that arguments can be sent to another one."""
        return {name: value for name, value in vars(self).items() if name != "_world"}

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self.world.device

    @property
    def _setup_devices(self) -> torch.device:
        return self.device

    @property
    def n_gpu(self) -> int:
        """Number of accelerators that this process uses: 0 on a CPU; more than one only without a launcher."""
        given = vars(self).get("_given_n_gpu")
        return self.world.num_gpus if given is None else int(given)

    @property
    def _n_gpu(self) -> int:
        return self.n_gpu

    @_n_gpu.setter
    def _n_gpu(self, number: int) -> None:
        vars(self)["_given_n_gpu"] = number

    @property
    def world_size(self) -> int:
        """Number of processes that train together."""
        return self.world.size

    @property
    def process_index(self) -> int:
        """Rank of this process among all."""
        return self.world.rank

    @property
    def local_process_index(self) -> int:
        """Rank of this process on its machine."""
        return self.world.local_rank

    @property
    def parallel_mode(self) -> ParallelMode:
        """How several devices are used."""
        if self.world.mode == "single" and self.n_gpu > 1:
            return ParallelMode.NOT_DISTRIBUTED
        return _MODES[self.world.mode]

    @property
    def distributed_state(self) -> Any:
        """The same processes as accelerate's `PartialState`, for scripts that use it. Needs accelerate installed."""
        joined = self.world
        try:
            from accelerate import PartialState
        except ImportError as error:
            raise ImportError(
                "args.distributed_state is an object of accelerate, which is not installed. Install it (pip install "
                "accelerate), or read args.world, which has the same information."
            ) from error
        return PartialState(cpu=joined.device.type == "cpu")

    @property
    def train_batch_size(self) -> int:
        """Samples per training batch of this process, over all its devices."""
        return self.per_device_train_batch_size * max(1, self.n_gpu)

    @property
    def eval_batch_size(self) -> int:
        """Samples per batch of an evaluation in this process, over all its devices."""
        return self.per_device_eval_batch_size * max(1, self.n_gpu)

    @property
    def should_log(self) -> bool:
        """Whether this process logs."""
        return (self.local_process_index if self.log_on_each_node else self.process_index) == 0

    @property
    def should_save(self) -> bool:
        """Whether this process writes files."""
        return (self.local_process_index if self.save_on_each_node else self.process_index) == 0

    @property
    def ddp_timeout_delta(self) -> timedelta:
        """How long processes wait for each other before a timeout."""
        return timedelta(seconds=self.ddp_timeout)

    @property
    def place_model_on_device(self) -> bool | None:
        """Whether to move the model to the device; None: the Trainer decides. Subclasses may override it."""
        return None

    @property
    def _no_sync_in_gradient_accumulation(self) -> bool:
        return not self.deepspeed

    def get_process_log_level(self) -> int:
        """Return the log level of this process: `log_level` if it logs, else `log_level_replica`."""
        return level_of(self.log_level if self.should_log else self.log_level_replica)

    @contextmanager
    def main_process_first(self, local: bool = True, desc: str = "work") -> Generator[None]:
        """Run the body on the first process while the others wait, then on the others. On all processes.

        Args:
            local: the first of each machine, for machines with their own disks; False: the first of all.
            desc: description, for the reader; it has no effect.
        """
        del desc
        world = self.world
        if world.size == 1:
            yield
            return
        from xdpx.engines.pytorch.collectives import one_first

        with one_first(is_first=world.is_local_main if local else world.is_main):
            yield
