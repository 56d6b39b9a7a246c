/* Going on from a checkpoint: the newest that is whole, on any number of ranks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "file/file.h"
#include "train/state_internal.h"

/* ---- is it whole? ---- */

/* What lies at place `number` of slice i. */
static struct tbf_entry expected_record(const struct state_manifest *m, size_t i, size_t number)
{
    const struct state_slice *s = &m->slice[i];
    size_t n_blocks = state_blocks(s), floats = state_kinds(m) * n_blocks;
    if (number < floats) {
        size_t block = number % n_blocks, left = s->end - s->begin - block * STATE_BLOCK;
        return (struct tbf_entry){.type = STATE_FLOATS,
                                  .version = STATE_VERSION,
                                  .tag = {(uint32_t)(number / n_blocks), (uint32_t)block},
                                  .raw_size = TBF_RECORD_HEADER +
                                              (left < STATE_BLOCK ? left : STATE_BLOCK) * sizeof(float)};
    }
    uint64_t left = m->metrics_bytes - (uint64_t)(number - floats) * STATE_TEXT;
    return (struct tbf_entry){.type = STATE_METRICS,
                              .version = STATE_VERSION,
                              .tag = {0, (uint32_t)(number - floats)},
                              .raw_size = TBF_RECORD_HEADER + (left < STATE_TEXT ? left : STATE_TEXT)};
}

/* Every byte of a slice, that it is the manifest's, and that each record is what its place says. */
static int check_slice(const struct trainer *t, const char *path, const struct state_manifest *m, size_t i,
                       struct tabft_failure *f)
{
    int error = 0;
    struct tbf_reader *r = NULL;
    size_t n = state_kinds(m) * state_blocks(&m->slice[i]) + (i == 0 ? state_pieces(m->metrics_bytes) : 0);
    TRY(tbf_verify(path, t->pool, f));
    TRY(tbf_reader_open(&r, path, f));
    if (memcmp(tbf_reader_digest(r), m->slice[i].digest, STATE_DIGEST) != 0)
        FAIL(f, TABFT_INPUT, "%s: is not the file that the manifest names", path);
    if (tbf_reader_count(r) != n) FAIL(f, TABFT_INPUT, "%s: has %zu records instead of %zu", path, tbf_reader_count(r), n);
    for (size_t k = 0; k < n; k++) {
        const struct tbf_entry *is = tbf_reader_entry(r, k), want = expected_record(m, i, k);
        if (is->type != want.type || is->version != want.version || is->tag[0] != want.tag[0] ||
            is->tag[1] != want.tag[1] || is->raw_size != want.raw_size)
            FAIL(f, TABFT_INPUT, "%s: record %zu is not what the manifest says", path, k);
    }
fail:
    tbf_reader_close(r);
    return error;
}

static int slice_path(const struct trainer *t, const char *name, const struct state_manifest *m, size_t i,
                      char path[STATE_PATH_MAX], struct tabft_failure *f)
{
    char file[STATE_NAME_MAX];
    state_slice_name(file, i, m->n_slices);
    return state_path(path, t->run_path, name, file, f);
}

/* That all slices are there, as rank 0 sees them: what it sees, the others may wait for. */
static int find_slices(const struct trainer *t, const char *name, const struct state_manifest *m,
                       struct tabft_failure *f)
{
    int error = 0;
    char path[STATE_PATH_MAX];
    struct stat status;
    for (size_t i = 0; i < m->n_slices; i++) {
        if (m->slice[i].begin == m->slice[i].end) continue;
        TRY(slice_path(t, name, m, i, path, f));
        if (stat(path, &status) != 0)
            FAIL(f, errno == ENOENT ? TABFT_INPUT : TABFT_SYSTEM, "%s: cannot open: %s", path, strerror(errno));
    }
fail:
    return error;
}

static int check_slices(const struct trainer *t, const char *name, const struct state_manifest *m,
                        struct tabft_failure *f)
{
    int error = 0;
    size_t ranks = (size_t)comm_size(t->c);
    for (size_t i = (size_t)comm_rank(t->c); i < m->n_slices; i += ranks) {
        char path[STATE_PATH_MAX];
        if (m->slice[i].begin == m->slice[i].end) continue;
        TRY(slice_path(t, name, m, i, path, f));
        TRY(state_await(t, path, f));
        TRY(check_slice(t, path, m, i, f));
    }
fail:
    return error;
}

