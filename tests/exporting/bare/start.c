/* What a Cortex-M needs to run the self-test of an export: a vector table, memory, and output by
   semihosting. There is no C library. The stack is painted before the test, and looked at after. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define PAINT 0xA5u
enum { WRITE_TEXT = 0x04, EXIT = 0x18, FINISHED = 0x20026, FAILED = 0x20023 };

extern unsigned char bss_begin[], bss_end[], stack_begin[], stack_end[];
int main(void);

static void host(uint32_t operation, uintptr_t argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void say(const char *text)
{
    host(WRITE_TEXT, (uintptr_t)text);
}

static void say_number(unsigned long number)
{
    char digits[12];
    size_t i = sizeof digits;
    digits[--i] = '\0';
    do {
        digits[--i] = (char)('0' + number % 10u);
        number /= 10u;
    } while (number != 0u);
    say(&digits[i]);
}

/* Of the formats of printf, %lu and %s. */
int printf(const char *format, ...)
{
    va_list given;
    va_start(given, format);
    for (; *format != '\0'; ++format) {
        if (format[0] == '%' && format[1] == 's') {
            say(va_arg(given, const char *));
            format += 1;
        } else if (format[0] == '%' && format[1] == 'l' && format[2] == 'u') {
            say_number(va_arg(given, unsigned long));
            format += 2;
        } else {
            const char one[2] = {format[0], '\0'};
            say(one);
        }
    }
    va_end(given);
    return 0;
}

/* Compilers call these by themselves. */
void *memset(void *to, int value, size_t count)
{
    unsigned char *bytes = to;
    for (size_t i = 0; i < count; ++i) {
        bytes[i] = (unsigned char)value;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    unsigned char *bytes = to;
    const unsigned char *read = from;
    for (size_t i = 0; i < count; ++i) {
        const size_t k = bytes < read ? i : count - 1u - i;
        bytes[k] = read[k];
    }
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    return memmove(to, from, count);
}

static void start(void)
{
#if defined(__ARM_FP)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* let the FPU work */
    __asm__ volatile("dsb\n isb");
#endif
    memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
    unsigned char *const here = (unsigned char *)__builtin_frame_address(0);
    for (unsigned char *p = stack_begin; p < here - 128; ++p) {
        *(volatile unsigned char *)p = PAINT;
    }
    const int code = main();
    const unsigned char *deepest = stack_begin;
    while (deepest < here - 128 && *deepest == PAINT) {
        ++deepest;
    }
    say("stack ");
    say_number((unsigned long)(here - deepest));
    say("\n");
    host(EXIT, code == 0 ? FINISHED : FAILED);
}

static void fault(void)
{
    say("fault\n");
    host(EXIT, FAILED);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_end, start, fault, fault, fault, fault, fault,
};
