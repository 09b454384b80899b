"""Data sets, resident as arrays, and the order in which a run sees them."""
