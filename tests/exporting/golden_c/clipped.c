/* clipped_E_9: the user's lines */
static void clipped_E_9(double *restrict y, const double *restrict a, const double *restrict x)
{
    const double v1 = a[0];
    for (int64_t i = 0; i < 9; ++i) {
        const double v2 = UOPC_FMA(v1, x[i], 1.0);
        const double v3 = 0.0 >= v2 ? 0.0 : v2;
        y[i] = v3 != v3 ? v3 : (v3 < v1 ? v3 : v1);
    }
}

