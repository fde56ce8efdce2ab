/* decay_E_1: the user's lines */
static void decay_E_1(int64_t *restrict p0)
{
    p0[0] = 0;
}

/* decay_scan: the user's lines */
static void decay_scan(int64_t *restrict p0, double *restrict last, const int64_t *restrict p2,
    const double *restrict x, const double *restrict rate)
{
    const int64_t v1 = p2[0];
    const double v2 = x[0];
    const double v3 = x[1];
    const double v4 = rate[0];
    int64_t v5 = v1;
    double v6 = v2;
    double v7 = v3;
    for (int64_t i = 0; i < 50; ++i) {
        const double v8 = -v4;
        v5 = (int64_t)((uint64_t)v5 + (uint64_t)1);
        v6 = UOPC_FMA(v8, v6, v6);
        v7 = UOPC_FMA(v8, v7, v7);
    }
    p0[0] = v5;
    last[0] = v6;
    last[1] = v7;
}

