"""The options of a run besides its experiment: where it writes, what it does, and how it may end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.engines.spmd.pgle import Pgle, pgle_of
from xdpx.training.watching import HANG_SECONDS
from xdpx.utils import io

Mode = Literal["train", "eval", "decode", "decode_once", "infer"]
SECONDS_BETWEEN_LOOKS = 10.0
SOURCE = "experiments.running.run"


@dataclass(frozen=True)
class RunOptions:
    """The options of `run`, by the names of the command line.

    Attributes:
        job_log_dir: folder of the job, local or remote.
        mode: `train`; `eval`, `decode`: every checkpoint as it appears; `decode_once`, `infer`: a single checkpoint.
        eval_on_test: also evaluate on the evaluation inputs during training.
        decode_during_train: decode during training.
        eval_during_decode: also evaluate in modes `decode` and `decode_once`.
        watch: in modes `eval` and `decode`, wait for further checkpoints until the last one has appeared.
        poll_seconds: interval at which new checkpoints are looked for.
        enable_checkpoint_saving: write checkpoints.
        exit_after_ondemand_checkpoint: exit after a checkpoint that a signal requests; else continue until killed.
        jax_fully_async_checkpoint: write checkpoints while training continues.
        async_timeout_secs: seconds after which a process stops waiting for the others when checkpoints are written or
            found; None: half an hour, the default everywhere.
        memory_copy_interval: mode `train`: every so many updates, each process copies its shard of the state into the
            shared memory of its machine, from which a job that is run again there resumes. 0 for no copies.
        hang_seconds: end all processes if one of them is frozen for this long, or an update takes this much longer than
            twice the longest one so far; stack traces are written to `job_log_dir`/stacks. 0 turns this off.
        stop_at_step: mode `train`: end after this update of the whole training, to be resumed later.
        restore_checkpoint_dir: modes `decode`, `decode_once`, `infer`: use the checkpoints of another job.
        restore_checkpoint_step: modes `decode_once`, `infer`: step of the checkpoint; None for the newest.
        decode_output_pickle: write a pickle next to each file of JSON lines.
        enable_summary_writer: write TensorBoard summaries.
        callbacks: mode `train`: Trainer callbacks, in addition to the experiment's `CALLBACKS`, by name or as objects.
        report_to: mode `train`: trackers, in addition to the experiment's `REPORT_TO`.
        plots: draw the figures of the run while it trains.
        inspect_gradient: analyse every weight's gradient with each row of the log; figures go to `plots/gradients`.
        profile: trace five updates, after the first five, into `profile`.
        device: `name:FLOPs:memory` of a device whose peak is unknown, so that MFU can be computed.
        jax_profiler_port: port of JAX's profiler server.
        jax_traceback_filtering_option: how JAX shortens its tracebacks.
        pgle: profile-guided scheduling: `auto`, `profile`, the path of a profile, or `off`; see `engines.spmd.pgle`.
        pgle_runs, pgle_percentile, pgle_strip_pointer: options of `auto`.
        multiprocess_gpu: fail if no other process is found; `server_addr`, `num_hosts` and `host_idx` identify the
            processes, and suffice without this option.
    """

    job_log_dir: str
    mode: Mode = "train"
    eval_on_test: bool = False
    decode_during_train: bool = False
    eval_during_decode: bool = False
    watch: bool = True
    poll_seconds: float = SECONDS_BETWEEN_LOOKS
    enable_checkpoint_saving: bool = True
    exit_after_ondemand_checkpoint: bool = True
    jax_fully_async_checkpoint: bool = False
    async_timeout_secs: float | None = None
    memory_copy_interval: int = 0
    hang_seconds: float = HANG_SECONDS
    stop_at_step: int | None = None
    restore_checkpoint_dir: str | None = None
    restore_checkpoint_step: int | None = None
    decode_output_pickle: bool = True
    enable_summary_writer: bool = True
    callbacks: Sequence[Any] = ()
    report_to: Sequence[Any] = ()
    plots: bool = True
    inspect_gradient: bool = False
    profile: bool = False
    device: str | None = None
    jax_profiler_port: int | None = None
    jax_traceback_filtering_option: str = "auto"
    pgle: str | None = None
    pgle_runs: int | None = None
    pgle_percentile: int | None = None
    pgle_strip_pointer: bool = True
    multiprocess_gpu: bool = False
    server_addr: str | None = None
    num_hosts: int | None = None
    host_idx: int | None = None

    @property
    def profile_guided(self) -> Pgle:
        """The PGLE settings. Raises ConfigError if they are invalid."""
        knobs = {"runs": self.pgle_runs, "percentile": self.pgle_percentile}
        return pgle_of(self.pgle, strip_pointer=self.pgle_strip_pointer, **knobs)

    @property
    def trains(self) -> bool:
        """Whether the run trains."""
        return self.mode == "train"


def options_of(job_log_dir: Any, values: Mapping[str, Any]) -> RunOptions:
    """Return validated options.

    Raises:
        ConfigError: lists each option that does not exist or conflicts with others.
    """
    known = [field.name for field in fields(RunOptions)]
    faults = [_unknown(name, known) for name in values if name not in known]
    if faults:
        raise ConfigError(SOURCE, faults)
    options = RunOptions(io.plain(job_log_dir), **values)
    faults = list(_faults(options))
    if faults:
        raise ConfigError(SOURCE, faults)
    return options


def _unknown(name: str, known: list[str]) -> Fault:
    return Fault(name, "no such option.", did_you_mean(name, known, f"There are: {', '.join(known)}."))


def _faults(options: RunOptions) -> list[Fault]:
    faults = mode_faults(vars(options))
    if options.async_timeout_secs is not None and options.async_timeout_secs <= 0:
        faults.append(
            Fault("async_timeout_secs", f"is {options.async_timeout_secs}.", "Give seconds above 0, e.g. 600.")
        )
    if options.memory_copy_interval < 0:
        problem = f"is {options.memory_copy_interval}."
        faults.append(Fault("memory_copy_interval", problem, "Give a number of updates, e.g. 50; 0 keeps none."))
    if options.hang_seconds < 0:
        faults.append(Fault("hang_seconds", f"is {options.hang_seconds}.", "Give seconds, e.g. 30; 0 turns it off."))
    if not options.job_log_dir:
        faults.append(Fault("job_log_dir", "is empty.", "Give a folder, local or remote."))
    return faults


def mode_faults(values: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong with the mode, and with checkpoint options that do not apply to the mode.

    Args:
        values: option name -> value; None or missing if it was not set.
    """
    mode, known = values.get("mode", "train"), get_args(Mode)
    if mode not in known:
        return [Fault("mode", f"is '{mode}'.", did_you_mean(str(mode), known, rest=f"Use one of: {', '.join(known)}."))]
    faults = []
    if values.get("restore_checkpoint_dir") is not None and mode in {"train", "eval"}:
        remedy = "To start from another job's weights, set train.init_from_checkpoint_rules in the experiment's task."
        problem = f"is for mode decode, decode_once and infer, not {mode}."
        faults.append(Fault("restore_checkpoint_dir", problem, remedy))
    if values.get("restore_checkpoint_step") is not None and mode not in {"decode_once", "infer"}:
        remedy = "Leave it out, or choose a mode that reads one checkpoint."
        faults.append(Fault("restore_checkpoint_step", f"is for mode decode_once and infer, not {mode}.", remedy))
    return faults
