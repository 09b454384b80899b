"""Measure a model: one frozen pass in its own precision and one in float64, and the norms and cosines of both."""
