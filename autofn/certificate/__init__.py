"""The certificate: how far generated code is from the truth, in units in the last place.

`sample` draws points and asks the oracle (mpmath) what is true there; `measure`, in a process that
imports torch, runs the package's PyTorch path and its CPU kernels at those points and over sweeps
(every value of the 16-bit types, a million of float32) against a float64 form that the points have
checked; `model` holds what was found and the bars.
"""
