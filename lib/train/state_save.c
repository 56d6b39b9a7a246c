/* Writing a checkpoint: the slices by all ranks at once, then the manifest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "file/file.h"
#include "train/state_internal.h"

/* A codec's copy of a block and its compressor (libdeflate 1.14 takes 470 KiB); a packed block. Checking what was written, a packed
 * and an unpacked block a thread, takes less. */
enum { CODEC_BYTES = STATE_BLOCK * 4 + (480 << 10), MEMBER_BYTES = STATE_BLOCK * 4 + 4096, FILE_BYTES = 96 << 10 };

size_t state_bytes(int n_threads) { return (size_t)n_threads * (CODEC_BYTES + MEMBER_BYTES) + STATE_TEXT + FILE_BYTES; }

/* ---- a slice ---- */

/* What packs blocks in all threads, as many at a time as there are threads. */
struct packer {
    int n_threads;
    const uint8_t *file_id;
    struct tbf_codec **codec;        /* [n_threads] */
    int *code;                       /* [n_threads] of the block of that place in a batch */
    struct tabft_failure *failure;   /* [n_threads] its message */
    struct tbf_member *member;       /* [n_threads] */
    struct tbf_record *record;       /* [n_threads] */
    float *room;                     /* [n_threads][STATE_BLOCK] a batch of values; NULL where they lie on the host */
    uint64_t first;                  /* number of the batch's first member */
};

static void packer_close(struct packer *p)
{
    for (int i = 0; i < p->n_threads && p->codec != NULL; i++) tbf_codec_close(p->codec[i]);
    for (int i = 0; i < p->n_threads && p->member != NULL; i++) tbf_member_free(&p->member[i]);
    free(p->codec);
    free(p->code);
    free(p->failure);
    free(p->member);
    free(p->record);
    free(p->room);
}

static int packer_open(struct packer *p, const struct trainer *t, const uint8_t *file_id, struct tabft_failure *f)
{
    int error = 0;
    p->n_threads = threads_count(t->pool);
    p->file_id = file_id;
    TRY(memory_new(&p->codec, (size_t)p->n_threads, sizeof *p->codec, "a checkpoint", f));
    TRY(memory_new(&p->code, (size_t)p->n_threads, sizeof *p->code, "a checkpoint", f));
    TRY(memory_new(&p->failure, (size_t)p->n_threads, sizeof *p->failure, "a checkpoint", f));
    TRY(memory_new(&p->member, (size_t)p->n_threads, sizeof *p->member, "a checkpoint", f));
    TRY(memory_new(&p->record, (size_t)p->n_threads, sizeof *p->record, "a checkpoint", f));
    if (!t->vectors.host)
        TRY(memory_new(&p->room, (size_t)p->n_threads * STATE_BLOCK, sizeof *p->room, "a checkpoint", f));
    for (int i = 0; i < p->n_threads; i++) TRY(tbf_codec_open(&p->codec[i], TBF_LEVEL_DEFAULT, f));
fail:
    return error;
}

static void pack_one(void *context, size_t block, int thread)
{
    struct packer *p = context;
    p->code[block] = tbf_member_pack(&p->member[block], p->codec[thread], p->file_id, p->first + block,
                                     &p->record[block], &p->failure[block]);
}

/* Numbers from `values` on, where the host can read them, until the next call. */
static int host_values(const struct packer *p, const struct trainer *t, const float *values, size_t n,
                       const float **out, struct tabft_failure *f)
{
    const struct vectors *v = &t->vectors;
    *out = v->host ? values : p->room;
    if (!v->host) v->copy_out(v->state, p->room, values, n * sizeof *values);
    return v->finish(v->state, f);
}

