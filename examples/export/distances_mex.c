/* For Octave and MATLAB: mkoctfile --mex distances_mex.c -IOUT OUT/libdistances.a
   [lengths, total] = distances_mex(x), where x has three rows and a column for each point: matrices
   are stored by columns there. */
#include "libdistances.h"

#include "mex.h"

void mexFunction(int count_out, mxArray *out[], int count_in, const mxArray *in[])
{
    static double work[DISTANCES_WORK_BYTES / 8 + 1];
    if (count_in != 1 || !mxIsDouble(in[0]) || mxGetM(in[0]) != 3 || count_out > 2) {
        mexErrMsgTxt("distances: a matrix of doubles with three rows expected");
    }
    const mwSize points = mxGetN(in[0]);
    mxArray *lengths = mxCreateDoubleMatrix(1, points, mxREAL);
    mxArray *total = mxCreateDoubleMatrix(1, 1, mxREAL);
    if (distances(mxGetPr(in[0]), mxGetPr(lengths), mxGetPr(total), (int64_t)points, work) != 0) {
        mexErrMsgTxt("distances: the number of points is out of its bounds");
    }
    out[0] = lengths;
    if (count_out > 1) {
        out[1] = total;
    }
}
