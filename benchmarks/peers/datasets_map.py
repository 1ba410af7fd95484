"""Tokenise a TSV with `datasets.map`, batched. Usage: datasets_map.py TABLE VOCAB MAX_LEN PROCESSES.

Prints {"seconds", "rows", "ids_sha256"}; the time is that of `map` alone, without loading the table.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time

import numpy as np
from datasets import Dataset
from transformers import BertTokenizerFast


def main() -> None:
    """Map, measure the time, and hash all ids in row order."""
    table, vocabulary, max_len, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    tokenizer = BertTokenizerFast(vocab=vocabulary, do_lower_case=True)
    with tempfile.TemporaryDirectory() as cache:
        rows = Dataset.from_csv(table, sep="\t", quoting=3, names=["text", "label"], cache_dir=cache)
        started = time.perf_counter()
        mapped = rows.map(
            lambda batch: tokenizer(batch["text"], truncation=True, max_length=max_len),
            batched=True,
            num_proc=processes,
            remove_columns=["text"],
        )
        seconds = time.perf_counter() - started
        digest = hashlib.sha256()
        for batch in mapped.iter(batch_size=10_000):
            digest.update(np.concatenate([np.asarray(ids, np.int32) for ids in batch["input_ids"]]).tobytes())
        print(json.dumps({"seconds": seconds, "rows": len(mapped), "ids_sha256": digest.hexdigest()}))


if __name__ == "__main__":
    main()
