"""Check whether the paths of a run exist where it is sent; what cannot be checked from here is listed in notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xdpx.config.catalogue import declarations_by_key, reachable_entries
from xdpx.config.faults import Fault
from xdpx.config.loading import Run
from xdpx.utils import io

WRITTEN = frozenset({"save_dir"})
"""Keys of folders that a run writes, which are lost if they are in a package."""

OWN_DISKS = ("/tmp/", "/var/tmp/", "/dev/shm/")


@dataclass
class FarSide:
    """What is known about the files of the far side.

    Attributes:
        shared: whether it sees the files of this machine under the same paths.
        root: the path of the working directory there; '' for the same as here. Of no use where it is `packed`.
        only_there: paths that exist there, and need not exist here.
        packed: whether a copy of the working directory is sent; what the job writes into it is lost.
        notes: messages about what cannot be checked from here; `faults` adds to them.
    """

    shared: bool
    root: str = ""
    only_there: tuple[str, ...] = ()
    packed: bool = False
    notes: list[str] = field(default_factory=list)

    def faults(self, runs: Iterable[Run]) -> list[Fault]:
        """Return a fault for each path that will not exist there, without duplicates."""
        found = [fault for run in runs for key, path in paths_of(run) for fault in self._about(run, key, path)]
        return list(dict.fromkeys(found))

    def _about(self, run: Run, key: str, path: str) -> Iterator[Fault]:
        if "://" in path:
            return
        if any(path == each or path.startswith(each.rstrip("/") + "/") for each in self.only_there):
            self._note(f"{key}: {path} is assumed to exist there; it was not checked.")
        elif path.startswith("/") and not self.shared:
            self._note(
                f"{key}: {path} is a path on this machine; whether it also exists there cannot be checked from here."
            )
        elif path.startswith("/"):
            if path.startswith(OWN_DISKS):
                self._note(f"{key}: {path} is on a disk that is usually local to each machine.")
        elif self.packed and key not in WRITTEN and io.exists(path):
            return
        elif not self.shared and (self.packed or not self.root):
            remedy = "Use a remote path or one on a volume there" + (
                "." if self.packed else ", or give this folder's path there with --far-root."
            )
            yield Fault(
                key, f"is '{path}', a relative path, but only code and configs are sent.", remedy, run.origins.get(key)
            )
        elif self.root and not self.shared:
            self._note(f"{key}: {io.join(self.root, path)} cannot be checked from here.")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def paths_of(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (key, path) for each value of a run that is declared as a path."""
    for key, declared in declarations_by_key(reachable_entries(run.command)).items():
        value = run.values.get(key)
        is_path = any(item.path for _, item in declared) or key.endswith("pretrained_model")
        if is_path and value:
            texts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            yield from ((key, text) for text in texts if isinstance(text, str))
