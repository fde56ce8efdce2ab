"""Names that the headers of C (up to C23), POSIX and glibc declare or define, on Linux.

A program may name a parameter like a function of the library, but not like a macro, a type or a
variable: those stand in OBJECTS. Its own functions may have the names of none of them.
"""

from __future__ import annotations

import re

# Functions, and macros that take arguments; not those with the endings of `_VARIANT`.
_FUNCTIONS = """
CCEQ CMPLX CMPLXF CMPLXF128 CMPLXF32 CMPLXF32X CMPLXF64X CMPLXL CMSG_ALIGN CMSG_DATA CMSG_FIRSTHDR
CMSG_LEN CMSG_NXTHDR CMSG_SPACE CPU_ALLOC CPU_ALLOC_SIZE CPU_AND CPU_AND_S CPU_CLR CPU_CLR_S
CPU_COUNT CPU_COUNT_S CPU_EQUAL CPU_EQUAL_S CPU_FREE CPU_ISSET CPU_ISSET_S CPU_OR CPU_OR_S CPU_SET
CPU_SET_S CPU_XOR CPU_XOR_S CPU_ZERO CPU_ZERO_S CTRL DL_CALL_FCT DTTOIF FD_CLR FD_ISSET FD_SET
FD_ZERO GROUP_FILTER_SIZE IFTODT IN_BADCLASS IN_CLASSA IN_CLASSB IN_CLASSC IN_CLASSD IN_EXPERIMENTAL
IN_MULTICAST MAX MIN NL_LOCALE_NAME SUN_LEN S_ISBLK S_ISCHR S_ISDIR S_ISFIFO S_ISLNK S_ISREG
S_ISSOCK S_TYPEISMQ S_TYPEISSEM S_TYPEISSHM TEMP_FAILURE_RETRY TIMESPEC_TO_TIMEVAL
TIMEVAL_TO_TIMESPEC WCOREDUMP WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG
WTERMSIG W_EXITCODE W_STOPCODE a64l abort abs accept accept4 access acct addseverity adjtime
aio_cancel aio_error aio_fsync aio_init aio_read aio_return aio_suspend aio_write alarm
aligned_alloc alloca alphasort arc4random arc4random_buf arc4random_uniform asctime asprintf assert
assert_perror at_quick_exit atexit atof atoi atol atoll backtrace backtrace_symbols
backtrace_symbols_fd bcmp bcopy be16toh be32toh be64toh bind bind_textdomain_codeset bindresvport
bindresvport6 bindtextdomain brk bsearch bswap_16 bswap_32 bswap_64 btowc bzero c16rtomb c32rtomb
c8rtomb call_once calloc canonicalize_file_name catclose catgets catopen cfgetispeed cfgetospeed
cfmakeraw cfsetispeed cfsetospeed cfsetspeed chdir chmod chown chroot ckd_add ckd_mul ckd_sub
clearenv clearerr clock clock_adjtime clock_getcpuclockid clock_getres clock_gettime clock_nanosleep
clock_settime clone close close_range closedir closefrom closelog clrbit confstr connect
copy_file_range creat crypt ctermid ctime cuserid daemon dcgettext dcngettext dgettext difftime
dirfd dirname div dladdr dladdr1 dlclose dlerror dlinfo dlmopen dlopen dlsym dlvsym dngettext
dprintf drand48 dup dup2 dup3 duplocale dysize eaccess ecvt endgrent endhostent endnetent
endnetgrent endprotoent endpwent endrpcent endservent endusershell endutent endutxent epoll_create
epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait erand48 err error error_at_line errx
euidaccess execl execle execlp execv execve execveat execvp execvpe exit explicit_bzero faccessat
fallocate fchdir fchmod fchmodat fchown fchownat fclose fcloseall fcntl fcvt fdatasync fdopen
fdopendir feclearexcept fedisableexcept feenableexcept fegetenv fegetexcept fegetexceptflag
fegetmode fegetround feholdexcept feof feraiseexcept ferror fesetenv fesetexcept fesetexceptflag
fesetmode fesetround fetestexcept fetestexceptflag feupdateenv fexecve fflush ffs ffsl ffsll fgetc
fgetgrent fgetpos fgetpwent fgets fgetwc fgetws fileno flock flockfile fmemopen fmtmsg fnmatch fopen
fopencookie fork forkpty fpathconf fpclassify fprintf fputc fputs fputwc fputws fread free
free_aligned_sized free_sized freeaddrinfo freelocale freopen fscanf fseek fseeko fsetpos fstat
fstatat fstatvfs fsync ftell ftello ftime ftok ftruncate ftrylockfile ftw funlockfile futimens
futimes futimesat fwide fwprintf fwrite fwscanf gai_cancel gai_error gai_strerror gai_suspend gcvt
get_avphys_pages get_current_dir_name get_nprocs get_nprocs_conf get_phys_pages getaddrinfo
getaddrinfo_a getc getchar getcpu getcwd getdate getdelim getdents64 getdirentries getdomainname
getdtablesize getegid getentropy getenv geteuid getgid getgrent getgrgid getgrnam getgrouplist
getgroups gethostbyaddr gethostbyname gethostbyname2 gethostent gethostid gethostname
getipv4sourcefilter getitimer getline getloadavg getlogin getnameinfo getnetbyaddr getnetbyname
getnetent getnetgrent getopt getopt_long getopt_long_only getpagesize getpass getpeername getpgid
getpgrp getpid getppid getpriority getprotobyname getprotobynumber getprotoent getpt getpw getpwent
getpwnam getpwuid getrandom getresgid getresuid getrlimit getrpcbyname getrpcbynumber getrpcent
getrusage getservbyname getservbyport getservent getsid getsockname getsockopt getsourcefilter
getsubopt gettext gettid gettimeofday getuid getumask getusershell getutent getutid getutline
getutmp getutmpx getutxent getutxid getutxline getw getwc getwchar getwd glob glob_pattern_p
globfree gmtime grantpt group_member gsignal hcreate hdestroy herror howmany hsearch hstrerror
htobe16 htobe32 htobe64 htole16 htole32 htole64 htonl htons iconv iconv_close iconv_open
if_freenameindex if_indextoname if_nameindex if_nametoindex imaxabs imaxdiv index inet6_opt_append
inet6_opt_find inet6_opt_finish inet6_opt_get_val inet6_opt_init inet6_opt_next inet6_opt_set_val
inet6_option_alloc inet6_option_append inet6_option_find inet6_option_init inet6_option_next
inet6_option_space inet6_rth_add inet6_rth_getaddr inet6_rth_init inet6_rth_reverse
inet6_rth_segments inet6_rth_space inet_addr inet_aton inet_lnaof inet_makeaddr inet_net_ntop
inet_net_pton inet_neta inet_netof inet_network inet_nsap_addr inet_nsap_ntoa inet_ntoa inet_ntop
inet_pton initgroups initstate innetgr insque ioctl iruserok iruserok_af isalnum isalpha isascii
isatty isblank iscanonical isclr iscntrl isctype isdigit iseqsig isfdtype isfinite isgraph isgreater
isgreaterequal isless islessequal islessgreater islower isnormal isprint ispunct isset issignaling
isspace issubnormal isunordered isupper iswalnum iswalpha iswblank iswcntrl iswctype iswdigit
iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit isxdigit iszero jrand48 kill
kill_dependency killpg l64a labs lchmod lchown lcong48 ldiv le16toh le32toh le64toh lfind link
linkat lio_listio listen llabs lldiv localeconv localtime lockf lockf64 login login_tty logout
logwtmp longjmp lrand48 lsearch lseek lstat lutimes madvise mallinfo mallinfo2 malloc malloc_info
malloc_stats malloc_trim malloc_usable_size mallopt mblen mbrlen mbrtoc16 mbrtoc32 mbrtoc8 mbrtowc
mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc memalign memalignment memccpy memchr memcmp memcpy
memfd_create memfrob memmem memmove mempcpy memrchr memset memset_explicit mincore mkdir mkdirat
mkdtemp mkfifo mkfifoat mknod mknodat mkostemp mkostemps mkstemp mkstemps mktemp mktime mlock mlock2
mlockall mmap mprotect mq_close mq_getattr mq_notify mq_open mq_receive mq_send mq_setattr
mq_timedreceive mq_timedsend mq_unlink mrand48 mremap msgctl msgget msgrcv msgsnd msync munlock
munlockall munmap name_to_handle_at nanosleep newlocale nftw ngettext nice nl_langinfo nrand48 ntohl
ntohs obstack_printf obstack_vprintf offsetof on_exit open open_by_handle_at open_memstream
open_wmemstream openat opendir openlog openpty pathconf pause pclose perror pipe pipe2 pkey_alloc
pkey_free pkey_get pkey_mprotect pkey_set poll popen powerof2 ppoll pread preadv preadv2 preadv64v2
printf prlimit process_madvise process_mrelease process_vm_readv process_vm_writev profil pselect
psiginfo psignal ptsname putc putchar putenv putgrent putpwent puts pututline pututxline putw putwc
putwchar pvalloc pwrite pwritev pwritev2 pwritev64v2 qecvt qfcvt qgcvt qsort quick_exit raise rand
random rawmemchr rcmd rcmd_af re_compile_fastmap re_compile_pattern re_match re_match_2 re_search
re_search_2 re_set_registers re_set_syntax read readahead readdir readlink readlinkat readv realloc
reallocarray realpath recv recvfrom recvmmsg recvmsg regcomp regerror regexec regfree
remap_file_pages remove remque rename renameat renameat2 revoke rewind rewinddir rexec rexec_af
rindex rmdir roundup rpmatch rresvport rresvport_af ruserok ruserok_af sbrk scandir scandirat scanf
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getcpu sched_getparam
sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setparam sched_setscheduler
sched_yield secure_getenv seed48 seekdir select sem_clockwait sem_close sem_destroy sem_getvalue
sem_init sem_open sem_post sem_timedwait sem_trywait sem_unlink sem_wait semctl semget semop
semtimedop send sendmmsg sendmsg sendto setbit setbuf setbuffer setdomainname setegid setenv seteuid
setgid setgrent setgroups sethostent sethostid sethostname setipv4sourcefilter setitimer setjmp
setlinebuf setlocale setlogin setlogmask setnetent setnetgrent setns setpgid setpgrp setpriority
setprotoent setpwent setregid setresgid setresuid setreuid setrlimit setrpcent setservent setsid
setsockopt setsourcefilter setstate settimeofday setuid setusershell setutent setutxent setvbuf
shm_open shm_unlink shmat shmctl shmdt shmget shutdown sigabbrev_np sigaction sigaddset sigaltstack
sigandset sigblock sigdelset sigdescr_np sigemptyset sigfillset siggetmask sighold sigignore
siginterrupt sigisemptyset sigismember siglongjmp sigmask signal signbit sigorset sigpause
sigpending sigprocmask sigqueue sigrelse sigreturn sigset sigsetjmp sigsetmask sigstack sigsuspend
sigtimedwait sigwait sigwaitinfo sleep snprintf sockatmark socket socketpair splice sprintf srand
srand48 srandom sscanf ssignal stat statvfs statx stpcpy stpncpy strcasecmp strcasestr strcat strchr
strchrnul strcmp strcoll strcpy strcspn strdup strdupa strerror strerrordesc_np strerrorname_np
strfmon strfromd strfromf strfromf128 strfromf32 strfromf32x strfromf64 strfromf64x strfroml strfry
strftime strlen strncasecmp strncat strncmp strncpy strndup strndupa strnlen strpbrk strptime
strrchr strsep strsignal strspn strstr strtod strtof strtof128 strtof32 strtof32x strtof64 strtof64x
strtoimax strtok strtol strtold strtoll strtoq strtoul strtoull strtoumax strtouq strverscmp strxfrm
swab swprintf swscanf symlink symlinkat sync sync_file_range syncfs syscall sysconf sysinfo syslog
system sysv_signal tcdrain tcflow tcflush tcgetattr tcgetpgrp tcgetsid tcsendbreak tcsetattr
tcsetpgrp tdelete tdestroy tee telldir tempnam textdomain tfind tgkill time timegm timelocal
timer_create timer_delete timer_getoverrun timer_gettime timer_settime timeradd timerclear timercmp
timerisset timersub times timespec_get timespec_getres tmpfile tmpnam toascii tolower toupper
towctrans towlower towupper truncate tsearch ttyname ttyslot twalk tzset ualarm ulimit umask uname
ungetc ungetwc unlink unlinkat unlockpt unreachable unsetenv unshare updwtmp updwtmpx uselocale
usleep utime utimensat utimes utmpname utmpxname va_arg va_copy va_end va_start valloc vasprintf
vdprintf verr verrx versionsort vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vmsplice vprintf
vscanf vsnprintf vsprintf vsscanf vswprintf vswscanf vsyslog vwarn vwarnx vwprintf vwscanf wait
wait3 wait4 waitid waitpid warn warnx wcpcpy wcpncpy wcrtomb wcscasecmp wcscat wcschr wcschrnul
wcscmp wcscoll wcscpy wcscspn wcsdup wcsftime wcslen wcsncasecmp wcsncat wcsncmp wcsncpy wcsnlen
wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstof128 wcstof32 wcstof32x
wcstof64 wcstof64x wcstoimax wcstok wcstol wcstold wcstoll wcstombs wcstoq wcstoul wcstoull
wcstoumax wcstouq wcswcs wcswidth wcsxfrm wctob wctomb wctrans wctype wcwidth wmemchr wmemcmp
wmemcpy wmemmove wmempcpy wmemset wordexp wordfree wprintf write writev wscanf
"""
# Of <math.h> and <complex.h>: they have variants for other types.
_MATH = """
acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi cabs cacos cacosh canonicalize
carg casin casinh catan catanh cbrt ccos ccosh ceil cexp cimag clog clog10 compoundn conj copysign
cos cosh cospi cpow cproj creal csin csinh csqrt ctan ctanh drem erf erfc exp exp10 exp10m1 exp2
exp2m1 expm1 fabs fdim finite floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num
fmaxmag fmin fminimum fminimum_mag fminimum_mag_num fminimum_num fminmag fmod frexp fromfp fromfpx
gamma gamma_r getpayload hypot ilogb isinf isnan j0 j1 jn ldexp lgamma llogb llrint llround log
log10 log10p1 log1p log2 log2p1 logb logp1 lrint lround modf nan nearbyint nextafter nextdown
nexttoward nextup pow pow10 pown powr remainder remquo rint rootn round roundeven rsqrt scalb
scalbln scalbn setpayload setpayloadsig significand sin sincos sinh sinpi sqrt tan tanh tanpi tgamma
totalorder totalordermag trunc ufromfp ufromfpx y0 y1 yn
"""
# Macros, types, variables and enumerators.
_OBJECTS = """
ACCESSPERMS ACCOUNTING AF_DECnet ALLPERMS ALT_DIGITS AM_STR AREGTYPE B0 B1000000 B110 B115200
B1152000 B1200 B134 B150 B1500000 B1800 B19200 B200 B2000000 B230400 B2400 B2500000 B300 B3000000
B3500000 B38400 B4000000 B460800 B4800 B50 B500000 B57600 B576000 B600 B75 B921600 B9600 BC_BASE_MAX
BC_DIM_MAX BC_SCALE_MAX BC_STRING_MAX BIG_ENDIAN BITSPERBYTE BLKTYPE BOOT_TIME BRKINT BS0 BS1 BSDLY
BUFSIZ BYTE_ORDER CANBSIZ CBAUD CBAUDEX CBRK CDISCARD CDSUSP CEOF CEOL CEOT CERASE CFLUSH CHARBITS
CHARCLASS_NAME_MAX CHAR_BIT CHAR_MAX CHAR_MIN CHRTYPE CIBAUD CINTR CKILL CLNEXT CLOCAL
CLOCKS_PER_SEC CMIN CMSPAR CODESET COLL_WEIGHTS_MAX CONTTYPE CQUIT CR0 CR1 CR2 CR3 CRDLY CREAD
CREPRINT CRNCYSTR CRPRNT CRTSCTS CS5 CS6 CS7 CS8 CSIZE CSTART CSTATUS CSTOP CSTOPB CSUSP CTIME
CWERASE C_IRGRP C_IROTH C_IRUSR C_ISBLK C_ISCHR C_ISCTG C_ISDIR C_ISFIFO C_ISGID C_ISLNK C_ISREG
C_ISSOCK C_ISUID C_ISVTX C_IWGRP C_IWOTH C_IWUSR C_IXGRP C_IXOTH C_IXUSR DEAD_PROCESS DECIMAL_DIG
DEFFILEMODE DELAYTIMER_MAX DEV_BSIZE DIR DIRTYPE DMAXEXP DMINEXP DOUBLEBITS D_FMT D_T_FMT E2BIG
EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG EBADR
EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHO ECHOCTL ECHOE ECHOK ECHOKE ECHONL ECHOPRT ECHRNG
ECOMM ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDEADLOCK EDESTADDRREQ EDOM EDOTDOT EDQUOT EEXIST
EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN
EISDIR EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD
ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP EMEDIUMTYPE EMFILE EMLINK EMPTY EMSGSIZE EMULTIHOP
ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO ENOBUFS ENOCSI ENODATA ENODEV
ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG ENOPROTOOPT ENOSPC ENOSR
ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTSOCK ENOTSUP ENOTTY
ENOTUNIQ ENTER ENXIO EOF EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPOLLERR EPOLLET
EPOLLEXCLUSIVE EPOLLHUP EPOLLIN EPOLLMSG EPOLLONESHOT EPOLLOUT EPOLLPRI EPOLLRDBAND EPOLLRDHUP
EPOLLRDNORM EPOLLWAKEUP EPOLLWRBAND EPOLLWRNORM EPOLL_CLOEXEC EPOLL_CTL_ADD EPOLL_CTL_DEL
EPOLL_CTL_MOD EPROTO EPROTONOSUPPORT EPROTOTYPE ERA ERANGE ERA_D_FMT ERA_D_T_FMT ERA_T_FMT EREMCHG
EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN ESOCKTNOSUPPORT ESPIPE ESRCH ESRMNT ESTALE
ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS EWOULDBLOCK EXDEV EXEC_PAGESIZE
EXFULL EXIT_FAILURE EXIT_SUCCESS EXPR_NEST_MAX EXTA EXTB EXTPROC FAPPEND FASYNC FD_CLOEXEC
FD_SETSIZE FF0 FF1 FFDLY FFSYNC FIFOTYPE FILE FILENAME_MAX FIND FIOASYNC FIOCLEX FIOGETOWN FIONBIO
FIONCLEX FIONREAD FIOQSIZE FIOSETOWN FLOATBITS FLUSHO FMAXEXP FMINEXP FNDELAY FNONBLOCK FOPEN_MAX
F_DUPFD F_DUPFD_CLOEXEC F_EXLCK F_GETFD F_GETFL F_GETLK F_GETLK64 F_GETOWN F_LOCK F_OK F_RDLCK
F_SETFD F_SETFL F_SETLK F_SETLK64 F_SETLKW F_SETLKW64 F_SETOWN F_SHLCK F_TEST F_TLOCK F_ULOCK
F_UNLCK F_WRLCK GETALL GETNCNT GETPID GETVAL GETZCNT GRND_INSECURE GRND_NONBLOCK GRND_RANDOM HIBITL
HIBITS HOST_NAME_MAX HOST_NOT_FOUND HUGE_VAL HUGE_VALF HUGE_VALL HUPCL HZ I ICANON ICRNL IEXTEN
IFHWADDRLEN IFNAMSIZ IF_NAMESIZE IGNBRK IGNCR IGNPAR IMAXBEL IN6ADDR_ANY_INIT IN6ADDR_LOOPBACK_INIT
INET6_ADDRSTRLEN INET_ADDRSTRLEN INFINITY INIT_PROCESS INLCR INPCK INTBITS INT_MAX INT_MIN
IN_CLASSA_HOST IN_CLASSA_MAX IN_CLASSA_NET IN_CLASSA_NSHIFT IN_CLASSB_HOST IN_CLASSB_MAX
IN_CLASSB_NET IN_CLASSB_NSHIFT IN_CLASSC_HOST IN_CLASSC_NET IN_CLASSC_NSHIFT IN_LOOPBACKNET
IOCSIZE_MASK IOCSIZE_SHIFT IOC_IN IOC_INOUT IOC_OUT IOV_MAX ISIG ISTRIP IUCLC IUTF8 IXANY IXOFF IXON
LINE_MAX LITTLE_ENDIAN LLONG_MAX LLONG_MIN LNKTYPE LOGIN_NAME_MAX LOGIN_PROCESS LONGBITS LONG_BIT
LONG_MAX LONG_MIN L_INCR L_SET L_XTND L_ctermid L_tmpnam MAGIC MAXDOUBLE MAXFLOAT MAXHOSTNAMELEN
MAXINT MAXLONG MAXNAMLEN MAXPATHLEN MAXSHORT MAXSYMLINKS MAX_CANON MAX_INPUT MB_CUR_MAX MB_LEN_MAX
MINDOUBLE MINFLOAT MININT MINLONG MINSHORT MINSIGSTKSZ MQ_PRIO_MAX M_1_PI M_2_PI M_2_SQRTPI
M_ARENA_MAX M_ARENA_TEST M_CHECK_ACTION M_E M_GRAIN M_KEEP M_LN10 M_LN2 M_LOG10E M_LOG2E M_MMAP_MAX
M_MMAP_THRESHOLD M_MXFAST M_NLBLKS M_PERTURB M_PI M_PI_2 M_PI_4 M_SQRT1_2 M_SQRT2 M_TOP_PAD
M_TRIM_THRESHOLD NAME_MAX NAN NBBY NCARGS NCC NCCS NETDB_INTERNAL NETDB_SUCCESS NEW_TIME NFDBITS
NGREG NGROUPS NGROUPS_MAX NL0 NL1 NLDLY NL_ARGMAX NL_CAT_LOCALE NL_LANGMAX NL_MSGMAX NL_SETD
NL_SETMAX NL_TEXTMAX NODEV NOEXPR NOFILE NOFLSH NOGROUP NO_ADDRESS NO_DATA NO_RECOVERY NSIG
NSS_BUFLEN_GROUP NSS_BUFLEN_PASSWD NZERO N_6PACK N_AX25 N_HCI N_HDLC N_IRDA N_MASC N_MOUSE N_PPP
N_PROFIBUS_FDL N_R3964 N_SLIP N_SMSBLOCK N_STRIP N_SYNC_PPP N_TTY N_X25 OCRNL OFDEL OFILL OLCUC
OLD_TIME ONCE_FLAG_INIT ONLCR ONLRET ONOCR OPOST O_ACCMODE O_APPEND O_ASYNC O_CLOEXEC O_CREAT
O_DIRECTORY O_DSYNC O_EXCL O_FSYNC O_NDELAY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_RDONLY O_RDWR O_RSYNC
O_SYNC O_TRUNC O_WRONLY PARENB PARMRK PARODD PATH_MAX PDP_ENDIAN PENDIN PF_DECnet PIPE_BUF PM_STR
POLL_ERR POLL_HUP POLL_IN POLL_MSG POLL_OUT POLL_PRI PTRBITS P_ALL P_PGID P_PID P_PIDFD P_tmpdir
RADIXCHAR RAND_MAX REGTYPE RE_DUP_MAX RTSIG_MAX RUN_LVL R_OK SCHAR_MAX SCHAR_MIN SETALL SETVAL
SHMLBA SHORTBITS SHRT_MAX SHRT_MIN SIOGIFINDEX SOMAXCONN SSIZE_MAX STDERR_FILENO STDIN_FILENO
STDOUT_FILENO SYMTYPE SYS_NMLN S_BLKSIZE S_IEXEC S_IFBLK S_IFCHR S_IFDIR S_IFIFO S_IFLNK S_IFMT
S_IFREG S_IFSOCK S_IREAD S_IRGRP S_IROTH S_IRUSR S_IRWXG S_IRWXO S_IRWXU S_ISGID S_ISUID S_ISVTX
S_IWGRP S_IWOTH S_IWRITE S_IWUSR S_IXGRP S_IXOTH S_IXUSR TAB0 TAB1 TAB2 TAB3 TABDLY TCFLSH TCGETA
TCGETS TCGETS2 TCGETX TCIFLUSH TCIOFF TCIOFLUSH TCION TCOFLUSH TCOOFF TCOON TCP_CA_Disorder
TCP_CA_Loss TCP_CA_Open TCP_CA_Recovery TCSADRAIN TCSAFLUSH TCSANOW TCSBRK TCSBRKP TCSETA TCSETAF
TCSETAW TCSETS TCSETS2 TCSETSF TCSETSF2 TCSETSW TCSETSW2 TCSETX TCSETXF TCSETXW TCXONC TGEXEC TGREAD
TGWRITE THOUSEP TH_ACK TH_FIN TH_PUSH TH_RST TH_SYN TH_URG TIMER_ABSTIME TIME_UTC TMAGIC TMAGLEN
TMP_MAX TOEXEC TOREAD TOSTOP TOWRITE TRAP_BRANCH TRAP_BRKPT TRAP_HWBKPT TRAP_TRACE TRAP_UNK
TRY_AGAIN TSGID TSS_DTOR_ITERATIONS TSUID TSVTX TTY_NAME_MAX TUEXEC TUREAD TUWRITE TVERSION TVERSLEN
T_FMT T_FMT_AMPM UCHAR_MAX UINT_MAX UIO_MAXIOV ULLONG_MAX ULONG_MAX UL_GETFSIZE UL_SETFSIZE
USER_PROCESS USHRT_MAX UTMP_FILE UTMP_FILENAME UT_HOSTSIZE UT_LINESIZE UT_NAMESIZE UT_UNKNOWN
VDISCARD VEOF VEOL VEOL2 VERASE VINTR VKILL VLNEXT VMIN VQUIT VREPRINT VSTART VSTOP VSUSP VSWTC VT0
VT1 VTDLY VTIME VWERASE WAIT_ANY WAIT_MYPGRP WCONTINUED WCOREFLAG WEOF WEXITED WNOHANG WNOWAIT
WORD_BIT WSTOPPED WTMP_FILE WTMP_FILENAME WUNTRACED W_OK XCASE XTABS X_OK YESEXPR active_reg_t
basename blkcnt_t blksize_t caddr_t cc_t clock_t clockid_t cpu_set_t d_fileno daddr_t daylight dev_t
div_t double_t endorder environ epoll_data_t error_message_count error_one_per_line fd_mask fd_set
fexcept_t float_t fpos_t fpregset_t fsblkcnt_t fsfilcnt_t fsid_t getdate_err gid_t glob_t greg_t
gregset_t h_addr h_errno iconv_t id_t idtype_t imaxdiv_t in6addr_any in6addr_loopback in_addr_t
in_port_t ino_t jmp_buf key_t ldiv_t leaf lldiv_t locale_t loff_t math_errhandling max_align_t
mbstate_t mcontext_t memory_order mode_t mqd_t msg_cbytes msglen_t msgqnum_t nfds_t nl_catd nl_item
nlink_t no_argument noreturn off_t once_flag optarg opterr optind optional_argument optopt pid_t
postorder preorder program_invocation_name program_invocation_short_name ptrdiff_t quad_t
re_syntax_options reg_errcode_t reg_syntax_t regex_t regmatch_t regoff_t required_argument rlim_t
s_reg_t sched_priority sem_t shmatt_t sig_atomic_t sig_t sigevent_t sigjmp_buf signgam sigset_t
sigval_t size_t socklen_t speed_t ssize_t st_atime st_ctime st_mtime stack_t stderr stdin stdout
suseconds_t tcflag_t tcp_seq time_t timer_t timezone tzname u_char u_int u_long u_quad_t u_short
ucontext_t uid_t uint ulong useconds_t ushort ut_addr ut_name ut_time ut_xtime va_list wctrans_t
wctype_t wint_t wordexp_t
"""
# What macros begin with, before a _ and capital letters.
_BEGINNINGS = """
ABDAY ABMON AF AI AIO ALTMON AT ATOMIC BUS CLD CLOCK CLONE DAY DBL DEC DT EAI EX FE FLT FNM FP FPE
FTW GLOB IFF ILL IN6 INADDR IP IPC IPPORT IPPROTO IPV6 ITIMER LC LDBL LIO LOCK LOG MADV MAP MATH
MCAST MCL MM MON MSG MS NI PF POSIX PRIO PROT PTHREAD REG RLIM RLIMIT RTLD RUSAGE SA SCHED SCM SEEK
SEGV SEM SHM SHUT SI SIG SIGEV SO SOCK SOL SS ST TCP TCPI TCPOLEN TCPOPT TTYDEF UTIME WRDE XATTR
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
MATH = frozenset(_MATH.split())
OBJECTS = frozenset(_OBJECTS.split())
_VARIANT = re.compile(r"(\w+?)(64|64_r|_l|_r|_unlocked|_np)")
_OF_A_TYPE = re.compile(r"(\w+?)([fl]|f\d+x?|d\d+)?(_r)?")
_FUNCTION = re.compile(r"(f|d|f\d+x?)(add|sub|mul|div|fma|sqrt)(l|f\d+x?)?")
_OBJECT = re.compile(
    rf"({'|'.join(_BEGINNINGS.split())})_[A-Z0-9_]+|(ifa|ifc|ifr|memory_order|s6|sa|si|sigev)_\w+"
    r"|(atomic|cnd|mtx|posix|pthread|stdc|thrd|tss)_\w+"
    r"|(BOOL|U?CHAR|SCHAR|U?SHRT|U?INT|U?LONG|U?LLONG)_(MAX|MIN|WIDTH)"
    r"|(PRI|SCN)[a-zX]\w*|(SIG|POLL)[A-Z0-9]+|(SIOC|TIOC)[A-Z0-9_]+"
    r"|(u_?)?int(_fast|_least)?\d+_t|u?int(max|ptr)_t"
    r"|U?INT(MAX|PTR|(_LEAST|_FAST)?\d+)_(C|MAX|MIN|WIDTH)"
    r"|(PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MAX|MIN|WIDTH)"
)


def is_object(name: str) -> bool:
    """True for a macro without arguments, a type, a variable or an enumerator."""
    if _OBJECT.fullmatch(name) is not None or name in OBJECTS:
        return True
    found = _OF_A_TYPE.fullmatch(name) if name.startswith("M_") else None
    return found is not None and found[1] in OBJECTS


def is_function(name: str) -> bool:
    """True for a function, or a macro with arguments."""
    if name in FUNCTIONS or name in MATH or _FUNCTION.fullmatch(name) is not None:
        return True
    pairs = (_VARIANT.fullmatch(name), FUNCTIONS), (_OF_A_TYPE.fullmatch(name), MATH)
    return any([found is not None and found[1] in names for found, names in pairs])
