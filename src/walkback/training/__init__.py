"""Training: a pure step of one model, a driver that runs it for one model, and one that runs it for many."""
