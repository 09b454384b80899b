"""Fast training on a GPU: CUDA graphs, graph passes, kernels and concurrent fleets."""
