"""Measuring a model: one frozen pass in its own precision, one in float64, and the numbers taken of them."""
