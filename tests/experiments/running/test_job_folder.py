from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from xdpx.experiments.running.job_folder import content, describe, other_model
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import Parts, build_parts
from xdpx.experiments.running.watching import _warn_of_another_model
from xdpx.models.spmd.decoding.sampling import SampleDecoder
from xdpx.models.spmd.layers.positions import RotaryPositionalEmbedding


def test_what_an_evaluation_wrote_makes_a_folder_a_job_only_without_files_of_others(tmp_path: Path) -> None:
    for name in ("eval_model_params.txt", "eval_post_init_model_params.txt", "decode_once_run.json"):
        (tmp_path / name).write_text("")
    assert content(str(tmp_path)) == "run"
    (tmp_path / "my_run.json").write_text("")
    assert content(str(tmp_path)) == "something else"


@pytest.fixture
def trained(tiny: ModuleType, tmp_path: Path) -> str:
    """The folder of a job as it begins."""
    describe(build_parts(tiny.Tiny(), options_of(tmp_path, {})))
    return str(tmp_path)


def evaluated(experiment: Any, folder: str, mode: str = "eval") -> Parts:
    return build_parts(experiment, options_of(folder, {"mode": mode}))


def test_a_model_that_is_evaluated_but_was_not_trained_is_told_of(
    tiny: ModuleType, trained: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Rotary(tiny.Tiny):  # type: ignore[name-defined, misc]
        def task(self) -> Any:
            task = super().task()
            attention = task.model.lm_tpl.stacked_transformer_tpl.layer_tpl.attention_tpl
            attention.set(rotary_tpl=RotaryPositionalEmbedding.HParams(), logit_cap=7.0)
            return task

    _warn_of_another_model(evaluated(Rotary(STEPS=9), trained), f"{trained}/checkpoints/checkpoint_00000008")
    told = capsys.readouterr().err
    assert "attention_tpl.logit_cap (was None, is 7.0), " in told
    assert (
        "attention_tpl.rotary_tpl (was None, is xdpx.models.spmd.layers.positions.RotaryPositionalEmbedding)." in told
    )
    assert "Fields of the experiment that differ: STEPS (was 8, is 9)." in told
    assert "use_ema_states (was False, is True)" in other_model(
        evaluated(tiny.Tiny(EMA=0.9), trained, "decode"), trained
    )


def test_what_an_evaluation_may_choose_is_not_told_of(tiny: ModuleType, trained: str) -> None:
    class Chosen(tiny.Tiny):  # type: ignore[name-defined, misc]
        ICI_MESH_SHAPE = (2, 1, 1)

        def task(self) -> Any:
            task = super().task()
            task.model.set(decoder_tpl=SampleDecoder.HParams(max_decode_steps=2), label_smoothing_prob=0.1)
            task.model.lm_tpl.stacked_transformer_tpl.set(checkpoint_policy="save_nothing")
            return task

    assert not other_model(evaluated(Chosen(STEPS=3, RATE=1.0, WINDOW="first(1)", LOG=1), trained), trained)
    assert not other_model(evaluated(Chosen(), trained), f"{trained}/elsewhere")


def test_a_record_of_another_version_is_compared_where_both_have_a_field(tiny: ModuleType, trained: str) -> None:
    record = Path(trained, "model_params.txt")
    lines = record.read_text().splitlines()
    kept = [line for line in lines if ".soft_cap_logits" not in line]
    assert len(kept) < len(lines)
    record.write_text("\n".join([*kept, "task.model.lm_tpl.gone_since : 3"]))
    assert not other_model(evaluated(tiny.Tiny(), trained), trained)
