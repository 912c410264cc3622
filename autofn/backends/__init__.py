"""Backends: a Program's operations in the text of a language."""
