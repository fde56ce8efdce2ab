/* picked_E_20: the user's lines */
static void picked_E_20(float *restrict picked, const int32_t *restrict at,
    const float *restrict table)
{
    for (int64_t i = 0; i < 20; ++i) {
        const int64_t v1 = (int64_t)at[i];
        const float v2 = (((-101) < v1) && (v1 < 100)) ? table[(v1 < 0) ? (v1 + 100) : v1] : 0.0f;
        picked[i] = v2;
    }
}

