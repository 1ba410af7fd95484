from __future__ import annotations

import copy
import dataclasses
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import transformers
from transformers.utils import logging as theirs

from xdpx.config.faults import ConfigError
from xdpx.logger import log
from xdpx.trainer.arguments import Seq2SeqTrainingArguments, TrainingArguments
from xdpx.trainer.arguments.training import apply_log_level


@dataclass
class MyArguments(TrainingArguments):
    """As users of the original write their own."""

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*TrainingArguments._VALID_DICT_FIELDS, "model_init_kwargs"]

    extra: int = 0
    learning_rate: float = 1e-3
    model_init_kwargs: dict[str, Any] | str | None = None
    tags: list[str] = field(default_factory=list)


def test_making_arguments_imports_no_torch_and_changes_nothing_outside(tmp_path: Any) -> None:
    code = (
        "import os, sys; before = dict(os.environ)\n"
        "from xdpx.trainer.arguments import TrainingArguments\n"
        "TrainingArguments('out', fsdp='full_shard', torch_compile=True, use_cpu=True, bf16=True, max_steps=3)\n"
        "assert dict(os.environ) == before, 'environment'\n"
        "assert not os.listdir(), os.listdir()\n"
        "print(sorted({'torch', 'transformers', 'accelerate'} & set(sys.modules)))"
    )
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "2", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TrainingArguments(learning_rate="fast", eval_strategy="step", save_steps=1.5, seed=-1, max_steps=2.5)  # type: ignore[arg-type]
    assert [fault.key for fault in caught.value.faults] == [
        "max_steps", "learning_rate", "eval_strategy", "seed", "save_steps",
    ]  # fmt: skip
    assert str(caught.value).startswith("TrainingArguments: 5 faults\n")
    assert isinstance(caught.value, ValueError)


def test_a_subclass_with_fields_of_its_own_works_like_a_dataclass() -> None:
    mine = MyArguments("out", extra=3, evaluation_strategy="epoch", model_init_kwargs='{"a": "1"}')
    assert (mine.extra, mine.eval_strategy, mine.model_init_kwargs) == (3, "epoch", {"a": 1})
    assert mine.learning_rate == 1e-3
    assert dataclasses.asdict(mine)["extra"] == 3
    assert dataclasses.replace(mine, extra=4).extra == 4
    assert list(mine.to_dict())[-1] == "tags"


def test_a_subclass_with_a_constructor_of_its_own_may_hand_on_old_names() -> None:
    class Short(TrainingArguments):
        def __init__(self, where: str) -> None:
            super().__init__(where, evaluation_strategy="epoch", no_cuda=True)

    assert (Short("x").eval_strategy, Short("x").use_cpu) == ("epoch", True)


def test_a_subclass_may_prepare_before_and_check_after() -> None:
    @dataclass
    class Prepared(TrainingArguments):
        size: int | None = None

        def __post_init__(self) -> None:
            self.size = self.size or 7
            super().__post_init__()
            if self.size > 10:
                raise ValueError("size")

    assert Prepared("x").size == 7
    with pytest.raises(ValueError, match="size"):
        Prepared("x", size=11)


def test_the_signature_names_every_field() -> None:
    import inspect

    assert list(inspect.signature(TrainingArguments).parameters)[:2] == ["output_dir", "per_device_train_batch_size"]
    assert inspect.signature(MyArguments).parameters["extra"].default == 0


def pickled(made: Any) -> Any:
    return pickle.loads(pickle.dumps(made))  # noqa: S301  # our own


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_arguments_can_be_copied_and_sent_to_another_process(again: Any) -> None:
    made = MyArguments("out", logging_dir="logs", fsdp="offload", lr_scheduler_kwargs={"a": 1})
    made.device  # noqa: B018  # what belongs to this process does not travel
    copied = again(made)
    assert copied == made
    assert copied.logging_dir == "logs"
    assert "_world" not in vars(copied)


CASES: list[dict[str, Any]] = [
    {},
    {"use_cpu": True, "bf16": True, "eval_strategy": "steps", "load_best_model_at_end": True, "logging_steps": 10.0},
    {"lr_scheduler_kwargs": '{"a": "1", "b": "x", "c": "true", "d": "0.5"}', "report_to": "tensorboard"},
    {"debug": "underflow_overflow", "torch_compile_mode": "default", "warmup_steps": 0.1, "save_strategy": "best"},
    {"fsdp": "shard_grad_op offload auto_wrap", "fsdp_config": {"fsdp_transformer_layer_cls_to_wrap": "Layer"}},
    {"include_num_input_tokens_seen": True, "accelerator_config": {"split_batches": True}, "hub_token": "secret"},
    {"activation_checkpointing": True, "metric_for_best_model": "accuracy", "eval_strategy": "epoch"},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 0.25, "report_to": "none"},
    {"output_dir": "~/x", "label_names": ["a"], "optim": "sgd", "disable_tqdm": True, "eval_delay": 2},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case) or "none")
