"""The catalog of lint rules, one file each, with its code, what is wrong, why, and what to do instead."""