static int put_values(struct packer *p, const struct trainer *t, struct tbf_writer *w, enum state_kind kind,
                      const float *values, size_t n, struct tabft_failure *f)
{
    int error = 0;
    size_t n_blocks = (n + STATE_BLOCK - 1) / STATE_BLOCK;
    for (size_t done = 0; done < n_blocks;) {
        size_t batch = n_blocks - done < (size_t)p->n_threads ? n_blocks - done : (size_t)p->n_threads;
        size_t begin = done * STATE_BLOCK, left = n - begin;
        const float *from;
        TRY(host_values(p, t, values + begin, left < batch * STATE_BLOCK ? left : batch * STATE_BLOCK, &from, f));
        p->first = tbf_writer_count(w);
        for (size_t i = 0; i < batch; i++) {
            size_t at = i * STATE_BLOCK, size = left - at < STATE_BLOCK ? left - at : STATE_BLOCK;
            p->record[i] = (struct tbf_record){.type = STATE_FLOATS,
                                               .version = STATE_VERSION,
                                               .tag = {kind, (uint32_t)(done + i)},
                                               .data = from + at,
                                               .size = size * sizeof *values,
                                               .strategy = TBF_SHUFFLE4};
        }
        threads_run(t->pool, batch, pack_one, p);
        for (size_t i = 0; i < batch; i++) {
            if (p->code[i] < 0) FAIL(f, p->code[i], "%s", p->failure[i].message);
            TRY(tbf_writer_append(w, &p->member[i], f));
            tbf_member_free(&p->member[i]);
            p->member[i] = (struct tbf_member){0};
        }
        done += batch;
    }
fail:
    return error;
}

/* The lines so far, as they lie in the folder. */
static int put_metrics(struct packer *p, const struct trainer *t, struct tbf_writer *w, uint64_t bytes,
                       struct tabft_failure *f)
{
    int error = 0;
    struct file_reader *r = NULL;
    char path[STATE_PATH_MAX], *text = NULL;
    TRY(state_path(path, t->run_path, "metrics.jsonl.partial", NULL, f));
    TRY(file_reader_open(&r, path, f));
    TRY(memory_new(&text, STATE_TEXT, 1, "a checkpoint", f));
    for (size_t i = 0; i < state_pieces(bytes); i++) {
        uint64_t at = (uint64_t)i * STATE_TEXT;
        size_t size = bytes - at < STATE_TEXT ? (size_t)(bytes - at) : STATE_TEXT;
        TRY(file_reader_get(r, at, text, size, f));
        struct tbf_record record = {
            .type = STATE_METRICS, .version = STATE_VERSION, .tag = {0, (uint32_t)i}, .data = text, .size = size};
        TRY(tbf_writer_put(w, p->codec[0], &record, f));
    }
fail:
    free(text);
    file_reader_close(r);
    return error;
}

/* Back from the file: what lies there is whole, and its digest. */
static int check_slice(const struct trainer *t, const char *path, uint8_t digest[STATE_DIGEST],
                       struct tabft_failure *f)
{
    int error = 0;
    struct tbf_reader *r = NULL;
    TRY(tbf_verify(path, t->pool, f));
    TRY(tbf_reader_open(&r, path, f));
    memcpy(digest, tbf_reader_digest(r), STATE_DIGEST);
fail:
    tbf_reader_close(r);
    return error;
}

