"""`x-tune`: a search over resumable runs. `xdpx.search` decides what to train; this package trains it.

tune.hjson ─► plan (everything checked) ─► driver ─► Order ─► stages ─► executor (processes, Ray) ─► outcome
└─ journal, live table, results.tsv, figures, best.hjson
"""
