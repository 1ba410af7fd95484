from pathlib import Path

import pytest

from xdpx.checkpoints.aliases import resolve, with_files
from xdpx.config.faults import ConfigError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = ["epoch\tstep\tvalid_acc\tbest_score", "1\t10\t0.5\t0.5", "1\t20\t0.7\t0.7", "2\t100\t0.6\t0.7"]
    (tmp_path / "valid.log.tsv").write_text("\n".join(rows) + "\n")
    for step in (10, 20, 100):
        (tmp_path / f"checkpoint-{step}.pt").touch()
    return tmp_path


def test_best_and_last_mean_files_with_or_without_a_folder_in_front(run: Path) -> None:
    assert resolve(f"{run}/<best>") == f"{run}/checkpoint-20.pt"
    assert resolve("<best>", str(run)) == f"{run}/checkpoint-20.pt"
    assert resolve(f"{run}/<last>") == f"{run}/checkpoint-100.pt"
    assert resolve(f"{run}/checkpoint-10.pt") == f"{run}/checkpoint-10.pt"


def test_a_bare_alias_needs_a_folder() -> None:
    with pytest.raises(FileNotFoundError, match="which run"):
        resolve("<best>")


def test_when_the_best_was_not_kept_the_best_that_was_is_meant(run: Path) -> None:
    (run / "checkpoint-20.pt").unlink()
    assert resolve(f"{run}/<best>") == f"{run}/checkpoint-10.pt"


def test_nan_is_never_best(run: Path) -> None:
    with (run / "valid.log.tsv").open("a") as log_file:
        log_file.write("2\t110\tnan\tnan\n")
    assert resolve(f"{run}/<best>").endswith("checkpoint-20.pt")


def test_a_score_that_is_better_when_lower_needs_no_hint(run: Path) -> None:
    (run / "valid.log.tsv").write_text("step\tbest_score\n10\t0.9\n20\t0.4\n100\t0.4\n")
    assert resolve(f"{run}/<best>").endswith("checkpoint-20.pt")


def test_of_equal_scores_before_and_after_a_reset_the_later_one_is_the_best(run: Path) -> None:
    rows = ["step\tbest_score\tbest_step", "10\t1\t", "20\t1\t20", "100\t1\t20"]
    (run / "valid.log.tsv").write_text("".join(f"{row}\n" for row in rows))
    assert resolve(f"{run}/<best>").endswith("checkpoint-20.pt")


@pytest.mark.parametrize("alias", ["<best>", "<last>"])
def test_a_folder_without_checkpoints_is_an_error_that_names_it(tmp_path: Path, alias: str) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        resolve(f"{tmp_path}/{alias}")


def test_that_the_weights_of_the_best_step_are_gone_is_said(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    resolve(f"{run}/<best>")
    assert not caplog.records
    (run / "checkpoint-20.pt").unlink()
    for _ in range(3):  # as often as a server looks
        resolve(f"{run}/<best>")
    assert caplog.text.count("step 20 scored best, but has no weights here; <best> is step 10") == 1


def test_the_whole_folder_of_a_run_is_no_checkpoint(run: Path) -> None:
    for written in (f"{run}", f"{run}/"):
        with pytest.raises(FileNotFoundError, match=rf"is the folder of a run. Name the checkpoint: {run}/<best> or"):
            resolve(written)
        with pytest.raises(ConfigError, match=r"pretrained_model: cannot be used: .* is the folder of a run"):
            with_files({"pretrained_model": written})
    (run / "pytorch_model.bin").touch()
    assert resolve(str(run)) == str(run)
