/* dot_r_60_40: the user's lines */
static void dot_r_60_40(float *restrict y, const float *restrict a, const float *restrict b,
    int64_t k, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        const int64_t v1 = i * k;
        float v2 = 0.0f;
        for (int64_t j = 0; j < k; ++j) {
            v2 = UOPC_FMAF(a[j + v1], b[j], v2);
        }
        y[i] = v2;
    }
}

