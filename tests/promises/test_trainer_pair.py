"""What the documents promise of the Trainer on several processes: two of them, over gloo, on this machine."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import processes
from tests.processes import free_port
from tests.tiers import nightly, some

_spec = importlib.util.spec_from_file_location("trainer_parts", Path(__file__).with_name("trainer_parts.py"))
assert _spec is not None
assert _spec.loader is not None
parts: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(parts)

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
WORDS = some(
    ["full_shard", "shard_grad_op", "no_shard", "full_shard offload", "shard_grad_op offload", "full_shard auto_wrap",
     "shard_grad_op auto_wrap", "full_shard offload auto_wrap", "shard_grad_op offload auto_wrap"],
    ["full_shard", "no_shard", "shard_grad_op offload auto_wrap"],
)  # fmt: skip
"""Each word, in the short form."""
KINDS = some(["FULL_STATE_DICT", "SHARDED_STATE_DICT"], ["SHARDED_STATE_DICT"])
"""Kinds of sharded checkpoints. One process goes on from a full one in the short form as well."""


def launch(*lines: list[str]) -> str:
    """Run command lines at the same time, and return what they wrote."""
    around = processes.environment(CUDA_VISIBLE_DEVICES="")
    ended = processes.run_together(lines, [around] * len(lines))
    assert not any(each.code for each in ended), processes.told(ended)
    return "".join(each.text for each in ended)


def torchrun(*words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *words]


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def told(place: Path) -> tuple[list[dict[str, Any]], str]:
    """The facts that both processes wrote down, and what they said."""
    words = [parts.door.__name__, str(place), json.dumps(WORDS), json.dumps(KINDS)]
    launch([sys.executable, str(HERE / "trainer_pair.py"), *words])
    return read(place), "".join((place / f"said-{rank}.txt").read_text() for rank in (0, 1))


@pytest.fixture
def facts(told: Any, request: pytest.FixtureRequest) -> list[Any]:
    """The facts of one scenario, of both processes."""
    both = [rank[request.param] for rank in told[0]]
    for rank in both:
        assert "failed" not in rank, rank["failed"]
    return both


def scenario(name: str) -> Any:
    """Name the scenario whose facts a test looks at."""
    return pytest.mark.parametrize("facts", [name], indirect=True)


def alone(tmp_path: Path, model: Any = None, rows: Any = None, **changes: Any) -> Any:
    """Train the same in one process, with as many samples per step as both had."""
    usual = {"per_device_train_batch_size": 4, "train_sampling_strategy": "sequential"}
    trainer = parts.build(
        tmp_path, model or parts.tiny_bert(layers=2), rows or parts.token_rows(16), **(usual | changes)
    )
    trainer.train()
    return trainer


@scenario("ddp")
def test_03_two_processes_take_the_steps_of_one_with_twice_the_batch(facts: Any, tmp_path: Path) -> None:
    assert facts[0]["wrapper"] == "DistributedDataParallel"
    assert [rank["world"] for rank in facts] == [2, 2]
    single = alone(tmp_path, parts.seeded(), parts.Rows(16))
    assert facts[0]["plain"] == pytest.approx(parts.losses(single), abs=1e-6)
    assert facts[0]["uneven"] == 3


@scenario("ddp")
def test_03_a_model_that_ignores_the_count_is_no_exception(facts: Any, tmp_path: Path) -> None:
    assert facts[0]["losses"] == pytest.approx(parts.losses(alone(tmp_path)), abs=1e-6)


@scenario("scoring")
def test_03_rows_that_do_not_come_out_even_are_scored_once(facts: Any, tmp_path: Path) -> None:
    trainer = parts.build(tmp_path, parts.tiny_bert(layers=2))
    rows = parts.token_rows(7)
    predicted = trainer.predict(rows)
    for rank in facts:
        assert rank["labels"] == predicted.label_ids.tolist()
        assert torch.allclose(torch.tensor(rank["logits"]), torch.tensor(predicted.predictions), atol=1e-6)
        assert rank["loss"] == pytest.approx(trainer.evaluate(rows)["eval_loss"], abs=1e-6)


@scenario("tokens")
def test_03_a_token_counts_alike_on_every_process(facts: Any, tmp_path: Path) -> None:
    trainer = alone(tmp_path, parts.tiny_gpt(), parts.text_rows(16), per_device_train_batch_size=8, optim="sgd")
    norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert facts[0]["losses"] == pytest.approx(parts.losses(trainer), abs=1e-6)
    assert facts[0]["norms"] == pytest.approx(norms, rel=1e-5)


@scenario("stream")
def test_03_a_stream_is_shared_out_among_processes(facts: Any, tmp_path: Path) -> None:
    single = alone(tmp_path, parts.seeded(), parts.Rows(16))
    assert facts[0]["losses"] == pytest.approx(parts.losses(single), abs=1e-6)


@scenario("saving")
def test_03_processes_agree_on_the_best_and_on_what_is_saved(facts: Any, place: Path) -> None:
    assert facts[0] == facts[1]
    assert Path(facts[0]["best"]).name in facts[0]["folders"]
    assert "checkpoint-4" in facts[0]["folders"]
    assert not [path for path in (place / "saving").iterdir() if "tmp" in path.name]


@scenario("levels")
def test_15_every_process_logs_from_its_level(facts: Any, told: Any) -> None:
    for main in ("info", "error"):
        for replica in ("warning", "error"):
            levels = [getattr(logging, main.upper()), getattr(logging, replica.upper())]
            assert [rank[f"{main} {replica}"] for rank in facts] == levels
            lines = [line for line in told[1].splitlines() if line.strip().endswith(f"marker {main} {replica}")]
            assert len(lines) == sum(level <= logging.WARNING for level in levels)


@scenario("dice")
def test_17_every_process_gets_its_own_dice_back(facts: Any) -> None:
    for rank in facts:
        assert rank["equal"]
        assert rank["files"] == ["rng_state_0.pth", "rng_state_1.pth"]
    assert facts[0]["losses"][0] == facts[0]["losses"][1]


@scenario("fsdp_words")
@pytest.mark.parametrize("words", WORDS)
def test_22_every_way_to_shard_gives_the_losses_of_data_parallelism(facts: Any, told: Any, words: str) -> None:
    found, plain = facts[0][words], told[0][0]["ddp"]
    assert found["losses"] == pytest.approx(plain["losses"], abs=1e-6)
    assert found["norms"] == pytest.approx(plain["norms"], rel=1e-4)
    if "no_shard" not in words:
        assert found["sharded"] == found["all"]
        assert found["share"] < 0.6
    assert "BertLayer" in found["units"] or "auto_wrap" not in words
    assert found["devices"] == ["cpu"]


@scenario("fsdp_config")
def test_23_layers_become_units_by_name_or_by_size(facts: Any, told: Any) -> None:
    assert "BertLayer" in facts[0]["named"]["units"]
    assert "BertEmbeddings" not in facts[0]["named"]["units"]
    assert set(facts[0]["sized"]["units"]) - {"BertForSequenceClassification"}
    for found in facts[0].values():
        assert found["losses"] == pytest.approx(told[0][0]["ddp"]["losses"], abs=1e-6)
    assert "prefetch" in told[1]


@scenario("recomputing")
def test_23_activations_are_computed_again_when_so_asked(facts: Any) -> None:
    assert facts[0]["False"] == 1
    assert facts[0]["True"] == 2
    assert facts[0]["losses-True"] == pytest.approx(facts[0]["losses-False"], abs=1e-6)


@scenario("fsdp_saved")
@pytest.mark.parametrize("kind", KINDS)
def test_24_a_sharded_training_goes_on_with_the_same_numbers(facts: Any, kind: str, place: Path) -> None:
    found = facts[0][kind]
    assert found["resumed"] == pytest.approx(found["straight"], abs=1e-6)
    assert {"trainer_state.json", "rng_state_0.pth", "rng_state_1.pth"} <= set(found["files"])
    again = type(parts.tiny_bert()).from_pretrained(place / f"{kind}-saved")
    assert parts.weights(again).isfinite().all()


@scenario("fsdp_for_one")
def test_24_one_process_goes_on_from_what_two_have_saved(facts: Any, place: Path, tmp_path: Path) -> None:
    usual = {"per_device_train_batch_size": 4, "train_sampling_strategy": "sequential"}
    trainer = parts.build(tmp_path, parts.tiny_gpt(), parts.text_rows(16), **usual)
    trainer.train(resume_from_checkpoint=str(place / "for-one/checkpoint-2"))
    assert parts.losses(trainer) == pytest.approx(facts[0]["losses"], abs=1e-6)
    assert trainer.evaluate(parts.text_rows(7))["eval_loss"] == pytest.approx(facts[0]["eval"], abs=1e-5)


@scenario("generating")
def test_25_a_sharded_model_generates(facts: Any) -> None:
    assert facts[0] == facts[1]
    ids = torch.randint(3, 30, (7, 5), generator=torch.Generator().manual_seed(1))
    assert [row[:5] for row in facts[0]["labels"]] == ids.flip(1).tolist()
    assert len(facts[0]["ids"]) == 7


@scenario("refusals")
def test_27_one_mac_trains_alone(facts: Any) -> None:
    assert all("MPS" in rank["mps"] and "Error" in rank["mps"] for rank in facts)


@scenario("refusals")
def test_22_a_ready_made_optimizer_cannot_be_sharded(facts: Any) -> None:
    assert all(rank["optimizers"].startswith("RuntimeError") for rank in facts)


@scenario("launched")
def test_28_what_accelerate_says_by_the_environment_is_done(facts: Any, told: Any) -> None:
    plain = told[0][0]["ddp"]["losses"]
    assert facts[0]["fsdp"]["units"][0:1] != []
    assert "BertLayer" in facts[0]["fsdp"]["units"]
    assert facts[0]["fsdp"]["losses"] == pytest.approx(plain, abs=1e-6)
    assert facts[0]["bf16"]["losses"] != plain
    assert facts[0]["bf16"]["losses"] == pytest.approx(plain, rel=0.05)


# ---- launchers


def script(folder: Path, *words: str) -> list[str]:
    usual = ["--output_dir", str(folder / "out"), "--use_cpu", "--max_steps", "2", "--per_device_train_batch_size", "2"]
    usual += ["--save_strategy", "no", "--report_to", "none", "--learning_rate", "0.1", "--disable_tqdm", "true"]
    return [str(HERE / "trainer_launch.py"), "--facts", str(folder), *usual, *words]


def check(folder: Path) -> list[dict[str, Any]]:
    found = read(folder)
    assert [(rank["world"], rank["mode"], rank["steps"]) for rank in found] == [(2, "distributed", 2)] * 2
    assert {rank["wrapper"] for rank in found} == {"DistributedDataParallel"}
    assert found[0]["weight"] == found[1]["weight"] != 1.0
    assert [rank["main"] for rank in found] == [True, False]
    return found


@nightly("tests/trainer/arguments/test_places.py::test_two_processes_know_their_places_and_the_first_goes_first")
def test_19_the_older_launcher_of_torch_passes_the_rank_as_an_argument(tmp_path: Path) -> None:
    words = ["--nproc_per_node=2", f"--master_port={free_port()}"]
    launch([sys.executable, "-m", "torch.distributed.launch", *words, *script(tmp_path)])
    assert [rank["local"] for rank in check(tmp_path)] == [0, 1]


def test_19_accelerate_launches_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    config = tmp_path / "launch.yaml"
    lines = ["compute_environment: LOCAL_MACHINE", "distributed_type: MULTI_GPU", "machine_rank: 0", "num_machines: 1",
             "num_processes: 2", "mixed_precision: 'no'", "use_cpu: true", f"main_process_port: {free_port()}",
             "main_training_function: main", "rdzv_backend: static", "same_network: true"]  # fmt: skip
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    launch([*launcher, *script(tmp_path)])
    check(tmp_path)


@pytest.mark.parametrize(("each", "marked"), some([("1", 2), ("0", 1)], [("1", 2)]))
def test_15_and_28_two_nodes_train_together_and_the_second_logs_when_asked(
    each: str, marked: int, tmp_path: Path
) -> None:
    port = free_port()
    node = ["--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1", f"--master_port={port}"]
    words = ["--log_level", "warning", "--log_level_replica", "error", "--log_on_each_node", each]
    words += ["--save_strategy", "steps", "--save_steps", "1", "--save_on_each_node", each]
    disks = [tmp_path / f"disk-{rank if each == '1' else 'of-both'}" for rank in (0, 1)]
    lines = [script(tmp_path, *words, "--output_dir", str(disk)) for disk in disks]
    said = launch(*(torchrun(*node, f"--node_rank={rank}", *line) for rank, line in enumerate(lines)))
    found = check(tmp_path)
    for disk in disks:  # pain 15: whoever saves, and wherever, every disk holds whole checkpoints and nothing else
        of_first = ["metrics.jsonl", "status.json"] if disk == disks[0] else []  # of the first process alone
        assert sorted(path.name for path in disk.iterdir()) == ["checkpoint-1", "checkpoint-2", *of_first]
        files = {path.name for path in (disk / "checkpoint-2").iterdir()}
        assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"} <= files
    assert [rank["local_main"] for rank in found] == [True, True]
    assert sum(line.strip() == "marker at warning" for line in said.splitlines()) == marked
    assert sum(line.strip() == "marker at error" for line in said.splitlines()) == 2
