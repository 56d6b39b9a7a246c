/* Memory that the processes of a node share: a file in /dev/shm, made exclusively under a random name, for its owner alone
 * (0600), and without a name again before it takes any memory. Processes that are killed leave nothing behind; only
 * between create and unlink an empty file of that name can stay. In order: one process creates, the others join, all
 * meet, the first unlinks and resizes, all meet, all map, reserve a part each and write, all meet, all finish. */
#ifndef TABFT_FILE_SHARED_H
#define TABFT_FILE_SHARED_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum { FILE_SHARED_NAME = 48 };
struct file_shared;

int file_shared_create(struct file_shared **out, char name[FILE_SHARED_NAME], struct tabft_failure *f) TABFT_MUST_CHECK;
/* Refuses (TABFT_SYSTEM) what is not an empty file of this user's, made as above. */
int file_shared_join(struct file_shared **out, const char *name, struct tabft_failure *f) TABFT_MUST_CHECK;
int file_shared_unlink(struct file_shared *s, struct tabft_failure *f) TABFT_MUST_CHECK;
int file_shared_resize(struct file_shared *s, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Maps all of it, `size` bytes, zeros. */
int file_shared_map(struct file_shared *s, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Takes the memory of [begin, end) now: a full /dev/shm is a failure here (TABFT_SYSTEM) and no SIGBUS later. */
int file_shared_reserve(struct file_shared *s, size_t begin, size_t end, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Nobody writes any more: maps it for reading only, with every page present. */
int file_shared_finish(struct file_shared *s, struct tabft_failure *f) TABFT_MUST_CHECK;
void *file_shared_data(const struct file_shared *s);
void file_shared_close(struct file_shared *s); /* unlinks what has a name still; NULL is fine */

/* Bytes that are free in /dev/shm; 0 where there is none. UINT64_MAX: no limit. */
uint64_t file_shared_room(void);

#endif
