"""Registered profiles: those that ship, a user's own, on both engines; and traces put together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xdpx.commands import combine_profile, run_profiling
from xdpx.config.faults import ConfigError
from xdpx.models.profiles import profiles

SMALL = [
    "-num_hidden_layers=1",
    "-hidden_size=32",
    "-num_attention_heads=2",
    "-intermediate_size=64",
    "-vocab_size=200",
]
ROWS = ["-batch_size=2", "-seq_len=8", "-profile_steps=1"]
MINE = """
from xdpx.models.profiles import Profile, register

@register("mine")
class Mine(Profile):
    def model_config(self):
        return dict(model="bert_classification", processor="bert_single", cls_index=101, num_classes=2, vocab_size=300,
                    hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64, max_len=40,
                    pretrained_model=None)

    def create_fake_data(self):
        return dict(input_ids=self.random_ids(vocab_size=300))
"""


@pytest.fixture
def small_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the profiles draw words of a small vocabulary."""
    from xdpx.models.profiles import Profile

    drawn = Profile.random_ids
    monkeypatch.setattr(Profile, "random_ids", lambda self: drawn(self, vocab_size=200))


@pytest.mark.usefixtures("small_words")
@pytest.mark.parametrize("name", sorted(profiles.shipped))
def test_each_profile_that_ships_leaves_a_trace_and_a_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [*SMALL, "-mem_positions=[0]"] if name.endswith("pkm") else SMALL
    trace = tmp_path / "traces" / f"{name}.json"
    assert run_profiling.main([name, str(trace), *small, *ROWS]) == 0
    told = capsys.readouterr().out
    assert "ms per batch  forward of" in told
    assert any(event.get("name", "").startswith("forward of") for event in json.loads(trace.read_text())["traceEvents"])


@pytest.mark.usefixtures("small_words")
def test_on_jax_the_operations_of_the_compiled_program_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jax.json"
    assert run_profiling.main(["bert_lm", str(trace), *SMALL, *ROWS, "-engine=spmd"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert "JAX on" in told[0]
    assert len(told) > 4
    assert json.loads(trace.read_text())["traceEvents"]
    with pytest.raises(ConfigError, match="computed on PyTorch only"):
        run_profiling.main(["rezero", str(trace), *SMALL, *ROWS, "-engine=spmd"])


def test_a_users_own_profile_is_found_in_user_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "user/modules").mkdir(parents=True)
    (tmp_path / "user/modules/profile_mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiles, "_loaded", dict(profiles._loaded))
    assert run_profiling.main(["mine", "out/mine.json", *ROWS]) == 0
    assert "mine: BertClassification" in capsys.readouterr().out
    assert (tmp_path / "out/mine.json").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["brt_lm", "t.json"], "Did you mean 'bert_lm'"),
        (["bert_lm", "t.txt", "-batch_size=1"], "ends with .json"),
        (["bert_lm", "t.json", "-num_hiden_layers=1"], "Did you mean num_hidden_layers"),
        (["bert_lm", "t.json", "-num_hidden_layers=many"], "valid integer"),
        (["bert_lm", "t.json", "-batch_size=0"], "integer above 0"),
        (["bert_lm", "t.json", "-engine=tpu"], "pytorch, spmd"),
        (["bert_lm", "-batch_size=1"], "exactly 2"),
    ],
)
def test_what_cannot_be_measured_is_said_before(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        run_profiling.main(words)


def test_traces_of_a_folder_become_one_with_a_row_of_processes_for_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    event = {"ph": "X", "name": "step", "pid": 7, "tid": 1, "ts": 500.0, "dur": 2.0}
    titled = {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}}
    (folder / "a.json").write_text(json.dumps({"traceEvents": [titled, event]}))
    (folder / "中文 🙂.json").write_text(json.dumps([{**event, "ts": 900.0}]))
    assert combine_profile.main([str(folder)]) == 0
    events = json.loads((tmp_path / "traces.json").read_text())["traceEvents"]
    assert [one["args"]["name"] for one in events if one["name"] == "process_name"] == ["a python", "中文 🙂"]
    steps = [one for one in events if one["name"] == "step"]
    assert [one["ts"] for one in steps] == [0.0, 0.0]
    assert len({one["pid"] for one in steps}) == 2
    (folder / "bad.json").write_text("{")
    with pytest.raises(ConfigError, match=r"bad\.json"):
        combine_profile.main([str(folder)])
    with pytest.raises(ConfigError, match="is not a folder"):
        combine_profile.main([str(tmp_path / "none")])
