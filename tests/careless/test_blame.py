"""Only what is ours is called a bug in xdpx: the world's faults are told in a line, the user's with the user's line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import xdpx
from xdpx import main as experiments_door
from xdpx import run as door
from xdpx.commands.outcomes import exit_code
from xdpx.datasets import workers
from xdpx.utils.memory import comes_of_out_of_memory, is_out_of_memory

ROOT = Path(__file__).parents[2]
BUG = "bug in xdpx"
Told = Callable[[], str]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Work in a folder of its own; gives what was written to stderr since the last call."""
    monkeypatch.chdir(tmp_path)
    return lambda: capsys.readouterr().err


# ---- too little memory

SHORTAGES = [
    MemoryError(),
    OSError(12, "Cannot allocate memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    RuntimeError("can't start new thread"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes."),
    RuntimeError("std::bad_alloc"),
]


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: f"{type(error).__name__}-{str(error)[:20]}")
def test_too_little_memory_is_told_in_a_line_with_what_to_do(error: Exception, told: Told) -> None:
    assert is_out_of_memory(error)

    def work() -> int:
        raise error

    assert exit_code(work) == 1
    text = told()
    assert text.startswith("out of memory: ")
    assert "Lower batch_size" in text
    assert BUG not in text
    assert text.count("\n") == 1


def test_an_error_that_follows_from_too_little_memory_is_not_ours(told: Told) -> None:
    def work() -> int:
        try:
            raise SHORTAGES[3]
        except ImportError:
            raise KeyError("half of a library") from None

    assert exit_code(work) == 1
    assert told().startswith("out of memory: ")


def test_other_errors_are_no_shortage() -> None:
    for error in (RuntimeError("shapes do not fit"), ImportError("no such name"), KeyError("memory"), OSError(28, "x")):
        assert not comes_of_out_of_memory(error)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is one of Linux")
def test_preprocessing_that_may_have_no_threads_ends_and_says_why(told: Told, tmp_path: Path) -> None:
    import resource

    (tmp_path / "raw").mkdir()
    lines = "".join(
        f"{' '.join(f'w{(row * 7 + word) % 5000}' for word in range(20))}\t{row % 2}\n" for row in range(60000)
    )
    (tmp_path / "raw/train.txt").write_text(lines)
    keys = ["data_source=raw", "data_dir=data", "loader=single", "processor=single", "tokenizer=space", "max_len=64"]
    ended = subprocess.run(
        [sys.executable, "-m", "xdpx.run", "x-prepro", *keys, "workers=2"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (150 << 20, 150 << 20)),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert BUG not in ended.stderr
    assert ended.returncode in {0, 1}


def test_a_pool_whose_thread_died_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_LOOKS", 0.01)
    dead = threading.Thread(target=lambda: None)
    dead.start()
    dead.join()
    killed: list[int] = []
    process = SimpleNamespace(kill=lambda: killed.append(1))
    pool: Any = SimpleNamespace(_executor_manager_thread=dead, _processes={1: process})
    with pytest.raises(workers.WorkerDied, match="could not be distributed"):
        workers._result(Future(), pool)
    assert killed == [1]


# ---- files of others


@pytest.mark.parametrize("kind", ["cut short", "a pointer of Git LFS"])
def test_a_damaged_model_is_named_with_what_to_do(kind: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from xdpx.checkpoints.trusted import DamagedFile, load_weights

    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(100)}, str(path))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 400\n"
    path.write_bytes(path.read_bytes()[:200] if kind == "cut short" else pointer)
    with pytest.raises(DamagedFile, match="copy it again" if kind == "cut short" else "git lfs pull") as caught:
        load_weights(str(path))
    assert str(path) in str(caught.value)
    shutil.move(path, tmp_path / "pytorch_model.bin")
    if kind != "cut short":
        with pytest.raises(DamagedFile, match="git lfs pull"):
            load_weights(str(tmp_path / "pytorch_model.bin"))


@pytest.mark.parametrize("text", ["version https://git-lfs.github.com/spec/v1\n", "[1]", '{"model_type": "nobodys"}'])
def test_a_damaged_config_of_a_model_is_the_users_fault(text: str, tmp_path: Path) -> None:
    from xdpx.config.faults import ConfigError
    from xdpx.models.pytorch.bert import _given_config

    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match="Fetch the model again"):
        _given_config(SimpleNamespace(pretrained_model=str(tmp_path), auto_model=None))  # type: ignore[arg-type]


