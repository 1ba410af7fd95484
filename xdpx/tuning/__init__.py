"""`x-tune`: a search over resumable runs. Who is tried and who goes on, `xdpx.search` decides; here it is trained.

tune.hjson ─► plan (everything checked) ─► driver ─► Order ─► stages ─► executor (processes, Ray) ─► outcome
└─ journal, live table, results.tsv, figures, best.hjson
"""
