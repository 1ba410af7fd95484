"""A user's function as a tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Calling:
    """Calls `function(values, step)` with a copy of everything that is logged, on the first process of all."""

    def __init__(self, function: Callable[[dict[str, Any], int], object]) -> None:
        self.function = function

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """Hand over what was logged."""
        if state.is_world_process_zero:
            self.function(dict(logs), state.global_step)
