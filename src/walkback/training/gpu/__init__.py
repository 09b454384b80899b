"""What makes training fast on a GPU: CUDA graphs, graph passes, kernels, fleets trained concurrently."""
