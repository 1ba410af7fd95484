"""Networks of flax modules with named axes: layers, models, decoding, and exchange of weights."""