/* The JSON of a manifest whose every byte was checked; the caller frees *text. */
static int read_manifest(const struct trainer *t, const char *name, char **text, size_t *size,
                         struct tabft_failure *f)
{
    int error = 0;
    char path[STATE_PATH_MAX];
    struct tbf_reader *r = NULL;
    struct tbf_codec *c = NULL;
    struct tbf_record record;
    void *data = NULL;
    TRY(state_path(path, t->run_path, name, "manifest.tbf", f));
    TRY(tbf_verify(path, t->pool, f));
    TRY(tbf_reader_open(&r, path, f));
    TRY(tbf_codec_open(&c, TBF_LEVEL_DEFAULT, f));
    if (tbf_reader_count(r) != 1) FAIL(f, TABFT_INPUT, "%s: is no manifest of a checkpoint", path);
    TRY(tbf_reader_get(r, c, 0, &record, &data, f));
    if (record.type != STATE_MANIFEST || record.version != STATE_VERSION)
        FAIL(f, TABFT_INPUT, "%s: is no manifest of a checkpoint, or of a version that this program does not know", path);
    TRY(memory_new(text, record.size, 1, "a manifest", f));
    memcpy(*text, record.data, record.size);
    *size = record.size;
fail:
    free(data);
    tbf_codec_close(c);
    tbf_reader_close(r);
    return error;
}

/* Brings rank 0's manifest to all. Damage (TABFT_INPUT) and other failures are those of all ranks. */
static int share_manifest(struct trainer *t, const char *name, struct state_manifest *m, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    size_t size = 0;
    TRY(trainer_agree(t, comm_rank(t->c) == 0 ? read_manifest(t, name, &text, &size, f) : 0, f));
    TRY(comm_broadcast(t->c, &size, sizeof size, 0, f));
    error = comm_rank(t->c) == 0 ? 0 : memory_new(&text, size, 1, "a manifest", f);
    TRY(trainer_agree(t, error, f));
    TRY(comm_broadcast(t->c, text, size, 0, f));
    TRY(trainer_agree(t, state_manifest_read(m, name, text, size, f), f));
fail:
    free(text);
    return error;
}

/* ---- loading ---- */

/* Copies what a slice file and the own slice of this run share, of one kind. */
static int load_kind(const struct trainer *t, struct tbf_reader *r, struct tbf_codec *c, const struct state_slice *s,
                     enum state_kind kind, float *own, struct tabft_failure *f)
{
    int error = 0;
    void *data = NULL;
    size_t n_blocks = state_blocks(s);
    for (size_t i = 0; i < n_blocks; i++) {
        struct tbf_record record;
        size_t begin = s->begin + i * STATE_BLOCK, end = s->end - begin < STATE_BLOCK ? s->end : begin + STATE_BLOCK;
        if (begin >= t->slice_end || end <= t->slice_begin) continue;
        TRY(tbf_reader_get(r, c, kind * n_blocks + i, &record, &data, f));
        if (record.size != (end - begin) * sizeof *own)
            FAIL(f, TABFT_INPUT, "a slice of the checkpoint changed while it was read; run again when nothing writes to it");
        size_t first = begin > t->slice_begin ? begin : t->slice_begin, last = end < t->slice_end ? end : t->slice_end;
        t->vectors.copy_in(t->vectors.state, own + (first - t->slice_begin), (const float *)record.data + (first - begin),
                           (last - first) * sizeof *own);
        TRY(t->vectors.finish(t->vectors.state, f));
        free(data);
        data = NULL;
    }
fail:
    free(data);
    return error;
}

static int load_slices(const struct trainer *t, const char *name, const struct state_manifest *m,
                       struct tabft_failure *f)
{
    int error = 0;
    const struct optimiser_state o = optimiser_state(t->optimiser);
    float *const own[] = {t->values + t->slice_begin, o.moment1, o.moment2, t->best};
    struct tbf_codec *c = NULL;
    struct tbf_reader *r = NULL;
    TRY(tbf_codec_open(&c, TBF_LEVEL_DEFAULT, f));
    for (size_t i = 0; i < m->n_slices; i++) {
        const struct state_slice *s = &m->slice[i];
        char path[STATE_PATH_MAX];
        if (s->begin >= t->slice_end || s->end <= t->slice_begin) continue;
        TRY(slice_path(t, name, m, i, path, f));
        TRY(state_await(t, path, f));
        TRY(tbf_reader_open(&r, path, f));
        if (memcmp(tbf_reader_digest(r), s->digest, STATE_DIGEST) != 0)
            FAIL(f, TABFT_INPUT, "%s: changed while it was read; run again when nothing writes to it", path);
        /* Without recorded best weights no validation but that of the base model was made, and its weights are there. */
        for (size_t kind = 0; kind < state_kinds(m); kind++)
            if (own[kind] != NULL) TRY(load_kind(t, r, c, s, (enum state_kind)kind, own[kind], f));
        TRY(tbf_reader_unchanged(r, f));
        tbf_reader_close(r);
        r = NULL;
    }
fail:
    tbf_reader_close(r);
    tbf_codec_close(c);
    return error;
}

