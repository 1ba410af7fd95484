"""When to train, score, save and stop; the engine below decides how, the commands above decide what."""
