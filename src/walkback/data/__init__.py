"""Data sets as arrays in memory, and the order in which training uses their samples."""
