/* What the sources of state.h share: the layout of a checkpoint, and its manifest in memory. */
#ifndef TABFT_TRAIN_STATE_INTERNAL_H
#define TABFT_TRAIN_STATE_INTERNAL_H

#include <jansson.h>

#include "tbf/tbf.h"
#include "train/state.h"

/* Records of a slice: for each kind its blocks in order, each of STATE_BLOCK parameters but the last; then, in slice 0,
 * the metrics in pieces of STATE_TEXT bytes. Tags: kind and number of the block; 0 and number of the piece. */
enum { STATE_MANIFEST = TBF_TYPES_TRAIN, STATE_FLOATS, STATE_METRICS, STATE_VERSION = 1 };
enum { STATE_BLOCK = 65536, STATE_TEXT = 262144 };
enum state_kind { STATE_WEIGHTS, STATE_MOMENT1, STATE_MOMENT2, STATE_BEST };
enum { STATE_PATH_MAX = 4096, STATE_NAME_MAX = 64, STATE_SLICES_MAX = 1 << 20, STATE_DIGEST = 32 };

struct state_slice {
    size_t begin, end;             /* parameters; none: no file */
    uint8_t digest[STATE_DIGEST];  /* of the file, as its end mark has it */
};

struct state_manifest {
    struct progress progress; /* `started` and `ended_by` are not in it */
    double seconds;           /* trained so far */
    uint64_t optimiser_steps, metrics_bytes;
    size_t n_parameters, n_slices;
    bool has_best;
    struct state_slice *slice; /* [n_slices] */
    json_t *root;              /* all of it, with what identifies the run */
};

static inline size_t state_blocks(const struct state_slice *s)
{
    return (s->end - s->begin + STATE_BLOCK - 1) / STATE_BLOCK;
}
static inline size_t state_pieces(uint64_t bytes) { return (size_t)((bytes + STATE_TEXT - 1) / STATE_TEXT); }
static inline size_t state_kinds(const struct state_manifest *m) { return m->has_best ? STATE_BEST + 1 : STATE_BEST; }

/* ---- state_manifest.c: not collective ---- */
/* As JSON; the caller frees *text. Of m all but `root` is read. */
int state_manifest_write(const struct trainer *t, const struct state_manifest *m, char **text,
                         struct tabft_failure *f) TABFT_MUST_CHECK;
/* Errors: TABFT_INPUT with `place` for what a manifest cannot be. */
int state_manifest_read(struct state_manifest *m, const char *place, const char *text, size_t size,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
/* Refuses (TABFT_USE) the checkpoint of a run with other options, model, data, version or instruction set. */
int state_manifest_match(const struct state_manifest *m, const struct trainer *t,
                         struct tabft_failure *f) TABFT_MUST_CHECK;
void state_manifest_clear(struct state_manifest *m);

/* ---- state_folder.c: not collective ---- */
struct state_name {
    uint64_t step;
    char name[STATE_NAME_MAX];
};
/* The folders of checkpoints in `run`, newest first; `complete`: those with a manifest only. The caller frees *list. */
int state_folder_list(const char *run, bool complete, struct state_name **list, size_t *n,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
int state_folder_make(const char *run, uint64_t step, char name[STATE_NAME_MAX],
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* The manifest goes first, so that what a kill leaves of the folder is no checkpoint. 0, or an errno. */
int state_folder_remove(const char *run, const char *name);
/* Removes the checkpoints but those named (NULL: none is kept) and temporary files in `run`. */
void state_folder_clear(const struct trainer *t, const char *keep1, const char *keep2);
/* run/name/file; file NULL: run/name. Errors: TABFT_USE where it is too long. */
int state_path(char path[STATE_PATH_MAX], const char *run, const char *name, const char *file,
               struct tabft_failure *f) TABFT_MUST_CHECK;
void state_slice_name(char name[STATE_NAME_MAX], size_t slice, size_t n_slices);
/* Waits until what rank 0 has made or seen is seen by this rank too. Errors: TABFT_SYSTEM. */
int state_await(const struct trainer *t, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
