"""Training: one pure step for one model, and two drivers that run it for one or for many."""
