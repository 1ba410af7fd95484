"""Jobs for the tests of launch backends."""

from __future__ import annotations

from xdpx.launch.submission import Job, JobStep, Resources

NAME = "cls-20261123-064100"


def job_of(*steps: tuple[str, ...], runs: int = 1, **asked: object) -> Job:
    """Return a job of a project in /data/work."""
    words = steps or (("x-train", "train.hjson"),)
    folder = f"/data/work/submissions/{NAME}"
    found = tuple(JobStep(each) for each in words)
    return Job(NAME, found, Resources.model_validate(asked), "/data/work", folder, environment={}, runs=runs)
