/* Calls an export as acados' external functions do: integers are int, sizes come first, then the
   structure of each matrix; all arrays are parts of one block, aligned to 8 bytes; the last argument
   is a pointer. Results are matrices, column after column, with zeros where no entry is.
   This stands in for acados, whose code is not here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*function)(const double **, double **, int *, double *, void *);
typedef int (*sizes)(int *, int *, int *, int *);
typedef const int *(*structure)(int);
typedef int (*count)(void);

extern int NAME(const double **, double **, int *, double *, int);
extern int WORK(int *, int *, int *, int *);
extern const int *SPARSITY_IN(int), *SPARSITY_OUT(int);
extern int N_IN(void), N_OUT(void);

static int entries(const int *words)
{
    int total = 0;
    if (words == NULL) {
        return 0;
    }
    if (words[2] != 0) {
        return words[0] * words[1];
    }
    for (int column = 0; column < words[1]; ++column) {
        total += words[3 + column] - words[2 + column];
    }
    return total;
}

static void print_matrix(const int *words, const double *values)
{
    double *whole = calloc((size_t)(words[0] * words[1]) + 1u, sizeof(double));
    for (int column = 0, k = 0; column < words[1]; ++column) {
        const int many = words[2] != 0 ? words[0] : words[3 + column] - words[2 + column];
        for (int i = 0; i < many; ++i, ++k) {
            const int row = words[2] != 0 ? i : words[3 + words[1] + k];
            whole[row + column * words[0]] = values[k];
        }
    }
    for (int i = 0; i < words[0] * words[1]; ++i) {
        printf("%.17g ", whole[i]);
    }
    printf("\n");
    free(whole);
}

int main(int given, char **texts)
{
    const function called = (function)(void (*)(void))NAME;
    const sizes work = WORK;
    const structure ins = SPARSITY_IN, outs = SPARSITY_OUT;
    const count n_in = N_IN, n_out = N_OUT;
    int args = 0, results = 0, integers = 0, doubles = 0, total = 0;
    if (work(&args, &results, &integers, &doubles) != 0) {
        return 1;
    }
    for (int i = 0; i < args; ++i) {
        total += entries(ins(i));
    }
    for (int i = 0; i < results; ++i) {
        total += entries(outs(i));
    }
    double *block = malloc((size_t)(total + doubles + 2) * sizeof(double)), *next = block + 1;
    const double **arg = calloc((size_t)args + 1u, sizeof(double *));
    double **res = calloc((size_t)results + 1u, sizeof(double *));
    int *iw = calloc((size_t)integers + 1u, sizeof(int));
    int text = 1;
    for (int i = 0; i < args; ++i) {
        const int many = i < n_in() ? entries(ins(i)) : 0;
        arg[i] = next;
        for (int k = 0; k < many && text < given; ++k) {
            *next++ = strtod(texts[text++], NULL);
        }
    }
    for (int i = 0; i < results; ++i) {
        res[i] = next;
        next += entries(outs(i));
    }
    if (called(arg, res, iw, next, NULL) != 0) {
        return 1;
    }
    for (int i = 0; i < n_out(); ++i) {
        print_matrix(outs(i), res[i]);
    }
    free(block);
    free((void *)arg);
    free((void *)res);
    free(iw);
    return 0;
}
