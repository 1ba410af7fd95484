"""The third door: lists, describes and refuses without JAX."""

import subprocess
import sys

import pytest

from xdpx import run
from xdpx.commands.experiment import main
from xdpx.config.faults import ConfigError
from xdpx.experiments.shipped import SHIPPED


def test_every_experiment_is_listed_and_words_choose(capsys) -> None:
    assert main(["--list"]) == 0
    shipped = {f"{module}.{name}" for module, listed in SHIPPED.items() for name in listed}
    assert shipped <= set(capsys.readouterr().out.splitlines())
    assert main(["--list", "2xv4_128"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "xdpx.experiments.lm.c4_multislice.C4Spmd22BAdam2xv4_128",
        "xdpx.experiments.lm.c4_multislice.C4Spmd22BAdam2xv4_128LimitSteps",
    ]
    with pytest.raises(ConfigError, match="Use fewer words"):
        main(["--list", "nothing-has-this"])


def test_a_description_says_who_sets_what_and_what_follows(capsys) -> None:
    main(["C4SpmdPipelineGpt3SmallAdam64Replicas", "--describe", "--set", "PERCORE_BATCH_SIZE=4"])
    text = capsys.readouterr().out
    assert "xdpx.experiments.lm.c4.Gpt3XL:\n" in text
    assert "command_line.C4SpmdPipelineGpt3SmallAdam64Replicas:\n    PERCORE_BATCH_SIZE: 4\n" in text
    for fact in ("devices: 64", "global batch: 256", "micro-batches: 16", "tokens per batch: 524,288"):
        assert f"    {fact}" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["C4Spmd1BAdam4Replicaz"], "Did you mean 'lm.c4.C4Spmd1BAdam4Replicas'"),
        (["C4Spmd1BAdam4Replicas"], "Write --job_log_dir=DIR"),
        (["--job_log_dir=x"], "names no experiment"),
        (["C4Spmd1BAdam4Replicas", "--describe", "--set", "MODEL_DIMZ=3"], "Did you mean 'MODEL_DIMS'"),
        (["C4SpmdPipelineAdam", "--describe", "--set", "NUM_LAYERS=25"], "Use a multiple of 2"),
        (["C4SpmdPipelineAdam", "--describe", "--set", "NUM_STAGES=4"], "the mesh has 2 along stage"),
        (["C4SpmdPipelineAdam", "--describe", "--set", "MICROBATCH_SIZE=3"], "does not divide the batch of 8"),
        (["C4Spmd1BAdam4Replicas", "--describe", "--set", "PERCORE_BATCH_SIZE=0.3"], "Make it a whole number"),
        (["C4Spmd1BAdam4Replicas", "--describe", "--set", "ICI_MESH_SHAPE=8"], r"Use Sequence\[int\], e.g. \[1,4,2\]"),
        (["C4Spmd1BAdam4Replicas", "--plan", "--pgle=auto"], "cannot be combined with --plan and --dry"),
        (["C4Spmd1BAdam4Replicas", "--job_log_dir=x", "--pgle=atuo"], "Did you mean 'auto'"),
        (["C4Spmd1BAdam4Replicas", "--job_log_dir=x", "--pgle=profile", "--pgle_runs=2"], "needs --pgle=auto"),
        (["LmCloudSpmd2B", "--peek=4/4"], "I from 0 to N-1"),
        (["LmCloudSpmd2B", "--describe", "--peek_batches=2"], "Add --peek"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words, told) -> None:
    with pytest.raises(ConfigError, match=told):
        main(words)


def test_rows_of_one_process_can_be_looked_at(capsys) -> None:
    assert main(["LmCloudSpmd2B", "--set", "MAX_SEQ_LEN=8", "--peek=1/4", "--peek_batches", "2"]) == 0
    text = capsys.readouterr().out
    assert "train: host 1 of 4" in text
    assert "\nbatch 1: " in text


@pytest.mark.parametrize("words", [["--list"], ["--help"], ["C4Spmd1BAdam4Replicas", "--describe"], ["X"]])
def test_looking_needs_no_jax_and_no_torch(words) -> None:
    code = (
        "import sys; from xdpx.main import main; main(sys.argv[1:]); "
        "print([m for m in ('jax', 'torch', 'flax', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['jax'] = None; from xdpx.main import main; "
        "sys.exit(main(['C4Spmd1BAdam4Replicas', '--dry']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'xdpx[jax]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_door_of_all_commands_opens_experiments_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["x-exp", "--list", "c4.C4Spmd2BAdam4Replicas"]) == 0
    assert "C4Spmd2BAdam4Replicas" in capsys.readouterr().out
    assert run.main(["x-exp", "nowhere.Nothing"]) == 2
