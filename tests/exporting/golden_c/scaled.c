/* scaled_E_32: the user's lines */
static void scaled_E_32(float *restrict z, const float *restrict y, const float *restrict x)
{
    for (int64_t i = 0; i < 4; ++i) {
        const int64_t v1 = i * 8;
        const f32x8 v2 = UOPC_LOAD(f32x8, y[v1]);
        const f32x8 v3 = UOPC_LOAD(f32x8, x[v1]);
        const f32x8 v4 = uopc_select_f32x8((i32x8)(v2 < v3), uopc_fma_f32x8(v3,
            uopc_all_f32x8(3.0f), v2), (f32x8){0.0f});
        UOPC_PLACE(f32x8, z[v1]) = v4;
    }
}

