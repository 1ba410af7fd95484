"""The places that run jobs, one file each."""

from xdpx.launch.backends.dlc import Dlc
from xdpx.launch.backends.kubernetes import Kubernetes
from xdpx.launch.backends.local import Local
from xdpx.launch.backends.pai import Pai
from xdpx.launch.backends.ray import Ray
from xdpx.launch.backends.skypilot import SkyPilot
from xdpx.launch.backends.slurm import Slurm
from xdpx.launch.backends.ssh import Ssh
from xdpx.launch.submission import Backend

BACKENDS: dict[str, Backend] = {
    "local": Local(), "slurm": Slurm(), "ray": Ray(), "k8s": Kubernetes(), "sky": SkyPilot(), "pai": Pai(),
    "dlc": Dlc(), "ssh": Ssh("ssh", usual_gpus=True), "tpu": Ssh("tpu", usual_gpus=False),
}  # fmt: skip
"""{value of --on: the place}"""
