"""The optimizers of experiments, with the names and defaults of Pax."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from xdpx.config.faults import refusal
from xdpx.config.hparams import build
from xdpx.optimizers.spmd.adafactor import ShardedAdafactor
from xdpx.optimizers.spmd.base_optimizer import BaseOptimizer
from xdpx.optimizers.spmd.transforms import Transformation, chain, clip_by_size, descend
from xdpx.optimizers.spmd.trees import name_of

__all__ = [
    "Accumulator", "Adafactor", "Adagrad", "Adam", "BaseOptimizer", "DistributedShampoo", "Lamb", "Lars", "Lion",
    "Muon", "OptaxOptimizer", "Sgd", "ShardedAdafactor", "ShardedAdagrad", "ShardedSgd", "ShardedStaticAccumulator",
]  # fmt: skip


REGULARISATION = (
    "weight_decay", "l1_regularizer_weight", "l2_regularizer_weight", "weight_decay_exclusion", "skip_lp_1d_vectors",
)  # fmt: skip
"""Fields of the regularisation of weights."""


class Adam(BaseOptimizer):
    """Adam; with `weight_decay`, AdamW.

    Source: Kingma and Ba, Adam, algorithm 1; updates are clipped as in Adafactor, section 6.
    """

    class HParams(BaseOptimizer.HParams):
        """Fields of Adam.

        Attributes:
            beta1: decay of the first moment.
            beta2: decay of the second moment.
            epsilon: added to the root of the second moment.
            epsilon_root: added to the second moment, under the root.
            clip_threshold: maximum root mean square of a weight's update, before the learning rate; <= 0: no clipping.
        """

        beta1: float = 0.9
        beta2: float = 0.999
        epsilon: float = 1e-6
        epsilon_root: float = 0.0
        clip_threshold: float = 1.0

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        wanted = self.hparams
        moments = optax.scale_by_adam(wanted.beta1, wanted.beta2, wanted.epsilon, wanted.epsilon_root)
        clip = [clip_by_size(wanted.clip_threshold)] if wanted.clip_threshold > 0 else []
        return chain(moments, *clip, descend())


class Lion(BaseOptimizer):
    """The sign of an average of gradients. Source: Chen et al., Symbolic discovery of optimization algorithms."""

    class HParams(BaseOptimizer.HParams):
        """Fields of Lion.

        Attributes:
            beta1: share of the average in the direction of a step.
            beta2: decay of the average.
        """

        beta1: float = 0.9
        beta2: float = 0.99

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        return chain(optax.scale_by_lion(self.hparams.beta1, self.hparams.beta2), descend())


class Sgd(BaseOptimizer):
    """Stochastic gradient descent."""

    class HParams(BaseOptimizer.HParams):
        """Fields of gradient descent.

        Attributes:
            momentum: decay of the momentum; None: no momentum.
            nesterov: use Nesterov momentum.
        """

        momentum: float | None = None
        nesterov: bool = False

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        wanted = self.hparams
        trace = [] if wanted.momentum is None else [optax.trace(wanted.momentum, wanted.nesterov)]
        return chain(*trace, descend())


class Lamb(BaseOptimizer):
    """Adam with steps proportional to each weight's norm; weight decay is part of the direction.

    Source: You et al., Large batch optimization for deep learning, algorithm 2.
    """

    class HParams(BaseOptimizer.HParams):
        """Fields of Lamb.

        Attributes:
            beta1: decay of the first moment.
            beta2: decay of the second moment.
            epsilon: added to the root of the second moment.
            epsilon_root: added to the second moment, under the root.
        """

        beta1: float = 0.9
        beta2: float = 0.999
        epsilon: float = 1e-6
        epsilon_root: float = 0.0

    def decayed(self) -> list[Any]:
        """Return the transformations, with weight decay before the trust ratio, so that it is part of the norm."""
        wanted = self.hparams
        return [
            optax.scale_by_adam(wanted.beta1, wanted.beta2, wanted.epsilon, wanted.epsilon_root),
            optax.add_decayed_weights(wanted.weight_decay, mask=lambda params: regularised_mask(self, params)),
            optax.scale_by_trust_ratio(),
            descend(),
        ]


class Lars(BaseOptimizer):
    """SGD with momentum and steps scaled by each weight's norm over that of its gradient.

    Source: You et al., Large batch training of convolutional networks, algorithm 1.
    """

    class HParams(BaseOptimizer.HParams):
        """Fields of Lars.

        Attributes:
            trust_coefficient: norm of a step as a share of the weight's norm.
            epsilon: added to the gradient's norm.
            momentum: decay of the momentum.
            nesterov: use Nesterov momentum.
        """

        trust_coefficient: float = 0.001
        epsilon: float = 0.0
        momentum: float = 0.9
        nesterov: bool = False

    def decayed(self) -> list[Any]:
        """Return the transformations, with weight decay before the trust ratio, so that it is part of the norm."""
        wanted = self.hparams
        return [
            optax.add_decayed_weights(wanted.weight_decay, mask=lambda params: regularised_mask(self, params)),
            optax.scale_by_trust_ratio(trust_coefficient=wanted.trust_coefficient, eps=wanted.epsilon),
            descend(),
            optax.trace(wanted.momentum, wanted.nesterov),
        ]


class Adagrad(BaseOptimizer):
    """Gradients over the root of the sum of their squares. Source: Duchi et al., Adaptive subgradient methods."""

    class HParams(BaseOptimizer.HParams):
        """Fields of Adagrad.

        Attributes:
            initial_accumulator_value: initial value of the sums.
            epsilon: added to the sums.
        """

        initial_accumulator_value: float = 0.1
        epsilon: float = 1e-10

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        wanted = self.hparams
        return chain(optax.scale_by_rss(wanted.initial_accumulator_value, wanted.epsilon), descend())


class Adafactor(BaseOptimizer):
    """Adafactor of optax. Source: Shazeer and Stern, Adafactor."""

    class HParams(BaseOptimizer.HParams):
        """Fields of Adafactor.

        Attributes:
            min_dim_size_to_factor: minimum size of the two longest axes of a factored weight.
            decay_rate: exponent of the decay of second moments.
            decay_offset: number of first steps that the decay does not count.
            multiply_by_parameter_scale: multiply steps by the root mean square of the weight.
            clipping_threshold: maximum root mean square of a weight's update; None: no clipping.
            momentum: decay of the average of steps; None: no momentum.
            epsilon: added to squared gradients.
            factored: store row and column means of the squared gradients instead of all of them.
        """

        min_dim_size_to_factor: int = 128
        decay_rate: float = 0.8
        decay_offset: int = 0
        multiply_by_parameter_scale: bool = True
        clipping_threshold: float | None = 1.0
        momentum: float | None = None
        epsilon: float = 1e-30
        factored: bool = True

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        wanted = self.hparams
        moments = optax.scale_by_factored_rms(
            wanted.factored, wanted.decay_rate, wanted.decay_offset, wanted.min_dim_size_to_factor, wanted.epsilon
        )
        clip = [] if wanted.clipping_threshold is None else [optax.clip_by_block_rms(wanted.clipping_threshold)]
        scale = [optax.scale_by_param_block_rms()] if wanted.multiply_by_parameter_scale else []
        average = [] if wanted.momentum is None else [optax.ema(wanted.momentum, debias=False)]
        return chain(moments, *clip, descend(), *scale, *average)


class Muon(BaseOptimizer):
    """Muon: orthogonalised momentum for weights with two axes; Adam for all others.

    Source: Jordan et al., Muon: an optimizer for hidden layers in neural networks.
    """

    class HParams(BaseOptimizer.HParams):
        """Fields of Muon.

        Attributes:
            beta: decay of the momentum.
            beta1: Adam's decay of the first moment, for all other weights.
            beta2: Adam's decay of the second moment.
            epsilon: added to the root of the second moment in Adam.
            nesterov: use Nesterov momentum.
            ns_steps: number of Newton-Schulz iterations.
        """

        beta: float = 0.95
        beta1: float = 0.9
        beta2: float = 0.999
        epsilon: float = 1e-8
        nesterov: bool = True
        ns_steps: int = 5

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        wanted = self.hparams
        muon = optax.contrib.muon(
            1.0, beta=wanted.beta, nesterov=wanted.nesterov, ns_steps=wanted.ns_steps, adam_b1=wanted.beta1,
            adam_b2=wanted.beta2, eps=wanted.epsilon,
        )  # fmt: skip
        return chain(muon, optax.scale(-1.0), descend())


class OptaxOptimizer(BaseOptimizer):
    """Any optax transformation, which has its own learning rate."""

    moves_by_rate: ClassVar[bool] = False

    class HParams(BaseOptimizer.HParams):
        """Fields of a transformation.

        Attributes:
            grad_tx: the transformation of gradients to steps. `learning_rate` and `lr_schedule` only
                multiply `weight_decay`, and are logged.
                One that needs the loss, such as `reduce_on_plateau`, is refused.
        """

        grad_tx: Any = None

    def joins_weights(self) -> bool:
        """Return whether the transformation joins weights; it is tried."""
        return self.hparams.grad_tx is not None and joins_weights(self.hparams.grad_tx)

    def core(self) -> Transformation:
        """Return the transformation."""
        if self.hparams.grad_tx is None:
            raise refusal("OptaxOptimizer.grad_tx", "is None.", "Give an optax transformation, e.g. optax.adamw(1e-3).")
        return chain(_refusing(self.hparams.grad_tx))


class DistributedShampoo(BaseOptimizer):
    """Shampoo; requires the package optax_shampoo, and a JAX that still has `jax.tree_map`.

    Source: Anil et al., arXiv 2002.09018.
    """

    class HParams(BaseOptimizer.HParams):
        """Fields of Shampoo.

        Attributes:
            block_size: size of an axis above which it is preconditioned in blocks.
            beta1: decay of the first moment.
            beta2: decay of the statistics.
            options: further keywords of `optax_shampoo.distributed_shampoo.distributed_shampoo`.
        """

        block_size: int = 1024
        beta1: float = 0.9
        beta2: float = 0.999
        options: dict[str, Any] | None = None

    def core(self) -> Transformation:
        """Return the transformation of gradients to steps."""
        try:
            from optax_shampoo.distributed_shampoo import distributed_shampoo as shampoo
        except ImportError as error:
            text = (
                "DistributedShampoo needs the package optax_shampoo, which is not installed. Install it, or use Muon."
            )
            raise ModuleNotFoundError(text) from error
        if not hasattr(jax, "tree_map"):
            problem = f"is not available: optax_shampoo calls jax.tree_map, which JAX {jax.__version__} has no longer."
            raise refusal("DistributedShampoo", problem, "Use Muon, or an environment with an older JAX.")
        wanted = self.hparams
        rule = shampoo(
            1.0, wanted.block_size, beta1=wanted.beta1, beta2=wanted.beta2, batch_axis_name=None,
            **(wanted.options or {}),
        )  # fmt: skip
        return chain(rule, optax.scale(-1.0), descend())


class Accumulator(BaseOptimizer):
    """Gradient accumulation: takes a step with the mean of several consecutive gradients."""

    class HParams(BaseOptimizer.HParams):
        """Fields of the accumulation.

        Attributes:
            optimizer_tpl: template of the wrapped optimizer. Its learning rate, schedule, decay and penalties are used,
                but the averaging of weights and the clipping limits of the accumulator, which apply to each gradient:
                an average decays by ema_decay ** num_sub_batches per step.
            num_sub_batches: gradients per step.
        """

        optimizer_tpl: Any = None
        num_sub_batches: int = 1

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        if hparams.optimizer_tpl is None or hparams.num_sub_batches < 1:
            raise refusal("Accumulator", "give optimizer_tpl, and at least 1 for num_sub_batches.")
        own = [name for name in REGULARISATION if getattr(hparams, name)]
        if own:
            problem = f"{' and '.join(own)}: belongs to the rule inside."
            raise refusal("Accumulator", problem, "Set it in optimizer_tpl.")
        self.inner: BaseOptimizer = build(hparams.optimizer_tpl)

    def get_learning_rate(self, step: Any) -> Any:
        """Return the learning rate of the wrapped optimizer, which counts its own steps."""
        return self.inner.get_learning_rate(step // self.hparams.num_sub_batches)

    def rule(self) -> Transformation:
        """Return the wrapped optimizer with penalties and decay, applied once per `num_sub_batches` gradients."""
        several = optax.MultiSteps(self.inner.rule(), every_k_schedule=self.hparams.num_sub_batches)
        return Transformation(several.init, several.update)


def joins_weights(rule: optax.GradientTransformation) -> bool:
    """Return whether the step of a weight depends on the gradients of others, as with `optax.clip_by_global_norm`.

    It is tried with two weights; a transformation that wants those of a certain model counts as one that does not.
    """
    weights = {name: jnp.ones(2) for name in ("one", "other")}

    def step(size: float) -> Any:
        gradients = {"one": jnp.ones(2), "other": jnp.full(2, size)}
        return optax.with_extra_args_support(rule).update(gradients, rule.init(weights), weights)[0]["one"]

    try:
        with jax.ensure_compile_time_eval():
            return not bool(jnp.allclose(step(1.0), step(1000.0)))
    except Exception:
        return False


def _refusing(rule: optax.GradientTransformation) -> Transformation:
    """Return `rule`, which raises ConfigError if it wants to know more of an update than gradients and weights."""
    given = optax.with_extra_args_support(rule)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        try:
            return given.update(updates, state, params, **extra)
        except TypeError as error:
            if "required keyword-only argument" not in str(error):
                raise
            problem = f"wants more than gradients and weights: {error}."
            remedy = (
                "Leave out transformations that follow the loss (reduce_on_plateau, polyak_sgd, lbfgs); "
                "for a rate that falls, use a schedule."
            )
            raise refusal("OptaxOptimizer.grad_tx", problem, remedy) from error

    return Transformation(given.init, update)


def regularised_mask(optimizer: BaseOptimizer, params: Any) -> Any:
    """Return a pytree of bools: whether each weight is decayed."""
    return jax.tree_util.tree_map_with_path(
        lambda path, weight: optimizer.is_regularised(name_of(path), weight), params
    )


ShardedSgd, ShardedAdagrad, ShardedStaticAccumulator = Sgd, Adagrad, Accumulator
"""Names in Pax of optimizers with sharded states; here all states are sharded."""
