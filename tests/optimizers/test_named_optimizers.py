import copy
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import trainer_optimizer as original
from transformers.training_args import OptimizerNames

from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.optimizers import NEEDED, optimizers
from xdpx.optimizers.pytorch import building, families, groups
from xdpx.optimizers.pytorch.adafactor import Adafactor
from xdpx.optimizers.pytorch.request import pairs

CLASSES = {
    "bitsandbytes.optim": ["AdamW", "Lion", "RMSprop", "AdEMAMix"],
    "galore_torch": ["GaLoreAdafactor", "GaLoreAdamW", "GaLoreAdamW8bit"],
    "apollo_torch": ["APOLLOAdamW"],
    "lomo_optim": ["Lomo", "AdaLomo"],
    "grokadamw": ["GrokAdamW"],
    "torchao.optim": ["AdamW4bit", "AdamW8bit"],
    "schedulefree": ["RAdamScheduleFree", "AdamWScheduleFree", "SGDScheduleFree"],
    "optimi": ["StableAdamW"],
    "torchdistx.optimizers": ["AnyPrecisionAdamW"],
    "torch_xla.amp.syncfree": ["AdamW"],
    "torch_npu.optim": ["NpuFusedAdamW"],
}
OF_TORCH = ["adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"]
OF_PACKAGES = [name.value for name in OptimizerNames if name.value not in OF_TORCH]


def wishes(optim, **others):
    keys = {
        "optim": optim,
        "optim_args": None,
        "optim_target_modules": "all-linear" if "galore" in optim or "apollo" in optim else None,
        "learning_rate": 0.03,
        "weight_decay": 0.1,
        "adam_beta1": 0.8,
        "adam_beta2": 0.95,
        "adam_epsilon": 1e-7,
        "warmup_steps": 5,
        "max_steps": 100,
        "gradient_accumulation_steps": 1,
        "parallel_mode": "not_distributed",
    }
    return SimpleNamespace(**{**keys, **others})


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 3))


@pytest.fixture
def every_package(monkeypatch):
    """Stand-ins for the packages, so that the choice can be compared with the original's on any machine."""
    for source, names in CLASSES.items():
        parts = source.split(".")
        for length in range(1, len(parts) + 1):
            path = ".".join(parts[:length])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        for name in names:
            made = type(name, (torch.optim.SGD,), {"__module__": source})
            monkeypatch.setattr(sys.modules[source], name, made, raising=False)
    for name in dir(original):
        if name.startswith("is_") and name.endswith("_available"):
            monkeypatch.setattr(original, name, lambda *_: True)
    real = original.importlib.metadata.version
    monkeypatch.setattr(
        original.importlib.metadata, "version", lambda name: "0.15.0" if name == "torchao" else real(name)
    )


