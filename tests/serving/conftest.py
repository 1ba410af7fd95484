"""A server on its own port, with the tiny run of the commands' tests."""

import threading
import time

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from tests.commands.conftest import FinishedRun
from xdpx.inference.session import load_run
from xdpx.serving.application import Ending, application
from xdpx.serving.batching import Sizes
from xdpx.serving.counting import Counts
from xdpx.serving.models import Model, Models
from xdpx.serving.running import Server, listening
from xdpx.serving.shapes import Limits


class Serving:
    """A server in a thread, at `address`."""

    def __init__(self, folders, *, token="", sizes=None, limits=None, open_run=load_run):
        counts, ending = Counts(), Ending()
        self.models = Models(
            folders, lambda name, folder: Model(name, folder, open_run, sizes or Sizes(), counts, cores=1)
        )
        self.server = Server(
            application(self.models, counts, token=token, limits=limits or Limits(), ending=ending), ending
        )
        self.ear = listening("127.0.0.1", [0])
        self.address = f"http://127.0.0.1:{self.ear.getsockname()[1]}"
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.ear]})

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a tiny run with two classes."""
    return FinishedRun(tmp_path_factory.mktemp("run")).run


@pytest.fixture(scope="module")
def serving(run):
    """Serve the run."""
    with Serving({"tiny": str(run)}) as server:
        yield server
