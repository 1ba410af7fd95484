"""Opening a store of ten million samples."""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.report import Row, spread
from benchmarks.work import WORK

SAMPLES = 10_000_000
TOKENS = 12
RUNS = 9
