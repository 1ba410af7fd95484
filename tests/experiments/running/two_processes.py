"""One of two real processes that run the tiny experiment until a signal: `main()` with the words PORT INDEX FOLDER."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import jax

spec = importlib.util.spec_from_file_location("tiny_experiment", Path(__file__).with_name("tiny.py"))
assert spec
assert spec.loader
tiny = importlib.util.module_from_spec(spec)
sys.modules["tiny_experiment"] = tiny
spec.loader.exec_module(tiny)

from xdpx.experiments.running import run  # noqa: E402


class Halves(tiny.Tiny):  # type: ignore[name-defined, misc]
    def task(self) -> Any:
        task = super().task()
        return task.set(train=task.train.set(decode_interval_steps=4))

    def datasets(self) -> list[Any]:
        return [template.set(batch_size=2) for template in super().datasets()]

    def decode_datasets(self) -> list[Any]:
        return [template.set(batch_size=2) for template in super().decode_datasets()]


def main() -> None:
    """Run until the signal."""
    jax.config.update("jax_num_cpu_devices", 1)
    port, index, folder = sys.argv[1:]
    sys.exit(run(
        Halves(STEPS=100_000), job_log_dir=folder, eval_on_test=True, decode_during_train=True,
        plots=False, enable_summary_writer=False, server_addr=f"127.0.0.1:{port}", num_hosts=2, host_idx=int(index),
    ))  # fmt: skip
