"""Networks of flax modules with named axes: layers, models over them, decoding, and exchange of weights."""
