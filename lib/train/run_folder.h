/* RUN/: what a training run leaves. metrics.jsonl grows under metrics.jsonl.partial while the run lasts; at the end
 * come model.safetensors, model.safetensors.sha256, metrics.jsonl and last run.json. So a folder with run.json is a
 * whole run, and one without is none. Only rank 0 uses it. */
#ifndef TABFT_TRAIN_RUN_FOLDER_H
#define TABFT_TRAIN_RUN_FOLDER_H

#include <stdbool.h>

#include "base/failure.h"
#include "model/model.h"

struct run_folder;

/* Refuses (TABFT_USE) a path that is no folder, or one with anything in it unless `force`. Creates nothing. */
int run_folder_check(const char *path, bool force, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Makes the folder where it is missing and starts the metrics: from here on no other run can take it. */
int run_folder_open(struct run_folder **out, const char *path, bool force, struct tabft_failure *f) TABFT_MUST_CHECK;
/* One line of metrics.jsonl, a JSON object. */
int run_folder_log(struct run_folder *r, const char *line, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Writes the model and its checksum file, and reads the model back: hex is the SHA-256 of what lies there. Under force
 * an older run.json is removed first: the folder is no whole run until the end. */
int run_folder_model(struct run_folder *r, const struct model *m, const float *values, char hex[65],
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Names the metrics and writes run.json (`text`, a JSON object). Frees r in every case. */
int run_folder_close(struct run_folder *r, const char *text, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The error path: metrics that hold a line stay under their partial name, a folder that was made for nothing goes. NULL
 * is fine. */
void run_folder_abandon(struct run_folder *r);

#endif