/* The lines up to the checkpoint take the place of what is left of the killed run's. */
static int restore_metrics(struct trainer *t, const char *name, const struct state_manifest *m,
                           struct tabft_failure *f)
{
    int error = 0;
    char path[STATE_PATH_MAX];
    struct file_writer *w = NULL;
    struct tbf_reader *r = NULL;
    struct tbf_codec *c = NULL;
    void *data = NULL;
    size_t pieces = state_pieces(m->metrics_bytes), first = state_kinds(m) * state_blocks(&m->slice[0]);
    if (pieces == 0) return run_folder_start(t->folder, f);
    TRY(slice_path(t, name, m, 0, path, f));
    TRY(tbf_codec_open(&c, TBF_LEVEL_DEFAULT, f));
    TRY(tbf_reader_open(&r, path, f));
    if (memcmp(tbf_reader_digest(r), m->slice[0].digest, STATE_DIGEST) != 0)
        FAIL(f, TABFT_INPUT, "%s: changed while it was read; run again when nothing writes to it", path);
    TRY(state_path(path, t->run_path, "metrics.jsonl.partial", NULL, f));
    TRY(file_writer_open(&w, path, true, false, 0, f));
    for (size_t i = 0; i < pieces; i++) {
        struct tbf_record record;
        TRY(tbf_reader_get(r, c, first + i, &record, &data, f));
        TRY(file_writer_put(w, record.data, record.size, f));
        free(data);
        data = NULL;
    }
    struct file_writer *writer = w;
    w = NULL;
    TRY(file_writer_close(writer, f));
    TRY(run_folder_continue(t->folder, f));
fail:
    free(data);
    file_writer_abandon(w);
    tbf_reader_close(r);
    tbf_codec_close(c);
    return error;
}

static int load(struct trainer *t, const char *name, const struct state_manifest *m, struct progress *p,
                struct tabft_failure *f)
{
    int error = 0;
    error = load_slices(t, name, m, f);
    if (error == 0 && comm_rank(t->c) == 0) error = restore_metrics(t, name, m, f);
    TRY(trainer_agree(t, error, f));
    TRY(reduce_gather(t->reduce, t->values, f));
    optimiser_set_steps(t->optimiser, m->optimiser_steps);
    *p = m->progress;
    p->started = trainer_clock() - m->seconds;
    (void)snprintf(t->kept, sizeof t->kept, "%s", name);
    trainer_say(t, "resumes after step %" PRIu64 " of %" PRIu64 ", in epoch %" PRIu64 ", from %s", p->step, p->n_steps,
                p->epoch + 1, name);
    p->n_steps = 0; /* follows from the epochs, which may be others now */
fail:
    return error;
}

/* ---- which ---- */

/* 0: `name` is whole and of this run. */
static int examine(struct trainer *t, const char *name, struct state_manifest *m, struct tabft_failure *f)
{
    int error = 0;
    TRY(share_manifest(t, name, m, f));
    TRY(trainer_agree(t, state_manifest_match(m, t, f), f));
    TRY(trainer_agree(t, comm_rank(t->c) == 0 ? find_slices(t, name, m, f) : 0, f));
    TRY(trainer_agree(t, check_slices(t, name, m, f), f));
fail:
    return error;
}

static int share_list(struct trainer *t, struct state_name **list, size_t *n, struct tabft_failure *f)
{
    int error = 0;
    *list = NULL;
    *n = 0;
    TRY(trainer_agree(t, comm_rank(t->c) == 0 ? state_folder_list(t->run_path, true, list, n, f) : 0, f));
    TRY(comm_broadcast(t->c, n, sizeof *n, 0, f));
    if (*n == 0) return 0;
    error = comm_rank(t->c) == 0 ? 0 : memory_new(list, *n, sizeof **list, "the list of checkpoints", f);
    TRY(trainer_agree(t, error, f));
    TRY(comm_broadcast(t->c, *list, *n * sizeof **list, 0, f));
fail:
    return error;
}

int state_resume(struct trainer *t, struct progress *p, bool *found, struct tabft_failure *f)
{
    int error = 0;
    struct state_name *list = NULL;
    struct state_manifest m = {0};
    struct tabft_failure newest = {0};
    size_t n = 0;
    *found = false;
    TRY(share_list(t, &list, &n, f));
    for (size_t i = 0; i < n && !*found; i++) {
        struct tabft_failure damage = {0};
        int code = examine(t, list[i].name, &m, &damage);
        if (code != 0 && code != TABFT_INPUT) FAIL(f, code, "%s", damage.message);
        if (code == 0) {
            *found = true;
            TRY(load(t, list[i].name, &m, p, f));
        } else {
            /* All ranks know, and go on. */
            *t->result = (struct train_result){.speaker = -1};
            trainer_say(t, "a checkpoint is damaged and left out: %s", damage.message);
            if (newest.code == 0) newest = damage;
        }
        state_manifest_clear(&m);
    }
    if (n > 0 && !*found) {
        error = tabft_fail(f, TABFT_INPUT,
                           "%s: none of its %zu checkpoint%s can be read; the newest: %s; --force starts anew",
                           t->o->out, n, n == 1 ? "" : "s", newest.message);
        *t->result = (struct train_result){.agreed = true, .speaker = 0};
    }
fail:
    state_manifest_clear(&m);
    free(list);
    return error;
}
