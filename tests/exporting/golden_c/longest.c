/* longest_r_64: the user's lines */
static void longest_r_64(double *restrict longest, const double *restrict x)
{
    f64x4 v1 = uopc_all_f64x4(-UOPC_INF);
    f64x4 v2 = uopc_all_f64x4(-UOPC_INF);
    f64x4 v3 = uopc_all_f64x4(-UOPC_INF);
    f64x4 v4 = uopc_all_f64x4(-UOPC_INF);
    for (int64_t i = 0; i < 4; ++i) {
        const int64_t v5 = i * 16;
        const f64x4 v6 = (f64x4)((u64x4)UOPC_LOAD(f64x4, x[v5]) & UINT64_C(9223372036854775807));
        const f64x4 v7 = (f64x4)((u64x4)UOPC_LOAD(f64x4, x[v5 + 4]) &
            UINT64_C(9223372036854775807));
        const f64x4 v8 = (f64x4)((u64x4)UOPC_LOAD(f64x4, x[v5 + 8]) &
            UINT64_C(9223372036854775807));
        const f64x4 v9 = (f64x4)((u64x4)UOPC_LOAD(f64x4, x[v5 + 12]) &
            UINT64_C(9223372036854775807));
        v1 = uopc_maximum_f64x4(v6, v1);
        v2 = uopc_maximum_f64x4(v7, v2);
        v3 = uopc_maximum_f64x4(v8, v3);
        v4 = uopc_maximum_f64x4(v9, v4);
    }
    const f64x4 v10 = uopc_maximum_f64x4(uopc_maximum_f64x4(v1, v2), uopc_maximum_f64x4(v3, v4));
    longest[0] = uopc_max_of_f64x4_4(v10);
}

