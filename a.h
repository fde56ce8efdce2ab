/* a: made by uopc for host. Arrays are in row-major order and aligned as their elements are. What
   the function writes shares no memory with another argument; arrays that it only reads may. A
   bool is a byte, 0 or 1; floats of 8 and 16 bits are their bits. The function has no state and
   allocates nothing: calls may run at the same time, each with memory of its own for work. */
#ifndef UOPC_a_H
#define UOPC_a_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define A_ABI 1
#define A_WORK_BYTES 0
#define A_WORK_ALIGNMENT 8

/* work: not read or written; may be a null pointer */
/* Returns 0. */
int a(void *work);

/* The bytes of work: A_WORK_BYTES. */
size_t a_work_bytes(void);
/* A digest of this interface and of the graph. */
extern const char a_id[];

#ifdef __cplusplus
}
#endif
#endif
