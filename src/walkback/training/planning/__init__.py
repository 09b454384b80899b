"""Which runs are trained together, in which process, and what it costs."""
