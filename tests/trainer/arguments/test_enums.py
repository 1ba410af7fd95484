from __future__ import annotations

import pytest
from transformers import trainer_utils, training_args

from xdpx.trainer.arguments import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    ParallelMode,
    SaveStrategy,
    SchedulerType,
)
from xdpx.trainer.arguments.enums import Word

PAIRS = [
    (IntervalStrategy, trainer_utils.IntervalStrategy),
    (SaveStrategy, trainer_utils.SaveStrategy),
    (HubStrategy, trainer_utils.HubStrategy),
    (SchedulerType, trainer_utils.SchedulerType),
    (OptimizerNames, training_args.OptimizerNames),
    (ParallelMode, training_args.ParallelMode),
    (DebugOption, training_args.DebugOption),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda words: words.__name__)
def test_names_and_words_are_those_of_the_original(ours: type[Word], theirs: type) -> None:
    assert {word.name: word.value for word in ours} == {word.name: word.value for word in theirs}


def test_a_word_equals_the_same_word_of_the_original_and_the_plain_text() -> None:
    assert IntervalStrategy.STEPS == trainer_utils.IntervalStrategy.STEPS == "steps"
    assert IntervalStrategy(trainer_utils.IntervalStrategy.STEPS) is IntervalStrategy.STEPS
    assert trainer_utils.SchedulerType(SchedulerType.COSINE) is trainer_utils.SchedulerType.COSINE
    assert f"{IntervalStrategy.STEPS}" == "steps"


def test_an_unknown_word_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no 'step' is known. Did you mean 'steps'\\? Choose one of: no, steps, epoch"):
        IntervalStrategy("step")


def test_an_unknown_word_like_none_is_refused_with_all() -> None:
    with pytest.raises(ValueError, match="no 'xyz' is known. Choose one of: adamw_torch, .*stable_adamw"):
        OptimizerNames("xyz")
