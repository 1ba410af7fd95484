"""The rooms of xdpx, lowest first. A room may import rooms on lower floors only."""

FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"utils"}),
    frozenset({"logger"}),
    frozenset({"config"}),
    frozenset({"loaders", "tokenizers", "models", "optimizers", "engines", "checkpoints", "reports"}),
    frozenset({"processors", "losses", "arguments"}),
    frozenset({"datasets", "dataloaders"}),
    frozenset({"tasks"}),
    frozenset({"inference", "trials"}),
    frozenset({"trainer", "deploy"}),
    frozenset({"runs"}),
    frozenset({"experiments", "tuning", "launch"}),
    frozenset({"commands"}),
    frozenset({"run", "serve", "main"}),
)
