from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from torch import nn

from xdpx import Trainer, TrainerCallback, TrainingArguments
from xdpx.trainer.files.hub import Hub, HubUnreachable


class FakeHub:
    """Remembers what was uploaded; an upload in the background ends when told to."""

    def __init__(self) -> None:
        self.made: list[tuple[str, bool | None]] = []
        self.uploads: list[dict[str, Any]] = []
        self.futures: list[Future[str]] = []

    def create_repo(self, name: str, *, token: str | None, private: bool | None, exist_ok: bool) -> Any:
        self.made.append((name, private))
        return SimpleNamespace(repo_id=f"me/{name}")

    def upload_folder(self, **options: Any) -> Any:
        options["names"] = sorted(path.name for path in Path(options["folder_path"]).iterdir())
        self.uploads.append(options)
        self.futures.append(Future())
        return self.futures[-1] if options["run_as_future"] else "commit"

    def finish(self) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result("commit")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (5, 10):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("config.json", "model.safetensors", "training_args.bin", "optimizer.pt", "rng_state.pth"):
            (folder / name).write_text(f"{name} of {step}")
    return tmp_path


def test_without_a_connection_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdpx.utils.hub.is_reachable", lambda: False)
    with pytest.raises(HubUnreachable, match=r"cannot be reached.*push_to_hub=False.*hf upload mine <output_dir>"):
        Hub("mine").open()
    assert issubclass(HubUnreachable, ConnectionError)


def test_a_repository_is_made_and_its_full_name_known() -> None:
    api = FakeHub()
    hub = Hub("mine", private=True, api=api)
    assert hub.open() == hub.repo_id == "me/mine"
    assert api.made == [("mine", True)]


def test_a_token_is_not_shown() -> None:
    assert "hf_secret" not in repr(Hub("mine", token="hf_secret"))


def test_the_run_goes_up_without_its_checkpoints_lease_and_status(run: Path) -> None:
    api = FakeHub()
    assert Hub("mine", api=api, revision="main").push(str(run), "End of training") == "commit"
    [upload] = api.uploads
    assert upload["ignore_patterns"] == ["_*", "checkpoint-*", ".lease/*", "status.json*"]
    assert (upload["repo_id"], upload["commit_message"], upload["revision"]) == ("me/mine", "End of training", "main")


@pytest.mark.parametrize(
    ("strategy", "places"),
    [("end", []), ("every_save", [None]), ("checkpoint", [None, "last-checkpoint"]),
     ("all_checkpoints", [None, "checkpoint-5"])],
)  # fmt: skip
def test_each_strategy_pushes_what_it_says(run: Path, strategy: str, places: list[str | None]) -> None:
    api = FakeHub()
    hub = Hub("mine", api=api, strategy=strategy)
    assert hub.push_checkpoint(str(run / "checkpoint-5"), str(run), "Training in progress, step 5") == bool(places)
    assert [upload.get("path_in_repo") for upload in api.uploads] == places
    if places:
        assert (run / "model.safetensors").read_text() == "model.safetensors of 5"
        assert not (run / "optimizer.pt").exists()
        assert api.uploads[0]["run_as_future"]
    if len(places) > 1:
        assert api.uploads[1]["commit_message"] == "Training in progress, step 5, checkpoint"
        assert "optimizer.pt" in api.uploads[1]["names"]
        assert str(run / "checkpoint-5") in hub.busy_folders()


@pytest.mark.parametrize(("always", "expected"), [(False, 1), (True, 2)])
def test_a_push_is_left_out_while_another_runs_unless_asked_for(run: Path, always: bool, expected: int) -> None:
    api = FakeHub()
    hub = Hub("mine", api=api, always_push=always)
    hub.push_checkpoint(str(run / "checkpoint-5"), str(run), "one")
    hub.push_checkpoint(str(run / "checkpoint-10"), str(run), "two")
    assert len(api.uploads) == expected
    api.finish()
    assert not hub.is_busy
    hub.push_checkpoint(str(run / "checkpoint-10"), str(run), "three")
    assert len(api.uploads) == expected + 1


class Loaded(nn.Module):
    """A model as transformers loads one from the hub, with a tag of its own."""

    model_tags = ("pruned",)

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.config = nn.Linear(1, 1), SimpleNamespace(_name_or_path="them/base")


def test_the_trainer_pushes_a_card_that_knows_origin_name_and_tags_and_tells_callbacks_of_pushes_only(
    tmp_path: Path,
) -> None:
    told: list[str] = []

    class Hearing(TrainerCallback):
        def on_push_begin(self, *_: Any, **__: Any) -> None:
            told.append("push")

    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, save_strategy="no")
    trainer = Trainer(Loaded(), args, callbacks=[Hearing()])
    trainer.hub = Hub("mine", api=FakeHub(), strategy="end")
    trainer.hub_model_id = trainer.hub.open()
    trainer._push_from_checkpoint(str(tmp_path))
    assert told == []
    assert trainer.push_to_hub(private=True, tags="toy") == "commit"
    assert told == ["push"]
    card = (tmp_path / "README.md").read_text()
    assert "# mine\n\nFine-tuned from [them/base]" in card
    assert yaml.safe_load(card.split("---\n")[1])["tags"] == ["toy", "pruned", "generated_from_trainer"]


def test_a_push_that_fails_is_told_and_ends_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = FakeHub()
    hub = Hub("mine", api=api)
    hub.push_checkpoint(str(run / "checkpoint-5"), str(run), "one")
    api.futures[0].set_exception(OSError("no route to host"))
    hub.wait()
    assert "could not be pushed to me/mine: no route to host" in capsys.readouterr().err
    assert hub.busy_folders() == []


def test_files_of_a_tokenizer_and_shards_go_along(run: Path) -> None:
    (run / "checkpoint-5/model.safetensors.index.json").write_text('{"weight_map": {"a": "shard-1.safetensors"}}')
    (run / "checkpoint-5/shard-1.safetensors").write_text("a")

    class Tokenizer:
        def save_pretrained(self, folder: str) -> None:
            (Path(folder) / "tokenizer.json").write_text("{}")

    Hub("mine", api=FakeHub()).push_checkpoint(str(run / "checkpoint-5"), str(run), "one", processing_class=Tokenizer())
    assert {"tokenizer.json", "shard-1.safetensors", "model.safetensors.index.json"} <= {p.name for p in run.iterdir()}
