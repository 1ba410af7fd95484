"""The methods of a Trainer that bring its model to the Hugging Face hub."""

from __future__ import annotations

from typing import Any

from xdpx.checkpoints.hub import Hub
from xdpx.checkpoints.model_card import ModelCard
from xdpx.utils import io


class PushesToHub:
    """What a Trainer needs of itself: where it saves, what it has logged, and whom it tells."""

    args: Any
    state: Any
    control: Any
    world: Any
    callback_handler: Any
    processing_class: Any
    hub: Hub | None = None
    hub_model_id: str | None = None

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model; a Trainer says how."""
        raise NotImplementedError

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Make the repository on the Hub that `args` name, unless it is there."""
        args = self.args
        if not self.world.is_main:
            return
        self.hub = Hub(
            args.hub_model_id or io.name(io.abspath(args.output_dir)), token=token or args.hub_token,
            private=args.hub_private_repo if private is None else private, revision=args.hub_revision,
            strategy=str(args.hub_strategy), always_push=args.hub_always_push,
        )  # fmt: skip
        self.hub_model_id = self.hub.open()

    def create_model_card(self, **facts: Any) -> None:
        """Write `README.md` into the output folder: what was trained, how, and with what result."""
        if self.world.is_main:
            facts.setdefault("model_name", io.name(io.abspath(self.args.output_dir)))
            arguments = self.args.to_dict()
            ModelCard(**facts, arguments=arguments, log_history=self.state.log_history).write(self.args.output_dir)

    def push_to_hub(
        self, commit_message: str = "End of training", blocking: bool = True, token: str | None = None,
        revision: str | None = None, **facts: Any,
    ) -> Any:  # fmt: skip
        """Save the model with its card and upload both; on all processes. `facts` are those of `create_model_card`."""
        if self.hub is None:
            self.init_hf_repo(token, facts.pop("private", None))
        self.save_model(_internal_call=True)
        if self.hub is None:
            return None
        self.control = self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.create_model_card(**facts)
        options = {name: value for name, value in (("token", token), ("revision", revision)) if value is not None}
        return self.hub.push(self.args.output_dir, commit_message, blocking=blocking, **options)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self.hub is None or not self.world.is_main:
            return
        unit = "step" if self.args.save_strategy == "steps" else "epoch"
        number = self.state.global_step if unit == "step" else int(self.state.epoch)
        message = f"Training in progress, {unit} {number}"
        self.control = self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.hub.push_checkpoint(
            checkpoint_folder, self.args.output_dir, message, processing_class=self.processing_class
        )

    def _finish_current_push(self) -> None:
        if self.hub is not None:
            self.hub.wait()
