"""The catalog of pitfalls, one file each; its docstring has the wrong way, the right way and the size of the error."""
