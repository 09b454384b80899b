"""One file per network; the file name is the network's name."""
