"""Config families shipped with XDPX, found by names such as `families/cls_cnn` in a package or a checkout."""

from __future__ import annotations

from pathlib import Path

from xdpx.utils import io

PREFIX = "families/"
_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "families", _PACKAGE.parent / "examples" / "families")
"""Where families are: inside an installed package, or in a checkout."""


def folder() -> str:
    """Return the folder of the families; '' if neither the package nor a checkout has it."""
    return next((str(path) for path in _FOLDERS if path.is_dir()), "")


def family_path(path: str, suffix: str = ".hjson") -> str:
    """Return the file of the family that `path` names, such as `families/cls_cnn`; '' if it names none."""
    if not path.startswith(PREFIX):
        return ""
    name = path.removeprefix(PREFIX).removesuffix(suffix)
    found = Path(folder(), name + suffix)
    return str(found) if name and "/" not in name and found.is_file() else ""


def families() -> dict[str, str]:
    """Return {`families/<name>`: its purpose in one line}, sorted by name."""
    files = sorted(Path(folder()).glob("*.hjson")) if folder() else []
    return {PREFIX + path.stem: _purpose(str(path)) for path in files}


def _purpose(path: str) -> str:
    """Return the first sentence of the comment at the top of a config."""
    comment: list[str] = []
    with io.open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("//"):
                break
            comment.append(line.removeprefix("//").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".")
