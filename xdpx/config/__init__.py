"""Config files: read, inherit, expand loops, substitute, check, print. The result is one set of parameters per run."""
