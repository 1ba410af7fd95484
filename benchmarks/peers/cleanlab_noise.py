"""cleanlab on a table of texts and labels: `python cleanlab_noise.py TABLE ANALYZER` prints the suspect rows.

The model is the usual choice without embeddings: TF-IDF of words (or characters) and bigrams, logistic regression,
five folds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from cleanlab.filter import find_label_issues
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

rows = [line.rsplit("\t", 1) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
texts, names = [text for text, _ in rows], sorted({label for _, label in rows})
labels = np.array([names.index(label) for _, label in rows])
start = time.perf_counter()
pattern = {"token_pattern": r"(?u)\b\w+\b"} if sys.argv[2] == "word" else {}
vectors = TfidfVectorizer(analyzer=sys.argv[2], ngram_range=(1, 2), min_df=2, **pattern).fit_transform(texts)
shares = cross_val_predict(LogisticRegression(max_iter=1000), vectors, labels, cv=5, method="predict_proba")
found = find_label_issues(labels, shares, return_indices_ranked_by="self_confidence")
print(json.dumps({"seconds": time.perf_counter() - start, "rows": found.tolist()}))
