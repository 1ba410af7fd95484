from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints.test_folders import Company
from xdpx.checkpoints import folders, parts
from xdpx.checkpoints.background import Background
from xdpx.trainer.files import rng
from xdpx.trainer.files.checkpoint_files import (
    Contents,
    OwnState,
    TrainerCheckpoint,
    changed_arguments,
    save_checkpoint,
)
from xdpx.trainer.files.model_files import ModelFiles


class Run:
    """A tiny training that can be saved."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.9**step)

    def step(self) -> Run:
        self.model(torch.randn(4, 3)).square().sum().backward()
        self.optimizer.step()
        self.scheduler.step()
        return self

    def contents(self, step: int = 5, **more: Any) -> Contents:
        return Contents(
            state={"global_step": step, "log_history": [{"loss": float("nan"), "step": 1}]},
            optimizer=self.optimizer.state_dict(),
            scheduler=self.scheduler.state_dict(),
            **more,
        )


def save(parent: Any, run: Run, contents: Contents, step: int = 5, **options: Any) -> TrainerCheckpoint:
    options = {"own": OwnState.of_this_process(), **options}
    return TrainerCheckpoint(save_checkpoint(parent, step, contents, ModelFiles(run.model).write, **options))


def test_every_part_comes_back(any_root: str) -> None:
    run = Run().step()
    contents = run.contents(scaler={"scale": 1024.0}, progress={"samples": 40}, arguments={"seed": 3})
    own = OwnState.of_this_process(loader={"at": torch.tensor(7)})
    saved = save(any_root, run, contents, own=own)
    expected = random.random()
    assert TrainerCheckpoint.checked(saved.path).missing() == []
    assert saved.step == 5
    assert torch.equal(saved.weights()["weight"], run.model.weight)
    other = Run()
    other.optimizer.load_state_dict(saved.optimizer() or {})
    other.scheduler.load_state_dict(saved.scheduler() or {})
    assert str(other.optimizer.state_dict()) == str(run.optimizer.state_dict())
    assert other.scheduler.state_dict() == run.scheduler.state_dict()
    assert saved.scaler() == {"scale": 1024.0}
    assert saved.progress() == {"samples": 40}
    assert saved.arguments() == {"seed": 3}
    assert (saved.loader() or {})["at"] == 7
    rng.restore(saved.rng())
    assert random.random() == expected


def test_the_files_are_those_that_users_know(tmp_path: Path) -> None:
    run = Run().step()
    save(tmp_path, run, run.contents(arguments={"seed": 3}))
    assert sorted(path.name for path in (tmp_path / "checkpoint-5").iterdir()) == [
        folders.MANIFEST, "model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json",
        "training_args.bin", "training_args.json",
    ]  # fmt: skip


def test_weights_alone_can_be_saved(tmp_path: Path) -> None:
    saved = save(tmp_path, Run(), Contents(state={"global_step": 5}), own=None)
    assert saved.missing() == ["It has no optimizer.pt, no scheduler.pt, so that nothing can be continued from it."]
    assert saved.optimizer() is saved.scheduler() is saved.scaler() is saved.rng() is saved.arguments() is None
    assert folders.newest(tmp_path) is None


def test_no_file_asks_for_code_and_no_token_is_written(tmp_path: Path) -> None:
    run = Run().step()
    arguments = {"hub_token": "hf_secret", "push_to_hub_token": None, "learning_rate": 0.1}
    save(tmp_path, run, run.contents(arguments=arguments))
    folder = tmp_path / "checkpoint-5"
    for path in folder.iterdir():
        assert b"hf_secret" not in path.read_bytes()
        if path.suffix in {".pt", ".pth", ".bin"}:
            torch.load(path, weights_only=True)
    assert torch.load(folder / "training_args.bin", weights_only=True) == {
        "hub_token": "<HUB_TOKEN>", "push_to_hub_token": None, "learning_rate": 0.1,
    }  # fmt: skip


def test_a_state_that_cannot_be_read_back_is_left_out_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run().step()
    run.optimizer.state[run.model.weight]["projector"] = object()
    for step in (5, 6):
        saved = save(tmp_path, run, run.contents(), step=step)
    assert saved.optimizer() is None
    said = capsys.readouterr().err
    assert said.count("optimizer.state.0.projector is a builtins.object") == 1
    assert "save_only_model" in said


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    run = Run().step()
    saved = save(tmp_path, run, run.contents())
    (tmp_path / "checkpoint-5/optimizer.pt").write_bytes(b"PK")
    with pytest.raises(folders.DamagedCheckpoint, match=r"optimizer\.pt: it has 2 bytes instead of"):
        TrainerCheckpoint.checked(saved.path)
    with pytest.raises(ValueError, match="Can't find a valid checkpoint at"):
        TrainerCheckpoint.checked(tmp_path / "checkpoint-6")


def test_a_checkpoint_without_a_manifest_names_its_damaged_file_and_no_manifest_to_remove(tmp_path: Path) -> None:
    run = Run().step()
    path = Path(save(tmp_path, run, run.contents()).path)
    (path / folders.MANIFEST).unlink()
    (path / parts.PROGRESS).write_text("{")
    with pytest.raises(OSError, match="progress.json: is not JSON .*copy it again"):
        TrainerCheckpoint(path).progress()
    (path / parts.STATE).write_text("")
    with pytest.raises(folders.DamagedCheckpoint, match="for the newest intact one.$"):
        TrainerCheckpoint.checked(path)


def test_a_checkpoint_that_was_renamed_is_read_by_its_path(tmp_path: Path) -> None:
    run = Run().step()
    save(tmp_path, run, run.contents())
    (tmp_path / "checkpoint-5").rename(tmp_path / "last-checkpoint")  # as it is called on a hub
    saved = TrainerCheckpoint.checked(tmp_path / "last-checkpoint")
    assert (saved.step, saved.missing()) == (5, [])


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
def test_a_file_that_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",))

    for name in ("optimizer.pt", "rng_state.pth"):
        (tmp_path / name).write_bytes(pickle.dumps(Evil()))
        torch.save({"evil": Evil()}, tmp_path / f"zip-{name}")
    checkpoint = TrainerCheckpoint(tmp_path)
    for read in (checkpoint.optimizer, checkpoint.rng):
        with pytest.raises(OSError, match="was not loaded"):
            read()
    for name in ("optimizer.pt", "rng_state.pth"):
        (tmp_path / f"zip-{name}").rename(tmp_path / name)
    for read in (checkpoint.optimizer, checkpoint.rng):
        with pytest.raises(OSError, match="was not loaded"):
            read()
    assert not (tmp_path / "ran").exists()


def test_changed_arguments_are_listed() -> None:
    saved = {"learning_rate": 0.001, "seed": 1, "optim": "adamw_torch", "hub_token": "<HUB_TOKEN>", "output_dir": "a"}
    now = {"learning_rate": 0.05, "seed": 1, "optim": "sgd", "hub_token": "x", "output_dir": "b", "new": 1}
    assert changed_arguments(saved, now, ignore=["output_dir"]) == [
        "learning_rate: was 0.001, is 0.05", "optim: was adamw_torch, is sgd",
    ]  # fmt: skip
    assert changed_arguments(None, now) == []


def test_each_process_keeps_its_own_generators(tmp_path: Path) -> None:
    run, company = Run().step(), Company(3)

    def work(rank: int) -> None:
        write = ModelFiles(run.model).write if rank == 0 else lambda folder: None
        own = OwnState({**rng.capture(), "rank": rank}, {"at": rank})
        save_checkpoint(tmp_path, 5, run.contents(), write, own=own, ranks=company.ranks(rank))

    assert company.run(work) == [None] * 3
    saved = TrainerCheckpoint.checked(tmp_path / "checkpoint-5")
    assert [(saved.rng(rank, 3) or {})["rank"] for rank in range(3)] == [0, 1, 2]
    assert [saved.loader(rank, 3) for rank in range(3)] == [{"at": rank} for rank in range(3)]
    assert saved.rng() is None


@pytest.mark.parametrize("as_function", [False, True], ids=["a model", "a function"])
def test_in_the_background_the_same_files_are_written(tmp_path: Path, as_function: bool) -> None:
    run, own = Run().step(), OwnState.of_this_process()
    save(tmp_path / "now", run, run.contents(), own=own)
    files = ModelFiles(run.model)
    with Background() as background:
        model = files.write if as_function else files
        save_checkpoint(tmp_path / "later", 5, run.contents(), model, own=own, background=background)
        run.step()  # training goes on
    found = [
        {p.name: p.read_bytes() for p in (tmp_path / when / "checkpoint-5").iterdir()} for when in ("now", "later")
    ]
    for one in found:
        manifest = json.loads(one.pop(folders.MANIFEST))
        assert manifest["facts"] == {"step": 5, "processes": 1, "finite": True}
    assert found[0] == found[1]


@pytest.mark.parametrize("as_function", [False, True], ids=["a model", "a function"])
def test_in_the_background_one_process_writes_for_all(tmp_path: Path, as_function: bool) -> None:
    run, company, told, called = Run().step(), Company(2), [], []

    def work(rank: int) -> None:
        def write(folder: str) -> None:
            called.append(rank)
            company.gather(rank, "the weights")  # as a sharded model does
            if rank == 0:
                ModelFiles(run.model).write(folder)

        with Background() as background:
            save_checkpoint(
                tmp_path, 5, run.contents(), write if as_function else ModelFiles(run.model),
                own=OwnState({**rng.capture(), "rank": rank}), ranks=company.ranks(rank), background=background,
                then=lambda path: told.append((rank, path)),
            )  # fmt: skip

    assert company.run(work) == [None, None]
    saved = TrainerCheckpoint.checked(tmp_path / "checkpoint-5")
    assert [(saved.rng(rank, 2) or {})["rank"] for rank in range(2)] == [0, 1]
    assert told == [(0, saved.path)]
    assert sorted(called) == ([0, 1] if as_function else [])


def test_when_the_writer_cannot_begin_all_processes_raise(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    run, company = Run().step(), Company(2)

    def work(rank: int) -> None:
        save_checkpoint(
            tmp_path / "file", 5, run.contents(), ModelFiles(run.model).write, ranks=company.ranks(rank),
            background=Background(),
        )  # fmt: skip

    assert all(isinstance(error, OSError) for error in company.run(work))


def test_an_error_in_the_background_surfaces_at_the_next_save(tmp_path: Path) -> None:
    def fail(path: str) -> None:
        raise OSError("the disk is full")

    run, background = Run().step(), Background()
    options: dict[str, Any] = {"own": None, "background": background, "then": fail}
    save(tmp_path / "run", run, run.contents(), **options)
    options["then"] = lambda path: None
    with pytest.raises(OSError, match="the disk is full"):
        save(tmp_path / "run", run, run.contents(), **options)
    save(tmp_path / "run", run, run.contents(), **options)
    background.wait()
    assert folders.newest(tmp_path / "run") is not None


def test_nothing_of_torch_is_needed_to_name_the_parts() -> None:
    assert parts.random_file(0, 1) == "rng_state.pth"
    assert parts.random_file(3, 4) == "rng_state_3.pth"
    assert parts.loader_file(0, 1) == "loader_state.pt"
