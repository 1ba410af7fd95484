"""What all doors share: the life of a training, the loop, the callbacks around it, how metrics are accumulated."""
