"""Names of scopes in programs (`jax.named_scope`), by which they can be recognised in what JAX traced."""

MOVING_ROWS = "moving_rows"
"""Products that only move rows, as those of tokens with their places in experts: to the model these are lookups."""
