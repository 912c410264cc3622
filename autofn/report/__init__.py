"""`autofn report`: a formula, what is computed in its place, and how well, on a page to look at.

model       a page as data
collect     a definition to its page, in the formula's own process
curves      f, f' and f'' over a sensible range, kinks and singularities; the oracle's word
javascript  the same functions for the page's sliders
steps       from what was written to what is computed, each in simulated float32
accuracy    errors over the whole number line; `measure` is the process that computes
figures     what `autofn bench` measured, as bars
typeset     expressions in MathML
svg         charts
render      pages and their index as HTML, one file each, with nothing to load
picture     the curves by matplotlib: `autofn plot`
"""