static int write_slice(const struct trainer *t, const char *name, const struct state_manifest *m,
                       uint8_t digest[STATE_DIGEST], struct tabft_failure *f)
{
    int error = 0, rank = comm_rank(t->c);
    const struct state_slice *s = &m->slice[rank];
    const struct optimiser_state o = optimiser_state(t->optimiser);
    const float *const values[] = {t->values + s->begin, o.moment1, o.moment2, t->best};
    char path[STATE_PATH_MAX], file[STATE_NAME_MAX];
    struct tbf_writer *w = NULL;
    struct packer packer = {0};
    if (s->begin == s->end) return 0;
    TRY(state_path(path, t->run_path, name, NULL, f));
    TRY(state_await(t, path, f));
    state_slice_name(file, (size_t)rank, m->n_slices);
    TRY(state_path(path, t->run_path, name, file, f));
    TRY(tbf_writer_open(&w, path, false, NULL, f));
    TRY(packer_open(&packer, t, tbf_writer_file_id(w), f));
    for (size_t kind = 0; kind < state_kinds(m); kind++)
        TRY(put_values(&packer, t, w, (enum state_kind)kind, values[kind], s->end - s->begin, f));
    if (rank == 0) TRY(put_metrics(&packer, t, w, m->metrics_bytes, f));
    struct tbf_writer *writer = w;
    w = NULL;
    TRY(tbf_writer_close(writer, f));
    packer_close(&packer);
    packer = (struct packer){0};
    TRY(check_slice(t, path, digest, f));
fail:
    tbf_writer_abandon(w);
    packer_close(&packer);
    return error;
}

/* ---- the manifest ---- */

static int write_manifest(const struct trainer *t, const char *name, const struct state_manifest *m,
                          struct tabft_failure *f)
{
    int error = 0;
    char path[STATE_PATH_MAX], *text = NULL;
    struct tbf_writer *w = NULL;
    struct tbf_codec *c = NULL;
    TRY(run_folder_check_lock(t->folder, f));
    TRY(state_manifest_write(t, m, &text, f));
    TRY(state_path(path, t->run_path, name, "manifest.tbf", f));
    TRY(tbf_codec_open(&c, TBF_LEVEL_DEFAULT, f));
    TRY(tbf_writer_open(&w, path, false, NULL, f));
    struct tbf_record record = {.type = STATE_MANIFEST, .version = STATE_VERSION, .data = text, .size = strlen(text)};
    TRY(tbf_writer_put(w, c, &record, f));
    struct tbf_writer *writer = w;
    w = NULL;
    TRY(tbf_writer_close(writer, f));
fail:
    tbf_writer_abandon(w);
    tbf_codec_close(c);
    free(text);
    return error;
}

/* Where every rank's slice lies, and its digest. */
static int gather_slices(struct trainer *t, struct state_manifest *m, const struct state_slice *own,
                         struct tabft_failure *f)
{
    return comm_gather_all(t->c, own, sizeof *own, m->slice, f);
}

int state_save(struct trainer *t, const struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    size_t ranks = (size_t)comm_size(t->c);
    bool speaks = comm_rank(t->c) == 0;
    char name[STATE_NAME_MAX] = "";
    struct state_slice own = {.begin = t->slice_begin, .end = t->slice_end};
    struct state_manifest m = {.progress = *p,
                               .seconds = trainer_seconds(p),
                               .optimiser_steps = optimiser_state(t->optimiser).steps,
                               .n_parameters = t->n_parameters,
                               .n_slices = ranks,
                               .has_best = t->best != NULL};
    TRY(trainer_agree(t, memory_new(&m.slice, ranks, sizeof *m.slice, "the slices of a checkpoint", f), f));
    if (speaks) {
        m.metrics_bytes = run_folder_logged(t->folder);
        error = run_folder_check_lock(t->folder, f);
        if (error == 0) error = state_folder_make(t->run_path, p->step, name, f);
    }
    TRY(trainer_agree(t, error, f));
    TRY(comm_broadcast(t->c, name, sizeof name, 0, f));
    TRY(gather_slices(t, &m, &own, f));
    TRY(trainer_agree(t, write_slice(t, name, &m, own.digest, f), f));
    TRY(gather_slices(t, &m, &own, f));
    TRY(trainer_agree(t, speaks ? write_manifest(t, name, &m, f) : 0, f));
    if (speaks) state_folder_clear(t, name, t->kept);
    memcpy(t->kept, name, sizeof name);
fail:
    if (error < 0 && speaks && name[0] != '\0') (void)state_folder_remove(t->run_path, name);
    state_manifest_clear(&m);
    return error;
}
