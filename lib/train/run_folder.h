/* RUN/: what a training run leaves. metrics.jsonl grows under metrics.jsonl.partial while the run lasts; at the end
 * come model.safetensors, model.safetensors.sha256, metrics.jsonl and last run.json. So a folder with run.json and
 * without metrics.jsonl.partial is a whole run, and any other is none. Checkpoints (state.h) lie in it while the run
 * lasts, and a lock (file_lock.h). Only rank 0 uses it. */
#ifndef TABFT_TRAIN_RUN_FOLDER_H
#define TABFT_TRAIN_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/failure.h"
#include "model/model.h"

struct run_folder;

enum run_folder_use {
    RUN_FOLDER_NEW,   /* the folder is missing or empty */
    RUN_FOLDER_FORCE, /* what a run left in it is replaced */
    RUN_FOLDER_RESUME /* a run in it is gone on with; missing or empty: begun */
};

/* Refuses (TABFT_USE) a path that is no folder, or one that the use does not allow. Creates nothing. */
int run_folder_check(const char *path, enum run_folder_use use, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Whether a whole run lies there. */
bool run_folder_complete(const char *path);
/* Whether a checkpoint, a lock or a temporary file lies there: what a run that was killed leaves. */
bool run_folder_has_rest(const char *path);
/* Makes the folder where it is missing and locks it: from here on no other run can take it. `say` (may be NULL) is
 * told of a lock that is waited for or taken over. */
int run_folder_open(struct run_folder **out, const char *path, enum run_folder_use use,
                    void (*say)(void *context, const char *line), void *context,
                    struct tabft_failure *f) TABFT_MUST_CHECK;
/* Fails (TABFT_USE) where another run has taken the folder over. */
int run_folder_check_lock(struct run_folder *r, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Starts the metrics, with no line yet. One of these two, before the first line. */
int run_folder_start(struct run_folder *r, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Starts the metrics with the lines that lie in path/metrics.jsonl.partial. */
int run_folder_continue(struct run_folder *r, struct tabft_failure *f) TABFT_MUST_CHECK;
/* One line of metrics.jsonl, a JSON object. */
int run_folder_log(struct run_folder *r, const char *line, struct tabft_failure *f) TABFT_MUST_CHECK;
uint64_t run_folder_logged(const struct run_folder *r); /* bytes of the lines so far */
/* Writes the model and its checksum file, and reads the model back: hex is the SHA-256 of what lies there. Where older
 * files may lie, an older run.json is removed first: the folder is no whole run until the end. */
int run_folder_model(struct run_folder *r, const struct model *m, const float *values, char hex[65],
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Names the metrics and writes run.json (`text`, a JSON object). The lock stays. */
int run_folder_finish(struct run_folder *r, const char *text, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Unlocks the folder and frees r. Without run_folder_finish metrics that hold a line stay under their partial name,
 * and a folder that was made for nothing goes. NULL is fine. */
void run_folder_close(struct run_folder *r);

#endif
