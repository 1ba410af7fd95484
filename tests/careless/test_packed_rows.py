"""An evaluation of packed rows, as somebody starts it who wants to know afterwards which text was hard."""

import json
from pathlib import Path

import pytest

from xdpx.main import main

EXPERIMENT = """
from xdpx.datasets.inputs import Arrays, LanguageModelFeatures, SeqIOInput, Task
from xdpx.experiments.lm.model_params import TransformerLmSpmdAdam
from xdpx.experiments.registry import experiment

TEXTS = [[2 + number % 5] * (1 + number % 4) for number in range(11)]


@experiment
class Packed(TransformerLmSpmdAdam):
    ICI_MESH_SHAPE = (1, 1, 1)
    NUM_LAYERS, MODEL_DIMS, DIMS_PER_HEAD, VOCAB_SIZE, MAX_SEQ_LEN = 1, 8, 8, 16, 8
    PERCORE_BATCH_SIZE = 2
    MAX_STEPS = 1

    def datasets(self):
        task = Task.HParams(name="toy", source=Arrays.HParams(columns={"targets": TEXTS}))
        converter = LanguageModelFeatures.HParams(pack=True, with_inputs=False)
        common = dict(mixture_or_task=task, task_feature_lengths={"targets": 8}, feature_converter=converter,
                      batch_size=2)
        return [SeqIOInput.HParams(is_training=True, **common),
                SeqIOInput.HParams(name="dev", eval_window="full_epoch", **common)]
"""


def test_rows_of_a_packed_evaluation_say_which_examples_they_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "packed_rows.py").write_text(EXPERIMENT)
    name, job = f"{tmp_path}/packed_rows.py:Packed", tmp_path / "job"
    assert main([name, f"--job_log_dir={job}", "--eval_on_test"]) == 0
    lines = (job / "eval_out" / "dev" / "eval_out_1_shard_0.jsonl").read_text().splitlines()
    held = [[one["index_within_shard"] for one in json.loads(line)["provenance"]] for line in lines]
    assert sorted(sum(held, [])) == list(range(11))
    assert max(map(len, held)) > 1
    capsys.readouterr()
    assert main([name, "--peek"]) == 0
    assert "(examples 0, 1, 2" in capsys.readouterr().out
