"""Planning: which runs are trained together, in which process, and at what predicted cost."""
