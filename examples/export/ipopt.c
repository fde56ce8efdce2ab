/* IPOPT, in C, with the functions that solve.py exports. Prints the status, the objective, and the
   largest gap of a constraint. Bool is IPOPT's. */
#include "IpStdCInterface.h"
#include "pendulum_f.h"
#include "pendulum_g.h"
#include "pendulum_grad.h"
#include "pendulum_hess.h"
#include "pendulum_jac.h"
#include <math.h>
#include <stdio.h>

#define VARIABLES PENDULUM_JAC_VALUES_COLS
#define CONSTRAINTS PENDULUM_JAC_VALUES_ROWS

/* Memory for intermediate values; one call at a time. */
static double work[1 << 16];

static Bool objective(int n, double *x, Bool is_new, double *value, UserDataPtr start)
{
    (void)n, (void)is_new;
    return pendulum_f(x, start, value, work) == 0;
}

static Bool gradient(int n, double *x, Bool is_new, double *values, UserDataPtr start)
{
    (void)n, (void)is_new;
    return pendulum_grad(x, start, values, work) == 0;
}

static Bool constraints(int n, double *x, Bool is_new, int m, double *values,
                        UserDataPtr start)
{
    (void)n, (void)m, (void)is_new;
    return pendulum_g(x, start, values, work) == 0;
}

/* The first call asks for the places of the entries, the others for their values. */
static Bool jacobian(int n, double *x, Bool is_new, int m, int count, int *rows,
                     int *columns, double *values, UserDataPtr start)
{
    (void)n, (void)m, (void)is_new;
    if (values != NULL) {
        return pendulum_jac(x, start, values, work) == 0;
    }
    for (int k = 0; k < count; ++k) {
        rows[k] = pendulum_jac_values_row[k];
        columns[k] = pendulum_jac_values_col[k];
    }
    return 1;
}

static Bool hessian(int n, double *x, Bool is_new, double factor, int m,
                    double *multipliers, Bool are_new, int count, int *rows,
                    int *columns, double *values, UserDataPtr start)
{
    (void)n, (void)m, (void)is_new, (void)are_new;
    if (values != NULL) {
        return pendulum_hess(x, start, &factor, multipliers, values, work) == 0;
    }
    for (int k = 0; k < count; ++k) {
        rows[k] = pendulum_hess_values_row[k];
        columns[k] = pendulum_hess_values_col[k];
    }
    return 1;
}

int main(void)
{
    double start = 2.0;
    double x[VARIABLES] = {0.0}, low[VARIABLES], high[VARIABLES], zeros[CONSTRAINTS] = {0.0};
    double gaps[CONSTRAINTS], value = 0.0, largest = 0.0;
    if (sizeof work < PENDULUM_F_WORK_BYTES + PENDULUM_G_WORK_BYTES + PENDULUM_GRAD_WORK_BYTES
                          + PENDULUM_JAC_WORK_BYTES + PENDULUM_HESS_WORK_BYTES) {
        return 1;
    }
    for (int i = 0; i < VARIABLES; ++i) {
        low[i] = -2e19; /* no bounds */
        high[i] = 2e19;
    }
    IpoptProblem problem = CreateIpoptProblem(
        VARIABLES, low, high, CONSTRAINTS, zeros, zeros, PENDULUM_JAC_VALUES_NNZ,
        PENDULUM_HESS_VALUES_NNZ, 0, objective, constraints, gradient, jacobian, hessian);
    AddIpoptIntOption(problem, "print_level", 0);
    AddIpoptStrOption(problem, "sb", "yes");
    AddIpoptNumOption(problem, "tol", 1e-10);
    const int status = (int)IpoptSolve(problem, x, gaps, &value, NULL, NULL, NULL, &start);
    FreeIpoptProblem(problem);
    for (int i = 0; i < CONSTRAINTS; ++i) {
        largest = fmax(largest, fabs(gaps[i]));
    }
    printf("status %d, objective %.8f, largest gap %.0e\n", status, value, largest);
    return status;
}
