// needs: double_double
AUTOFN_FN double rounded(DoubleDouble a) { return a.high; }
