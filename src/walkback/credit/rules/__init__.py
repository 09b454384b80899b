"""One file per credit rule; the file name is the method's name."""
