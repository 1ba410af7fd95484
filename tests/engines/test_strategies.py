"""Training over processes gives what one process gives. Two real ones run `two_processes.py`, once for all tests."""

import gc
import importlib.util
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed.nn  # its functions hold the group, if there is one when it is imported

from tests.processes import environment, fork_ranks, free_port, run_together, told
from tests.tiers import nightly
from xdpx.engines.pytorch import strategies, world
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import DataParallel, Distributed, Single, choose, shard_files
from xdpx.engines.pytorch.strategies.whole import unwrapped

SCRIPT = Path(__file__).with_name("two_processes.py")
CHECKS = re.findall(r"^def (check_(?!two_machines)\w+)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)


def _script():
    spec = importlib.util.spec_from_file_location("two_processes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["two_processes"] = module
    spec.loader.exec_module(module)
    return module


script = _script()
ALONE = script.ALONE


def launch(out, *names, by):
    command = [sys.executable, "-m", by, "--nproc_per_node=2", f"--master_port={free_port()}", str(SCRIPT), str(out)]
    return subprocess.run(
        [*command, *names], env=environment(), capture_output=True, text=True, timeout=500, check=False
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder with what the two processes found."""
    out = tmp_path_factory.mktemp("two")
    (out / "of_one").mkdir()
    model, optimizer, _ = script.one_process(range(3))
    Single(ALONE).sharded_save(str(out / "of_one"), model, optimizer)
    (ended,) = run_together([[sys.executable, str(SCRIPT), str(out), "--fork"]], [environment()])
    said = [path.read_text() for path in out.glob("said-*.txt")]
    (out / "output").write_text("".join([ended.text, *said]))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_in_two_processes(two, name):
    for rank in range(2):
        file = two / f"{name}.{rank}"
        assert file.exists(), (two / "output").read_text()[-3000:]
        assert file.read_text() == "passed", f"process {rank}: {file.read_text()}"


@pytest.mark.slow
def test_a_group_that_only_an_unreachable_model_holds_is_left_while_its_threads_still_hold_tensors(tmp_path):
    """Those threads take Python's lock to release them: whoever waits for them with the lock held waits for ever."""

    def be(rank):
        signal.alarm(60)
        world.current(use_cpu=True)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model.itself = model
        gc.disable()
        del model
        time.sleep(rank)
        for _ in range(5):
            torch.distributed.all_reduce(torch.ones(3), async_op=True)
        world.leave()

    assert fork_ranks(be, 2, str(tmp_path / "said")) == [0, 0], (tmp_path / "said-0.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Distributed", "Sharded"])
def test_what_two_processes_saved_is_plain_tensors_that_one_process_goes_on_from(two, kind):
    saved = torch.load(two / f"from_{kind}.pt", weights_only=True)
    found = script.resumed(Single(ALONE), saved["optimizer"], saved["weights"], range(3, 6))
    script.same(found, dict(script.one_process(range(6))[0].state_dict()))


@pytest.mark.slow
def test_sharded_files_of_two_processes_are_read_by_one(two):
    model = script.Small(seed=8)
    optimizer = script.adamw(model, lr=0.9)
    Single(ALONE).sharded_load(str(two / "sharded"), model, optimizer)
    script.train(Single(ALONE), model, optimizer, range(4, 6))
    script.same(dict(model.state_dict()), dict(script.one_process(range(6))[0].state_dict()))
    assert shard_files.is_sharded(str(two / "sharded"))


@pytest.mark.slow
@nightly("tests/trainer/arguments/test_places.py::test_two_processes_know_their_places_and_the_first_goes_first")
def test_torch_distributed_launch_which_adds_an_argument_starts_them_as_well(tmp_path):
    name = "check_the_world_is_read_from_the_launcher"
    done = launch(tmp_path, name, by="torch.distributed.launch")
    assert (tmp_path / f"{name}.1").read_text() == "passed", done.stderr


@pytest.mark.slow
def test_two_machines_are_two_nodes(tmp_path):
    name = "check_two_machines_have_one_process_each"
    port = free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"]
    command += ["--master_addr=127.0.0.1", f"--master_port={port}"]
    lines = [[*command, f"--node_rank={rank}", str(SCRIPT), str(tmp_path), name] for rank in range(2)]
    ended = run_together(lines, [environment()] * 2)
    assert [each.code for each in ended] == [0, 0], told(ended)
    assert (tmp_path / f"{name}.1").read_text() == "passed"


@pytest.mark.slow
@nightly("tests/promises/test_trainer_pair.py::test_19_accelerate_launches_two_processes")
def test_accelerate_launch_starts_them_with_a_configuration_for_the_cpu(tmp_path):
    pytest.importorskip("accelerate")
    name = "check_the_world_is_read_from_the_launcher"
    config = tmp_path / "config.yaml"
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nuse_cpu: true\nnum_machines: 1\n"
        f"num_processes: 2\nmachine_rank: 0\nmain_training_function: main\nmain_process_port: {free_port()}\n"
    )
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    subprocess.run([*command, str(SCRIPT), str(tmp_path), name], env=environment(), timeout=300, check=True)
    assert (tmp_path / f"{name}.1").read_text() == "passed"


@pytest.mark.slow
def test_mpi_says_it_by_other_names(tmp_path):
    name = "check_values_travel"
    shared = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_PORT": str(free_port())}
    ranks = [{"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)} for rank in range(2)]
    line = [sys.executable, str(SCRIPT), str(tmp_path), name]
    ended = run_together([line] * 2, [environment(**shared, **rank) for rank in ranks])
    assert [each.code for each in ended] == [0, 0], told(ended)
    assert (tmp_path / f"{name}.1").read_text() == "passed"


def test_sharded_files_of_another_model_are_refused_with_the_differences(tmp_path):
    Single(ALONE).sharded_save(str(tmp_path), script.Small())
    with pytest.raises(RuntimeError, match="head.bias is not in the model"):
        Single(ALONE).sharded_load(str(tmp_path), script.Small(tied=True))
    with pytest.raises(FileNotFoundError, match="optimizer_0: there is no such folder"):
        Single(ALONE).sharded_load(str(tmp_path), model := script.Small(), script.adamw(model))


def test_damaged_sharded_files_are_refused_by_name(tmp_path):
    Single(ALONE).sharded_save(str(tmp_path), script.Small())
    shard = next((tmp_path / shard_files.MODEL).glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(RuntimeError, match="pytorch_model_fsdp_0: cannot be read"):
        Single(ALONE).sharded_load(str(tmp_path), script.Small())


def test_sharded_files_that_begin_with_a_pickle_are_not_read(tmp_path):
    (tmp_path / shard_files.MODEL).mkdir()
    (tmp_path / shard_files.MODEL / ".metadata").write_bytes(b"cos\nsystem\n")
    with pytest.raises(RuntimeError, match=r"begins with a pickle \(.metadata\).*was not read"):
        Single(ALONE).sharded_load(str(tmp_path), script.Small())


def test_an_optimizer_before_its_first_step_is_saved_and_read(tmp_path):
    model = script.Small()
    Single(ALONE).sharded_save(str(tmp_path), model, script.adamw(model, betas=(0.8, 0.9)))
    optimizer = script.adamw(model)
    Single(ALONE).sharded_load(str(tmp_path), model, optimizer)
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    assert optimizer.state_dict()["state"] == {}


def test_one_process_trains_alone():
    strategy = choose(ALONE)
    model = script.Small()
    assert type(strategy) is Single
    assert strategy.prepare(model) is model
    assert strategy.accumulating(model, last=False) is strategy.accumulating(model, last=True)
    assert not strategy.shards


@pytest.mark.parametrize("mixed", [False, True])
def test_the_norm_and_the_clipped_gradients_are_those_of_torch(mixed):
    ours, torchs = script.Small(), script.Small()
    for model in (ours, torchs):
        model.head.to(torch.float64 if mixed else torch.float32)
        loss = (model.head(model.embed(script.batch(0)).to(model.head.weight.dtype)) ** 2).mean()
        loss.backward()  # the layers are left without gradients
    parameters = list(ours.parameters())
    unclipped = Single(ALONE).clip(parameters, 0.0)
    norm = Single(ALONE).clip(parameters, 0.01)
    expected = torch.nn.utils.clip_grad_norm_(torchs.parameters(), 0.01)
    assert torch.equal(norm, expected)
    assert torch.equal(unclipped, expected)
    for own, other in zip(parameters, torchs.parameters(), strict=True):
        assert (own.grad is None and other.grad is None) or torch.equal(own.grad, other.grad)


def test_without_gradients_the_norm_is_zero():
    assert float(Single(ALONE).clip(script.Small().parameters(), 1.0)) == 0.0


def test_weights_keep_ties_and_come_back_under_plain_names():
    model = torch.nn.DataParallel(script.Small(tied=True))
    weights = Single(ALONE).weights(model)
    assert set(weights) == set(script.Small(tied=True).state_dict())
    assert weights["head.weight"] is weights["embed.weight"]
    assert Single(ALONE).weights(model, wanted=False) == {}


def test_weights_that_do_not_fit_are_refused_and_change_nothing():
    model = script.Small()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    weights = {name: each + 1 for name, each in before.items()} | {"scale": torch.zeros(2)}
    with pytest.raises(RuntimeError, match=r"scale is \(2,\) in the file and \(8,\) in the model"):
        Single(ALONE).load_weights(model, weights)
    script.same(dict(model.state_dict()), before, tolerance=0)


def test_an_optimizer_state_without_its_parts_is_refused():
    model = script.Small()
    with pytest.raises(ValueError, match="must have 'state' and 'param_groups'"):
        Single(ALONE).load_optimizer_state(model, script.adamw(model), {"model": 1})


def test_an_optimizer_state_of_weights_in_another_order_is_refused():
    first, second = (torch.nn.Parameter(torch.ones(size)) for size in ((2, 3), (3, 2)))
    saved, other = torch.optim.AdamW([first, second]), torch.optim.AdamW([second, first])
    for weight in saved.param_groups[0]["params"]:
        weight.grad = torch.ones_like(weight)
    saved.step()
    with pytest.raises(ValueError, match=r"of weight 0 is \(2, 3\), and the weight \(3, 2\).*in another order"):
        Single(ALONE).load_optimizer_state(torch.nn.Linear(1, 1), other, saved.state_dict())


def test_several_gpus_in_one_process_are_driven_by_threads_and_a_warning(caplog):
    four = replace(ALONE, num_gpus=4)
    strategy = choose(four, place=False)
    assert isinstance(strategy, DataParallel)
    model = script.Small()
    wrapped = strategy.prepare(model)
    assert isinstance(wrapped, torch.nn.DataParallel)
    assert strategy.unwrap(wrapped) is model
    assert "torchrun --nproc_per_node 4" in caplog.text


def test_several_gpus_compute_in_the_precision_of_the_model(caplog):
    model = script.Small()
    model.head.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    seen = []
    Precision("bf16", torch.device("cpu")).attach(model)
    wrapped = DataParallel(replace(ALONE, num_gpus=2)).prepare(model)
    assert "forward" not in vars(model)  # the copies on other GPUs would call it, and with it the weights of the first
    assert wrapped(script.batch(0)).dtype is torch.float32
    assert seen == [torch.bfloat16]


def test_whatever_is_around_a_model_is_taken_off():
    model = script.Small()
    assert unwrapped(torch.compile(torch.nn.DataParallel(model))) is model


def test_sharding_without_a_launcher_is_refused():
    with pytest.raises(ValueError, match="started alone.*torchrun"):
        choose(ALONE, fsdp=script.Options())


def test_an_unknown_way_of_sharding_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="is 'half_shard'. Use one of full_shard"):
        choose(replace(ALONE, mode="distributed"), fsdp=script.Options(strategy="half_shard"))


def test_xla_is_refused_where_it_is_not():
    with pytest.raises(ImportError, match="torch_xla"):
        choose(replace(ALONE, mode="distributed"), fsdp=replace(script.Options(), xla={"compute_dtype": "bfloat16"}))


def test_deepspeed_is_refused_where_it_is_not_installed_and_beside_fsdp(monkeypatch):
    monkeypatch.setattr(strategies.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="not installed.*full_shard auto_wrap"):
        choose(ALONE, deepspeed=dict)
    with pytest.raises(ValueError, match="together with fsdp"):
        choose(ALONE, deepspeed=dict, fsdp=script.Options())


def test_deepspeed_refuses_an_optimizer_that_the_arguments_do_not_name(monkeypatch):
    monkeypatch.setattr(strategies.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr("xdpx.engines.pytorch.strategies.zero.join_alone", lambda device: None)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with pytest.raises(ValueError, match="names the optimizer 'OneBitAdam'. Use AdamW"):
        choose(ALONE, deepspeed=lambda: {"optimizer": {"type": "OneBitAdam"}})


def test_ddp_is_chosen_for_several_processes():
    assert isinstance(choose(replace(ALONE, size=2, mode="distributed")), Distributed)


def test_training_in_one_process_imports_nothing_of_sharding():
    asked = "from xdpx.engines.pytorch import strategies; import sys; print('torch.distributed.tensor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
