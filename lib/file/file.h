/* Files that appear whole or not at all, and files read without surprises. Every byte TabFT reads from or writes to
 * a path goes through here. Nothing here knows a format. Faults are put in from outside (strace -e inject), so that what is
 * tested is what runs. */
#ifndef TABFT_FILE_FILE_H
#define TABFT_FILE_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/* ---- writing ---- */
struct file_writer;

/* Opens a hidden temporary file (".NAME.<host>.<pid>.<random>.tmp", mode 0666 under the umask, O_EXCL|O_NOFOLLOW) in the
 * folder of `path`; "-" writes to stdout (refused when that is a terminal and `binary`). An existing target is refused now
 * and again at close unless `force`; one that is no regular file (folder, FIFO, device, symbolic link) always.
 * `expected_size` > 0 preallocates; it may be off in both directions. Not thread safe on one w.
 * Errors: TABFT_USE for a target that exists or cannot be one, TABFT_SYSTEM with path and cause for all the system says. */
int file_writer_open(struct file_writer **out, const char *path, bool force, bool binary, uint64_t expected_size,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Sends large files to storage as they grow, and takes all but their last 64 MiB out of the page cache. */
int file_writer_put(struct file_writer *w, const void *data, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
uint64_t file_writer_position(const struct file_writer *w);
/* Rewrites bytes already put (safetensors headers, indexes). Not for "-". */
int file_writer_put_at(struct file_writer *w, uint64_t offset, const void *data, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* fsync, checked close, renameat2(RENAME_NOREPLACE) (falls back to link+unlink; rename under force), fsync of the folder.
 * Frees w in every case; on failure nothing is left under the final or the temporary name
 * (but under `force`, when only the folder's fsync failed: the whole new file then stays). stdout stays open for
 * file_stdout_close. */
int file_writer_close(struct file_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The error path: removes the temporary file, frees w. NULL is fine. */
void file_writer_abandon(struct file_writer *w);

/* ---- a log that grows ---- */
struct file_log;

/* Starts PATH.partial, which others may follow while it grows and which stays where a run ends early; a clean end gives it
 * the name PATH. Two runs cannot write the same one: it is created, never opened. A PATH or PATH.partial that exists is
 * refused (TABFT_USE); under `force` the rest of an earlier run is removed now and PATH replaced at the end. */
int file_log_open(struct file_log **out, const char *path, bool force, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Goes on with a PATH.partial that is there, to which lines are added; PATH, if there is one, is replaced at the end. */
int file_log_continue(struct file_log **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Adds `line` and a newline in one write, so readers see whole lines. */
int file_log_put(struct file_log *l, const char *line, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes of all its lines. */
uint64_t file_log_size(const struct file_log *l);
/* Sync, checked close, rename to PATH, sync of the folder. Frees l in every case; on failure PATH.partial may stay. */
int file_log_close(struct file_log *l, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The error path: PATH.partial stays if it holds a line, else it is removed. NULL is fine. */
void file_log_abandon(struct file_log *l);

/* ---- reading at positions (pread, never mmap) ---- */
struct file_reader;
int file_reader_open(struct file_reader **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK; /* regular files only */
uint64_t file_reader_size(const struct file_reader *r); /* size at open */
const char *file_reader_path(const struct file_reader *r);
/* Exactly `size` bytes or a failure that names bytes found and needed. Thread safe. */
int file_reader_get(const struct file_reader *r, uint64_t offset, void *data, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Fails (TABFT_INPUT) if size, mtime or inode changed since open: never a mix of two states. Call it before results are published. */
int file_reader_unchanged(const struct file_reader *r, struct tabft_failure *f) TABFT_MUST_CHECK;
void file_reader_close(struct file_reader *r); /* NULL is fine */

/* ---- reading a stream: a path, "-" for stdin ---- */
struct file_stream;
int file_stream_open(struct file_stream **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Fills data; *got < size only at the end. EINTR and short reads do not show. A regular file whose size or time changed
 * since open fails at its end (TABFT_INPUT). */
int file_stream_read(struct file_stream *s, void *data, size_t size, size_t *got, struct tabft_failure *f) TABFT_MUST_CHECK;
void file_stream_close(struct file_stream *s);

/* ---- scratch: bytes that outlive no process ---- */
struct file_scratch;
/* An unlinked file in the folder of `near` (the output it serves, where the space is), or for "-" in $TMPDIR or /tmp. */
int file_scratch_open(struct file_scratch **out, const char *near, struct tabft_failure *f) TABFT_MUST_CHECK;
int file_scratch_put(struct file_scratch *s, const void *data, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK; /* appends */
uint64_t file_scratch_size(const struct file_scratch *s);
/* Exactly `size` bytes at offset. Thread safe. */
int file_scratch_get(const struct file_scratch *s, uint64_t offset, void *data, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
void file_scratch_close(struct file_scratch *s); /* NULL is fine */

/* A whole small file (at most `limit` bytes) into *out (caller frees). */
int file_read_all(const char *path, size_t limit, void **out, size_t *size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* A whole small file written by the rules of file_writer. */
int file_write_all(const char *path, bool force, const void *data, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Waits until a file or folder that another process of the same job has made, maybe on another node, is seen here: network
 * file systems may keep from a node for seconds what was renamed or made on another (ENOENT, ESTALE). Errors: TABFT_SYSTEM
 * after `seconds`. Whatever else may be wrong with `path` is left to whoever opens it. */
int file_await(const char *path, unsigned seconds, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The next name in an open folder but "." and ".."; NULL at the end, and with errno set where reading it failed (else 0). */
const char *file_folder_next(DIR *folder);
/* The names in a folder onto storage, where its file system can do so. */
int file_folder_sync(const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;

/* To be called first in every main: ignores SIGXFSZ (EFBIG is then handled like ENOSPC), removes temporary files on signals
 * that end the process (HUP INT QUIT PIPE ALRM TERM USR1 USR2 XCPU) and re-raises, leaves ignored signals ignored; gives a
 * closed stdin, stdout or stderr a descriptor that fails, so that no file of ours takes their numbers. */
void file_signals_install(void);
/* Removes what a signal that ends the process would: to be called by one that is about to end in another way. Any thread. */
void file_temporaries_remove(void);
/* To be called last: flushes, syncs (a regular file) and closes stdout, so that a full disk is seen (TABFT_SYSTEM). */
int file_stdout_close(struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
