"""Where the numbers of a training go while it runs. A tracker is an object that hears some of a training's events."""
