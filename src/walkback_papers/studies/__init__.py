"""One file per study; the file name is the study's name, with hyphens for underscores."""
