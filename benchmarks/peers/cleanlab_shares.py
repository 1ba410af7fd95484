"""cleanlab on given probabilities: `python cleanlab_shares.py FILE.npz` prints the suspect rows."""

from __future__ import annotations

import json
import sys

import numpy as np
from cleanlab.filter import find_label_issues

with np.load(sys.argv[1]) as known:
    found = find_label_issues(known["labels"], known["shares"], return_indices_ranked_by="self_confidence")
print(json.dumps({"rows": found.tolist()}))
