"""One file per data set; the file name is the data set's name."""