@pytest.mark.filterwarnings("ignore")
def test_to_dict_gives_what_the_original_gives(case: dict[str, Any]) -> None:
    ours, theirs = TrainingArguments(**case), transformers.TrainingArguments(**case)
    assert ours.to_dict() == theirs.to_dict()
    assert list(ours.to_dict()) == list(theirs.to_dict())
    assert ours.to_sanitized_dict() == theirs.to_sanitized_dict()
    assert ours.to_json_string() == theirs.to_json_string()


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case) or "none")
@pytest.mark.filterwarnings("ignore")
def test_what_either_of_the_two_wrote_can_be_read_back(case: dict[str, Any]) -> None:
    ours = TrainingArguments(**{key: value for key, value in case.items() if key != "hub_token"})
    assert TrainingArguments(**ours.to_dict()) == ours
    assert TrainingArguments(**transformers.TrainingArguments(**case).to_dict()) == ours


def test_a_generation_config_becomes_plain_values() -> None:
    made = Seq2SeqTrainingArguments("x", generation_config=transformers.GenerationConfig(max_length=9))
    assert made.to_dict()["generation_config"]["max_length"] == 9


def test_a_token_is_never_shown() -> None:
    made = MyArguments("x", hub_token="secret")
    assert made.hub_token == "secret"
    assert not [text for text in (str(made), repr(made), made.to_json_string()) if "secret" in text]


@pytest.mark.parametrize(
    ("steps", "total", "expected"), [(0, 50, 0), (7, 50, 7), (0.05, 50, 3), (0.1, 25, 3), (1, 9, 1)]
)
def test_warm_up_is_a_number_of_updates_or_a_share_rounded_up(steps: float, total: int, expected: int) -> None:
    assert TrainingArguments(warmup_steps=steps).get_warmup_steps(total) == expected


def test_precision_comes_from_the_arguments_or_else_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert TrainingArguments().mixed_precision == "bf16"
    assert TrainingArguments(fp16=True).mixed_precision == "fp16"
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    assert TrainingArguments().mixed_precision == "no"
    assert TrainingArguments(bf16=True, use_cpu=True).mixed_precision == "bf16"


def test_tf32_is_left_alone_where_there_is_none() -> None:
    assert TrainingArguments().tf32_wanted() is None
    assert TrainingArguments(torch_compile=True).tf32_wanted() is None
    assert TrainingArguments(tf32=False).tf32_wanted() is False


def test_what_the_original_lacks_is_told_only_where_it_was_set() -> None:
    assert "nonfinite_steps" not in TrainingArguments("x").to_dict()
    assert transformers.TrainingArguments(**TrainingArguments("x").to_dict()).output_dir == "x"
    told = TrainingArguments("x", nonfinite_steps="skip", resume_hyperparameters="given").to_dict()
    assert (told["nonfinite_steps"], told["resume_hyperparameters"]) == ("skip", "given")


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    ours, console, verbosity = logging.getLogger("xdpx").level, log._console.on_every_rank, theirs.get_verbosity()
    yield
    logging.getLogger("xdpx").setLevel(ours)
    log._console.on_every_rank = console
    theirs.set_verbosity(verbosity)


def _arguments(*, should_log: bool, level: int, main: str = "passive", replica: str = "warning") -> Any:
    return SimpleNamespace(
        should_log=should_log, log_level=main, log_level_replica=replica, get_process_log_level=lambda: level
    )


@pytest.mark.parametrize(("should_log", "level"), [(True, logging.DEBUG), (False, logging.ERROR)])
def test_both_libraries_speak_from_the_level_of_this_process_on(should_log, level):
    assert apply_log_level(_arguments(should_log=should_log, level=level, main="debug", replica="error")) == level
    assert logging.getLogger("xdpx").level == level
    assert theirs.get_verbosity() == level


def test_passive_changes_nothing():
    logging.getLogger("xdpx").setLevel(logging.INFO)
    theirs.set_verbosity(logging.ERROR)
    apply_log_level(_arguments(should_log=True, level=logging.WARNING))
    assert logging.getLogger("xdpx").level == logging.INFO
    assert theirs.get_verbosity() == logging.ERROR


@pytest.mark.parametrize(("level", "lines"), [(logging.INFO, 1), (logging.WARNING, 0)])
def test_a_replica_says_what_its_level_lets_through_though_it_is_not_the_first(level, lines, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    log.info("before")
    apply_log_level(_arguments(should_log=False, level=level, replica="set"))
    log.info("marker")
    err = capsys.readouterr().err
    assert err.count("marker") == lines
    assert "before" not in err
