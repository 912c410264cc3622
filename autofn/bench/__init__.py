"""`autofn bench`: generated ops against what a user would pick instead.

sketch    what a formula is to a benchmark, drawn in the formula's own process; without torch
native    PyTorch's own operator for formulas of the library that have one
subjects  the contenders of one formula: generated, eager, native, compile, and the limit
measure   all of them in turn, in one loop
memory    what autograd keeps between forward and backward
records   the results: data, ratios, JSON
run       one formula in one setting, from the contenders to its records
tables, plot  records for people
"""