def choice_of_original(args, for_model):
    context = original.OptimizerContext(
        args=args,
        model=for_model,
        optimizer_kwargs={"lr": args.learning_rate},
        adam_kwargs={"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon},
        optim_args=original._parse_optim_args(args.optim_args),
    )
    return original._OPTIMIZER_HANDLERS[args.optim](context)


def comparable(kwargs):
    """The same, with parameters told by where they lie."""
    groups_of = kwargs.get("params")
    if groups_of is None:
        return kwargs
    told = [{**group, "params": [weight.data_ptr() for weight in group["params"]]} for group in groups_of]
    return {**kwargs, "params": told}


def test_every_name_of_the_original_is_known():
    assert {name.value for name in OptimizerNames} <= set(optimizers)


@pytest.mark.parametrize("name", [name.value for name in OptimizerNames if "layerwise" not in name.value])
def test_each_name_gives_the_class_and_the_arguments_of_the_original(name, every_package):
    for_model = model()
    kind, kwargs = building.class_and_kwargs(wishes(name), for_model)
    their_kind, theirs = choice_of_original(wishes(OptimizerNames(name)), for_model)
    assert kind.__name__ == their_kind.__name__
    assert (kind is their_kind) or name == "adafactor"
    assert comparable(kwargs) == comparable(theirs)


EXTRAS = [
    ("sgd", "momentum=0.9, dampening=0.1, weight_decay=0.2"),
    ("sgd", "momentum=0.9,nesterov=true"),
    ("adagrad", "lr_decay=0.1,weight_decay=0.2,eps=1e-4"),
    ("rmsprop", "momentum=0.9,alpha=0.5,eps=1e-4,weight_decay=0.3,centered=yes"),
    ("ademamix", "beta1=0.7,beta2=0.8,beta3=0.99,alpha=4,eps=1e-5,t_alpha=10,t_beta3=20"),
    ("adamw_anyprecision", "use_kahan_summation=True,momentum_dtype=bfloat16"),
    ("galore_adamw", "rank=4,update_proj_gap=7,scale=2.0,proj_type=right"),
    ("apollo_adamw", "rank=4,proj=svd,scale_type=tensor,update_proj_gap=3,scale=2,proj_type=left"),
    ("grokadamw", "alpha_init=0.5,lamb=1.0,gamma=0.2,gradient_clipping=0.7"),
    ("schedule_free_adamw", "weight_lr_power=1.0,r=0.5"),
    ("schedule_free_sgd", "weight_lr_power=1.0,r=0.5"),
    ("stable_adamw", "max_lr=0.1,decouple_lr=True,kahan_sum=True"),
]


@pytest.mark.parametrize(("name", "extra"), EXTRAS)
def test_optim_args_are_read_as_by_the_original(name, extra, every_package):
    for_model = model()
    ours = building.class_and_kwargs(wishes(name, optim_args=extra), for_model)
    theirs = choice_of_original(wishes(OptimizerNames(name), optim_args=extra), for_model)
    assert comparable(ours[1]) == comparable(theirs[1])


@pytest.mark.parametrize("name", OF_TORCH)
def test_the_enum_of_the_original_names_the_same(name):
    assert building.class_and_kwargs(wishes(OptimizerNames(name))) == building.class_and_kwargs(wishes(name))


def test_an_extra_that_the_original_takes_for_true_is_read_as_written(every_package):
    _, kwargs = building.class_and_kwargs(wishes("stable_adamw", optim_args="decouple_lr=False"))
    assert kwargs["decouple_lr"] is False


def test_numbers_reach_rmsprop_of_bitsandbytes_as_numbers(every_package):
    _, kwargs = building.class_and_kwargs(wishes("rmsprop_bnb_8bit", optim_args="alpha=0.9,eps=1e-5"))
    assert kwargs == {"lr": 0.03, "alpha": 0.9, "eps": 1e-5, "optim_bits": 8}


@pytest.mark.parametrize("name", OF_PACKAGES)
def test_a_missing_package_is_named_with_how_to_install_it(name, monkeypatch):
    for source in CLASSES:
        monkeypatch.setitem(sys.modules, source.partition(".")[0], None)
        monkeypatch.setitem(sys.modules, source, None)
    with pytest.raises(families.MissingPackage, match=rf"optim: '{name}' is .* of the package .*(install|see)"):
        building.class_and_kwargs(wishes(name), model())


def test_what_an_installed_package_lacks_is_named_itself(monkeypatch, tmp_path):
    (tmp_path / "galore_torch.py").write_text("import bitsandbytes")
    monkeypatch.delitem(sys.modules, "galore_torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(families.MissingPackage, match="Install it: pip install bitsandbytes;"):
        building.class_and_kwargs(wishes("galore_adamw"), model())


def test_a_missing_package_is_caught_as_either_error_of_the_original():
    assert issubclass(families.MissingPackage, ImportError)
    assert issubclass(families.MissingPackage, ValueError)


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(ValueError, match="there is no optimizer 'adamw_troch'. Did you mean 'adamw_torch'"):
        building.class_and_kwargs(wishes("adamw_troch"))


@pytest.mark.parametrize("text", ["momentum", "momentum=", "=0.9", "momentum=0.9=1"])
def test_what_is_no_pair_is_refused(text):
    if text == "momentum=":
        with pytest.raises(ValueError, match="momentum is ''"):
            building.class_and_kwargs(wishes("sgd", optim_args=text))
    else:
        with pytest.raises(ValueError, match="is not a pair. Write comma-separated key=value"):
            building.class_and_kwargs(wishes("sgd", optim_args=text))


def test_optim_args_may_be_a_dict_as_the_other_arguments_of_options_may():
    assert pairs({"momentum": 0.9, "nesterov": True}) == pairs("momentum=0.9, nesterov=True")


def test_x_train_has_a_key_for_weight_decay_which_optim_args_would_not_reach():
    of_sgd = families.SGD.Parameters
    assert of_sgd(optim_args="momentum=0.9", weight_decay=0.2).conflicts() == []
    [(key, problem)] = of_sgd(optim_args="momentum=0.9, weight_decay=0.2").conflicts()
    assert key == "optim_args"
    assert problem.endswith("Write weight_decay: 0.2 instead.")


def test_a_word_where_a_number_belongs_is_refused():
    with pytest.raises(ValueError, match="optim_args: momentum is 'high'. Use a number"):
        building.class_and_kwargs(wishes("sgd", optim_args="momentum=high"))


@pytest.mark.parametrize("name", OF_TORCH)
def test_what_needs_torch_alone_takes_a_step(name):
    trained = model()
    before = [weight.detach().clone() for weight in trained.parameters()]
    optimizer = building.optimizer_for(wishes(name), trained, groups.decay_groups(trained, 0.1))
    trained(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert all(not torch.equal(old, new) for old, new in zip(before, trained.parameters(), strict=True))


NEED_CUDA = {"adalomo", "galore_adamw_8bit", "galore_adamw_8bit_layerwise"}


def test_every_optimizer_whose_package_is_installed_lowers_the_loss():
    tried = []
    for name in set(OF_PACKAGES) - (set() if torch.cuda.is_available() else NEED_CUDA):
        trained = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1))
        extra = "rank=4" if name.startswith(("galore", "apollo")) else None
        args = wishes(name, optim_args=extra, learning_rate=1e-3, warmup_steps=0)
        try:
            optimizer = building.optimizer_for(args, trained, groups.decay_groups(trained, 0.0))
        except families.MissingPackage:
            continue
        tried.append(name)
        losses = _losses_of_some_steps(trained, optimizer)
        assert losses[-1] < losses[0], name
    if not tried:
        pytest.skip("no package with optimizers is installed")


def _losses_of_some_steps(trained, optimizer, steps=20):
    torch.manual_seed(0)
    x, y = torch.randn(16, 300), torch.randn(16, 1)
    getattr(optimizer, "train", lambda: None)()
    losses = []
    for _ in range(steps):
        loss = (trained(x) - y).square().mean()
        losses.append(loss.item())
        in_one = building.fused_backward_of(optimizer)
        if in_one is not None:
            in_one(loss, 1e-3)
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def test_a_class_and_arguments_of_the_user_are_used():
    trained = model()
    chosen = (torch.optim.SGD, {"lr": 0.5, "momentum": 0.3})
    optimizer = building.optimizer_for(wishes("adamw_torch"), trained, groups.decay_groups(trained, 0.1), chosen)
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.defaults["momentum"] == 0.3
    assert chosen[1] == {"lr": 0.5, "momentum": 0.3}


def test_a_factory_is_called_with_the_model():
    class Halves:
        def __call__(self, whole, lr):
            return torch.optim.SGD(whole[0].parameters(), lr=lr)

    trained = model()
    optimizer = building.optimizer_for(wishes("sgd"), trained, [], (Halves, {"lr": 0.5}))
    assert optimizer.param_groups[0]["params"] == list(trained[0].parameters())


def test_parameters_that_the_user_chose_replace_the_groups():
    trained = model()
    chosen = (torch.optim.SGD, {"lr": 0.5, "params": list(trained[2].parameters())})
    optimizer = building.optimizer_for(wishes("sgd"), trained, groups.decay_groups(trained, 0.1), chosen)
    assert optimizer.param_groups[0]["params"] == list(trained[2].parameters())


def test_lomo_is_given_the_model_and_steps_in_the_backward_pass(every_package, monkeypatch):
    class Lomo(torch.optim.Optimizer):
        def __init__(self, given, lr):
            self.given = given
            super().__init__(given.parameters(), {"lr": lr})

        def fused_backward(self, loss, lr):
            """Step."""

    monkeypatch.setattr(sys.modules["lomo_optim"], "Lomo", Lomo)
    trained = model()
    optimizer = building.optimizer_for(wishes("lomo"), trained, [])
    assert optimizer.given is trained
    assert building.fused_backward_of(optimizer) is not None
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    optimizer.step()  # of Lomo itself it raises NotImplementedError
    schedule.step()
    with pytest.raises(ValueError, match="steps within the backward pass of a model. Give the model"):
        building.class_and_kwargs(wishes("lomo"))


def test_most_optimizers_leave_the_backward_pass_alone():
    assert building.fused_backward_of(torch.optim.SGD(model().parameters(), lr=0.1)) is None


def test_embeddings_stay_exact_under_8_bits(every_package, monkeypatch):
    told = []
    rules = SimpleNamespace(register_module_override=lambda *seen: told.append(seen))
    kinds = sys.modules["bitsandbytes.optim"]
    kinds.GlobalOptimManager = SimpleNamespace(get_instance=lambda: rules)
    monkeypatch.setattr(sys.modules["bitsandbytes"], "optim", kinds, raising=False)
    with_words = torch.nn.ModuleDict({"words": torch.nn.Embedding(5, 3), "out": torch.nn.Linear(3, 2)})
    for name in ("adamw_8bit", "paged_adamw_32bit", "sgd"):
        monkeypatch.setattr(kinds.AdamW, "__init__", lambda self, groups, **_: None)
        building.optimizer_for(wishes(name), with_words, groups.decay_groups(with_words, 0.1))
        assert told == [(with_words["words"], "weight", {"optim_bits": 32})]


@pytest.mark.parametrize(("steps", "expected"), [(5, 5), (0.1, 10.0), (0, 0)])
def test_schedule_free_is_told_its_warm_up_in_steps(steps, expected, every_package):
    _, kwargs = building.class_and_kwargs(wishes("schedule_free_adamw", warmup_steps=steps))
    assert kwargs["warmup_steps"] == expected


@pytest.mark.parametrize(
    ("installed", "module"), [("0.5.0", "torchao.prototype.low_bit_optim"), ("0.12.1+cpu", "torchao.optim")]
)
def test_torchao_is_found_where_its_version_keeps_it(installed, module, monkeypatch):
    monkeypatch.setattr(families.metadata, "version", lambda _: installed)
    with pytest.raises(families.MissingPackage) as found:
        building.class_and_kwargs(wishes("adamw_torch_4bit"))
    assert "torchao" in str(found.value)
    stand_in = ModuleType(module)
    stand_in.AdamW4bit = torch.optim.SGD
    monkeypatch.setitem(sys.modules, "torchao", ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.prototype", ModuleType("torchao.prototype"))
    monkeypatch.setitem(sys.modules, module, stand_in)
    assert building.class_and_kwargs(wishes("adamw_torch_4bit"))[0] is torch.optim.SGD


def test_adafactor_is_ours_with_a_rate_from_outside():
    assert building.class_and_kwargs(wishes("adafactor")) == (
        Adafactor,
        {"lr": 0.03, "scale_parameter": False, "relative_step": False},
    )


# ---- both doors

REFUSED = ["adalomo"]
REFUSED += [name for name in optimizers if name.endswith("layerwise")]
OF_BOTH_DOORS = [name for name in optimizers if name not in {*REFUSED, "pair", "lomo"}]


def run_of_x_train(name, **others):
    known = {"data_dir": "data", "save_dir": "run", "model": "bow", "loss": "cross_entropy", "embedding_dim": 4}
    known |= {"batch_size": 2, "max_epoch": 1, "eval_interval": 1, "major_metric": "acc"}
    known |= {"processor": "single", "max_len": 8, "optimizer": name, "learning_rate": 0.03, "weight_decay": 0.1}
    known |= {"adam_betas": [0.8, 0.95], "adam_eps": 1e-7, "optim_target_modules": "all-linear", **others}
    return resolve(known, "x-train", source="test", strict=False, paths=False)


def by_both_doors(name, **others):
    """Return two equal models, the one with the optimizer of x-train, the other with that of the Trainer."""
    first = model()
    second = copy.deepcopy(first)
    of_x_train = [{**group, "lr": 0.03, "name": "all"} for group in groups.decay_groups(first, 0.1)]
    ours = building.of_run(run_of_x_train(name, **others), of_x_train, model=first)
    wanted = wishes(name, **{"warmup_steps": 0, **others})  # that of x-train is its schedule's
    theirs = building.optimizer_for(wanted, second, groups.decay_groups(second, 0.1))
    return (first, ours), (second, theirs)


ALIKE = [name for name in OF_BOTH_DOORS if all(map(find_spec, NEEDED.get(name, ())))]
ALIKE = [name for name in ALIKE if not name.startswith(("galore", "apollo"))]  # the Trainer's decay nothing


@pytest.mark.parametrize("name", ALIKE)
def test_both_doors_move_the_weights_alike(name):
    both = by_both_doors(name)
    for trained, optimizer in both:
        torch.manual_seed(1)
        getattr(optimizer, "train", lambda: None)()
        for _ in range(8):
            optimizer.zero_grad()
            trained(torch.randn(5, 4)).square().sum().backward()
            optimizer.step()
    (first, ours), (second, theirs) = both
    assert type(ours) is type(theirs)
    assert ours.defaults == theirs.defaults
    assert all(torch.equal(mine, other) for mine, other in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first[0].weight, model()[0].weight)


@pytest.mark.parametrize("name", [name for name in OF_BOTH_DOORS if name in NEEDED])
def test_both_doors_make_what_a_package_brings_with_the_same_settings(name, every_package, monkeypatch):
    class Noted(torch.optim.SGD):
        def __init__(self, weights, lr, **settings):
            super().__init__(weights, lr)
            self.settings = settings

    rules = SimpleNamespace(get_instance=lambda: SimpleNamespace(register_module_override=None))
    monkeypatch.setattr(sys.modules["bitsandbytes.optim"], "GlobalOptimManager", rules, raising=False)
    monkeypatch.setattr(sys.modules["bitsandbytes"], "optim", sys.modules["bitsandbytes.optim"], raising=False)
    for source, names in CLASSES.items():
        for each in names:
            monkeypatch.setattr(sys.modules[source], each, type(each, (Noted,), {"__module__": source}))
    (first, ours), (second, theirs) = by_both_doors(name)
    assert (type(ours), ours.settings) == (type(theirs), theirs.settings)
    assert {group["lr"] for group in ours.param_groups} == {group["lr"] for group in theirs.param_groups} == {0.03}
    assert settings_of_weights(first, ours) == settings_of_weights(second, theirs)


def settings_of_weights(trained, optimizer):
    """Return the rank of every weight, where it is projected; and hold that each is stepped once."""
    names = {id(weight): name for name, weight in trained.named_parameters()}
    found = [(names[id(one)], group.get("rank")) for group in optimizer.param_groups for one in group["params"]]
    assert sorted(name for name, _ in found) == sorted(names.values())
    return dict(found)


def test_projected_weights_keep_the_rate_and_the_decay_of_their_group(every_package):
    first = model()
    in_groups = [
        {"params": [first[0].weight, first[0].bias], "lr": 0.03, "name": "layer"},
        {"params": list(first[2].parameters()), "lr": 0.3, "name": "top", "weight_decay": 0.0},
        {"params": list(first[1].parameters()), "lr": 0.03, "name": "norm", "weight_decay": 0.0},
    ]
    made = type("GaLoreAdamW", (torch.optim.SGD,), {})
    sys.modules["galore_torch"].GaLoreAdamW = made
    optimizer = building.of_run(run_of_x_train("galore_adamw", optim_args="rank=2"), in_groups, model=first)
    found = [(g["name"], g["lr"], g["weight_decay"], g.get("rank"), len(g["params"])) for g in optimizer.param_groups]
    assert found == [
        ("layer", 0.03, 0.1, None, 1),
        ("layer", 0.03, 0.1, 2, 1),
        ("top", 0.3, 0.0, None, 1),
        ("top", 0.3, 0.0, 2, 1),
        ("norm", 0.03, 0.0, None, 2),
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_x_train_refuses_what_its_engine_cannot_step_and_says_why(name):
    with pytest.raises(ConfigError, match=r"optimizer: .*(backward pass|state_dict).* Use "):
        run_of_x_train(name)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("sgd", {"optim_args": "momentum"}, "optim_args: 'momentum' is not a pair"),
        ("adamw_torch", {"adam_betas": [0.9]}, "adam_betas: is .0.9.. Use two numbers"),
    ],
)
def test_settings_that_make_no_sense_are_refused_when_a_config_is_checked(name, keys, message):
    with pytest.raises(ConfigError, match=message):
        run_of_x_train(name, **keys)


def test_a_value_that_makes_no_sense_is_blamed_on_its_key():
    with pytest.raises(ConfigError, match="optim_args: momentum is 'high'. Use a number"):
        building.of_run(run_of_x_train("sgd", optim_args="momentum=high"), groups.decay_groups(model(), 0.1))


def test_the_two_optimizers_of_a_pair_may_be_those_of_the_trainer():
    first = model()
    run = run_of_x_train("pair", major_optimizer="sgd", second_optimizer="rmsprop", second_learning_rate=0.5)
    low = [{"params": list(first[0].parameters()), "lr": 0.03, "name": "layers"}]
    pair = building.of_run(
        run, [*low, {"params": list(first[2].parameters()), "lr": 0.03, "name": "memory"}], model=first
    )
    assert [group["lr"] for group in pair.param_groups] == [0.03, 0.5]
    assert [type(one) for one in pair._both] == [torch.optim.SGD, torch.optim.RMSprop]


def test_a_trainer_refuses_a_pair_which_needs_the_groups_of_x_train():
    with pytest.raises(ValueError, match="'pair' is made for the groups of x-train's models"):
        building.class_and_kwargs(wishes("pair"))


def test_a_trainer_reads_further_keys_of_ours_from_optim_args():
    with pytest.raises(ValueError, match="optim_args: 'lamb' has no 'momentum'. It has: adam_betas"):
        building.class_and_kwargs(wishes("lamb", optim_args="momentum=0.9"))
    _, kwargs = building.class_and_kwargs(wishes("lamb", optim_args="adam_eps=0.5"))
    assert kwargs["parameters"].adam_eps == 0.5


def test_a_setting_that_an_optimizer_does_not_take_is_told(caplog):
    building.class_and_kwargs(wishes("adafactor", optim_args="rank=4"), model())
    assert "optim_args: has rank, which 'adafactor' does not take" in caplog.text
    caplog.clear()
    building.class_and_kwargs(wishes("sgd", optim_args="momentum=0.9, nesterov=true"), model())
    assert not caplog.text
    building.class_and_kwargs(wishes("sgd", optim_target_modules="all-linear"), model())
    assert "optim_target_modules: has no effect: 'sgd' trains all layers alike" in caplog.text
