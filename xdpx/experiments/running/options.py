"""What a run is asked for beside its experiment: where it writes, what it does, how it may end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from xdpx.config.faults import ConfigError, Fault, nearest
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
        job_log_dir: where everything of the job goes, any path.
        mode: `train`; `eval`, `decode`: each checkpoint as it comes; `decode_once`, `infer`: one checkpoint.
        eval_on_test: evaluate on the inputs that are not for training, too, while training.
        decode_during_train: decode while training.
        eval_during_decode: evaluate, too, in modes `decode` and `decode_once`.
        watch: in modes `eval` and `decode`, wait for further checkpoints until the last one has come.
        poll_seconds: between two looks for a new checkpoint.
        enable_checkpoint_saving: keep checkpoints.
        exit_after_ondemand_checkpoint: end after a checkpoint that a signal has asked for; else go on until killed.
        jax_fully_async_checkpoint: write checkpoints while training goes on.
        async_timeout_secs: seconds after which a process no longer waits for the others, when checkpoints are written
            or found; None: half an hour, as everywhere.
        memory_copy_interval: mode `train`: after so many updates each process keeps a copy of its part of the state in
            the shared memory of its machine; a job that is run again there goes on from it. 0 keeps none.
        hang_seconds: after which several processes end because one of them is frozen, or takes an update longer than
            that beyond twice the longest one; stacks of all go into `job_log_dir`/stacks. 0 watches none.
        stop_at_step: mode `train`: end a stretch after this update of the whole training, to be continued later.
        restore_checkpoint_dir: modes `decode`, `decode_once`, `infer`: checkpoints of another job.
        restore_checkpoint_step: modes `decode_once`, `infer`: of which update; None for the newest.
        decode_output_pickle: write a pickle beside each file of JSON lines.
        enable_summary_writer: write for TensorBoard.
        callbacks: in mode `train`, beside `CALLBACKS` of the experiment: those of the Trainer, by name or as they are.
        report_to: in mode `train`, beside `REPORT_TO` of the experiment: trackers.
        plots: draw the figures of the run while it goes on.
        inspect_gradient: look at every weight's gradient with each row of the log; `plots/gradients` has pictures.
        profile: trace five updates, after the first five, into `profile`.
        device: `name:FLOPs:memory` of a device whose peak JAX does not tell, so that MFU can be told.
        jax_profiler_port: port where a profiler can look in.
        jax_traceback_filtering_option: how JAX shortens its tracebacks.
        pgle: profile-guided scheduling: `auto`, `profile`, the path of a profile, or `off`; see `engines.spmd.pgle`.
        pgle_runs, pgle_percentile, pgle_strip_pointer: knobs of `auto`.
        multiprocess_gpu: refuse to train alone: there are several hosts, which `server_addr`, `num_hosts` and
            `host_idx` tell apart. These suffice without it.
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
        """What is asked of PGLE. Raises ConfigError when it cannot be."""
        knobs = {"runs": self.pgle_runs, "percentile": self.pgle_percentile}
        return pgle_of(self.pgle, strip_pointer=self.pgle_strip_pointer, **knobs)

    @property
    def trains(self) -> bool:
        """Whether weights change."""
        return self.mode == "train"


def options_of(job_log_dir: Any, values: Mapping[str, Any]) -> RunOptions:
    """Return checked options.

    Raises:
        ConfigError: names each option that does not exist, or does not go with the others.
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
    near = nearest(name, known)
    return Fault(name, "no such option.", f"Did you mean '{near}'?" if near else f"There are: {', '.join(known)}.")


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
        faults.append(Fault("hang_seconds", f"is {options.hang_seconds}.", "Give seconds, e.g. 30; 0 watches none."))
    if not options.job_log_dir:
        faults.append(Fault("job_log_dir", "is empty.", "Give a folder, local or remote."))
    return faults


def mode_faults(values: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong with the mode, and with the checkpoint that goes with some modes only.

    Args:
        values: of options, by name; one that is not there or None was not asked for.
    """
    mode, known = values.get("mode", "train"), get_args(Mode)
    if mode not in known:
        near = nearest(str(mode), known)
        hint = f"Did you mean '{near}'? " if near else ""
        return [Fault("mode", f"is '{mode}'.", f"{hint}Use one of: {', '.join(known)}.")]
    faults = []
    if values.get("restore_checkpoint_dir") is not None and mode in {"train", "eval"}:
        remedy = "To begin with another job's weights, set train.init_from_checkpoint_rules in the experiment's task."
        problem = f"goes with mode decode, decode_once and infer, not {mode}."
        faults.append(Fault("restore_checkpoint_dir", problem, remedy))
    if values.get("restore_checkpoint_step") is not None and mode not in {"decode_once", "infer"}:
        remedy = "Leave it out, or choose a mode that looks at one checkpoint."
        faults.append(Fault("restore_checkpoint_step", f"goes with mode decode_once and infer, not {mode}.", remedy))
    return faults
