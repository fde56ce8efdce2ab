/* mean_r_8_3: the user's lines */
static void mean_r_8_3(uint8_t *restrict grey, const uint8_t *restrict pixels)
{
    for (int64_t i = 0; i < 8; ++i) {
        const int64_t v1 = i * 3;
        int32_t v2 = 0;
        for (int64_t j = 0; j < 3; ++j) {
            const int32_t v3 = (int32_t)((uint32_t)v2 + (uint32_t)((int32_t)pixels[v1 + j]));
            v2 = v3;
        }
        const int32_t v4 = v2 % 3;
        const int32_t v5 = v2 / 3;
        const int32_t v6 = ((v4 != 0) && (v4 < 0)) ? ((int32_t)((uint32_t)v5 - (uint32_t)1)) : v5;
        grey[i] = (uint8_t)v6;
    }
}

