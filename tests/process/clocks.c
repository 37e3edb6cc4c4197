/* The wall clock of each process, moved by the seconds that a table has at its process id; see clocks.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offsets;

__attribute__((constructor)) static void map_offsets(void) {
  const char *path = getenv("CLOCK_OFFSETS");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  struct stat found;
  if (file < 0) return;
  if (fstat(file, &found) == 0) {
    void *mapped = mmap(NULL, found.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offsets = mapped;
  }
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (!failed && offsets && clock == CLOCK_REALTIME) at->tv_sec += offsets[getpid()];
  return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  if (!failed) *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return failed;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
