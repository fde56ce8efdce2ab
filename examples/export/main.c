/* cc main.c -IOUT OUT/libdistances.a */
#include "libdistances.h"

#include <stdio.h>

int main(void)
{
    const double x[2][3] = {{3.0, 0.0, 4.0}, {1.0, 2.0, 2.0}};
    static double work[DISTANCES_WORK_BYTES / 8 + 1];
    double lengths[2];
    double total;
    if (distances(&x[0][0], lengths, &total, 2, work) != 0) {
        return 1;
    }
    printf("%g %g %g\n", lengths[0], lengths[1], total);
    return distances(&x[0][0], lengths, &total, 0, work) == 1 ? 0 : 1; /* n is out of its bounds */
}
