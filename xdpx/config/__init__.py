"""Turn text into one validated, typed set of parameters per run: read, inherit, loop, substitute, check, print."""
