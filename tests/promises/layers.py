"""The rooms of xdpx, lowest first. A room may only import rooms on lower floors."""

FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"utils"}),
    frozenset({"logger"}),
    frozenset({"config"}),
    frozenset(
        {"loaders", "tokenizers", "models", "optimizers", "engines", "checkpoints", "reports", "metrics", "search"}
    ),
    frozenset({"processors", "losses"}),
    frozenset({"datasets"}),
    frozenset({"tasks"}),
    frozenset({"training", "inference"}),
    frozenset({"trainer"}),
    frozenset({"runs", "experiments"}),
    frozenset({"tuning", "launch", "board", "serving"}),
    frozenset({"commands"}),
    frozenset({"run", "serve", "main"}),
)
