"""One file for each bench; its `run(options)` returns a result."""
