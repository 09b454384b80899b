"""The catalog of pitfalls: one file for each; its docstring says what is wrong, what is right, and by how much."""
