"""The catalog of lint rules: one file for each; the file says its code, what is wrong, why, and what to do instead."""
