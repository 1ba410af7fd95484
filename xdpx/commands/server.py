"""`x-serve SAVE_DIR`: answer requests over HTTP with trained models.

Usage: x-serve SAVE_DIR [NAME=SAVE_DIR ...] [--port 6490] [--open] [--host HOST --token TOKEN]
               [--engine pytorch|spmd] [--exact] [--tokens 512] [--rows 64] [--waiting 2048] [--threads 2]

A SAVE_DIR is the folder of a run, of which the best checkpoint is served and replaced when training writes a better
one; or an export, until another is written in its place. POST /predict {"text": ...}, /predict_batch {"texts": [...]}
or {"pairs": [[...], ...]}; with several models /models/NAME/predict; /docs documents all, and / is a page to try them.
--tokens and --rows limit a batch, --waiting the rows in the queue (beyond it the answer is 429), --threads sets how
many batches are computed in parallel, each by a copy of the model. With --exact the bits of a row do not depend on the
batch, as with `x-pred exact=true`.

Only this machine can connect, unless --host names another address. Then a token is required, which clients send as
`Authorization: Bearer TOKEN`; `--token new` makes one, and $XDPX_SERVE_TOKEN keeps it out of the list of processes.
SIGTERM or Ctrl-C ends it after all requests received have been answered.
"""

from __future__ import annotations

import argparse
import os
import webbrowser
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec

from xdpx.commands.listening import add_flags, address_of, asked_of, faults_of, token_of
from xdpx.commands.outcomes import announce
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import collecting, io

FLAGS = (
    "--port", "--open", "--host", "--token", "--engine", "--exact", "--tokens", "--rows", "--waiting", "--threads",
    "--help",
)  # fmt: skip
PORT, TRIED_PORTS = 6490, 20
TOKEN_VARIABLE = "XDPX_SERVE_TOKEN"
PACKAGES = ("fastapi", "uvicorn", "prometheus_client")


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C. Return the exit code."""
    asked = asked_of(argv, _parser(), __doc__)
    if isinstance(asked, int):
        return asked
    token = token_of(asked.token, TOKEN_VARIABLE)
    folders = [(_name(word), _folder(word)) for word in asked.models]
    faults = [*_faults(folders), *faults_of(asked.host, token, others="use your models")]
    if faults:
        raise ConfigError("x-serve", faults)
    _serve(asked, dict(folders), token)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="x-serve", allow_abbrev=False)
    parser.add_argument("models", nargs="+", metavar="[NAME=]SAVE_DIR", help="a run or an export")
    add_flags(parser, PORT)
    parser.add_argument("--engine", choices=("pytorch", "spmd"), help="where to compute; by default as in training")
    parser.add_argument("--exact", action="store_true", help="bit-identical results for a row in every batch")
    parser.add_argument("--tokens", type=_positive, default=512, help="of a batch at most (512)")
    parser.add_argument("--rows", type=_positive, default=64, help="of a batch at most (64)")
    parser.add_argument("--waiting", type=_positive, default=2048, help="rows that may wait (2048)")
    parser.add_argument("--threads", type=_positive, help="batches computed side by side (on a CPU 2)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"is '{text}'; use a whole number from 1")
    return int(text)


def _folder(word: str) -> str:
    name, equals, folder = word.partition("=")
    return folder if equals and "/" not in name else word


def _name(word: str) -> str:
    name, equals, _ = word.partition("=")
    return name if equals and "/" not in name else io.name(word.rstrip("/"))


def _faults(folders: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        yield Fault(
            "x-serve", f"needs {', '.join(missing)}, which this environment lacks.", "Run: pip install 'xdpx[serve]'."
        )
    names = [name for name, _ in folders]
    for name, folder in folders:
        if not io.isdir(folder):
            yield Fault("SAVE_DIR", f"'{folder}' is not a folder.", "Name the folder of a run, or of an export.")
        if not name:
            yield Fault(
                "SAVE_DIR", f"'{folder}' has no name before its '='.", "Write NAME=SAVE_DIR, or SAVE_DIR alone."
            )
        if names.count(name) > 1:
            yield Fault("SAVE_DIR", f"'{name}' names several models.", "Write NAME=SAVE_DIR for each.")
            return


def _serve(asked: argparse.Namespace, folders: dict[str, str], token: str) -> None:
    from xdpx.inference.session import load_run
    from xdpx.serving.application import Ending, application
    from xdpx.serving.batching import Sizes
    from xdpx.serving.counting import Counts
    from xdpx.serving.models import Model, Models
    from xdpx.serving.running import Server, listening
    from xdpx.serving.shapes import Limits

    # JAX spreads a batch over the cores by itself; exact rows depend on the number of threads, which is that of x-pred.
    threads = asked.threads or (1 if asked.engine == "spmd" or asked.exact else None)
    sizes = Sizes(asked.tokens, asked.rows, asked.waiting, threads)
    counts, cores = Counts(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ports = [asked.port] if asked.port is not None else list(range(PORT, PORT + TRIED_PORTS))
    open_run = partial(load_run, engine=asked.engine, exact=asked.exact)
    with listening(asked.host, ports) as ear:
        models = Models(folders, lambda name, folder: Model(name, folder, open_run, sizes, counts, cores=cores))
        ending = Ending()
        server = Server(application(models, counts, token=token, limits=Limits(), ending=ending), ending)
        address = address_of(asked.host, ear.getsockname()[1], token)
        announce(f"{', '.join(folders)}: {address}    (Ctrl-C stops it)")
        if asked.open:
            webbrowser.open(address)
        collecting.as_usual()  # no update ever comes
        server.run(sockets=[ear])