def test_a_chinese_path_is_read_whatever_the_locale(tmp_path: Path) -> None:
    (tmp_path / "数据").mkdir()
    for split in ("train", "dev"):
        (tmp_path / f"数据/{split}.txt").write_text("好 电影\t1\n坏 电影\t0\n" * 8, encoding="utf-8")
    keys = ["data_source=数据", "data_dir=出", "loader=single", "processor=single", "tokenizer=space", "max_len=8"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONUTF8": "0"}
    words = [sys.executable, "-m", "xdpx.run", "x-prepro", *keys]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert (tmp_path / "出/train.pt").is_file()


def test_a_name_that_is_no_utf8_is_told_in_a_line(told: Told) -> None:
    door.main(["x-prepro", "data_source=raw", "data_dir=caf\udce9", "loader=single", "tokenizer=space"])

    def work() -> int:
        return len("caf\udce9".encode())

    assert exit_code(work) == 1
    text = told()
    assert BUG not in text
    assert "is not UTF-8" in text


# ---- the user's own code

EXPERIMENT = """from xdpx.experiments import BaseExperiment


class Exp(BaseExperiment):
    def task(self):
        return {broken}

    def datasets(self):
        return []
"""


@pytest.mark.parametrize("broken", ["1 / 0", "self.nothing", "int('x')", "[][3]"])
def test_an_error_in_an_experiment_names_its_line(broken: str, told: Told) -> None:
    Path("e.py").write_text(EXPERIMENT.format(broken=broken))
    assert experiments_door.main(["--exp=e.py:Exp", "--dry"]) == 1
    text = told()
    assert f"in task: return {broken}" in text
    assert f"the error comes from your module {Path('e.py').resolve()}:6." in text
    assert BUG not in text
    assert len(text.splitlines()) <= 4


@pytest.mark.parametrize("text", ["class Exp(:\n", "import no_such_module_at_all\n", "1 / 0\n"])
def test_an_experiment_that_cannot_be_imported_is_the_users_fault(text: str, told: Told) -> None:
    Path("broken.py").write_text(text)
    assert experiments_door.main(["--exp=broken.py:Exp", "--dry"]) == 2
    assert "importing broken.py fails" in told()


def test_a_misspelt_remat_policy_is_told_with_the_nearest(told: Told) -> None:
    fields = "    CHECKPOINT_POLICY = 'save_noting'\n    ICI_MESH_SHAPE = [1, 1, 1]\n    NUM_LAYERS = 1\n"
    imported = "from xdpx.experiments.lm.c4 import LmCloudSpmdAdam\n"
    Path("p.py").write_text(f"{imported}\n\nclass Exp(LmCloudSpmdAdam):\n{fields}")
    assert experiments_door.main(["--exp=p.py:Exp", "--dry"]) == 2
    text = told()
    assert "checkpoint_policy: there is no policy 'save_noting'. Did you mean 'nothing'?" in text
    assert BUG not in text


def test_what_a_user_asks_of_xdpx_is_looked_for_at_the_user_first(told: Told) -> None:
    ours: dict[str, Any] = {}
    exec(compile("def ours():\n    raise KeyError('x')", xdpx.__file__, "exec"), ours)
    assert exit_code(lambda: ours["ours"]()) == 1
    text = told()
    assert f"the error comes from a call of xdpx in your module {__file__}:" in text
    assert BUG not in text
    assert exit_code(ours["ours"]) == 1
    assert BUG in told()


def test_a_stop_iteration_that_our_generator_turns_into_another_error_is_looked_for_where_it_was(told: Told) -> None:
    ours: dict[str, Any] = {}
    exec(compile("def items(own):\n    yield own()\n", xdpx.__file__, "exec"), ours)
    assert exit_code(partial(next, ours["items"](lambda: next(iter([]))))) == 1
    text = told()
    assert f"the error comes from your module {__file__}:" in text
    assert BUG not in text


def test_a_module_that_ends_a_command_by_sys_exit_has_not_ended_it_well(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_code(sys.exit) == 0
    monkeypatch.setattr("xdpx.config.user_modules._noted", {"mine": (__file__, b"")})
    assert exit_code(lambda: sys.exit()) == 1
    assert f"sys.exit in your module {__file__}:" in told()
