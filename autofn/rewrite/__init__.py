"""Rewriting: the table of rules, and the search for the program that computes best.

`rules` is the table, `match` applies it; `candidates` and `forms` give the programs to choose from,
`simulate` their errors in float32 arithmetic that no machine does, `search` chooses.
"""
