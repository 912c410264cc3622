// needs: normcdf
