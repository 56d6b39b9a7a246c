/* The time of a training step on many ranks, from few measured numbers: who computes which items, what is summed, sent
 * and updated is asked of the library itself (comm/reduce_internal.h), so it is the schedule that runs. tests/bench/scaling
 * uses it.
 *   scaling_model measure PARAMETERS      under a launcher: what one rank's sums and updates, a small collective of all ranks
 *                                         and the connection of two take, as NAME=VALUE lines for predict
 *   scaling_model predict NAME=VALUE...   a table; names as in `names` below, in seconds, bytes and floats; items, ranks and
 *                                         slowdown are lists with commas */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "comm/reduce_internal.h"
#include "train/optimiser.h"

enum { LIST_MAX = 32, SAMPLES = 101 };

/* ---- the model ---- */

struct machine {
    double item;                      /* seconds of one item on one rank: forward and backward */
    double add, update;               /* seconds per float of a vector's addition; of norm and AdamW */
    double latency, bandwidth;        /* of a message between nodes; bytes/s of one rank, each way */
    double local_latency, local_bandwidth; /* the same between ranks of a node */
    double overhead;                  /* seconds that a rank spends for each message of many at a time */
    double ranks_per_node;
    double parameters;
    size_t n_slowdown;                /* 0: each rank has processors of its own */
    double slowdown[LIST_MAX];        /* what a rank's computing takes while 1, 2, ... of its node's compute; the last: or more */
};

static const struct {
    const char *name;
    size_t offset;
} names[] = {
    {"item", offsetof(struct machine, item)},
    {"add", offsetof(struct machine, add)},
    {"update", offsetof(struct machine, update)},
    {"latency", offsetof(struct machine, latency)},
    {"bandwidth", offsetof(struct machine, bandwidth)},
    {"local_latency", offsetof(struct machine, local_latency)},
    {"local_bandwidth", offsetof(struct machine, local_bandwidth)},
    {"overhead", offsetof(struct machine, overhead)},
    {"ranks_per_node", offsetof(struct machine, ranks_per_node)},
    {"parameters", offsetof(struct machine, parameters)},
};
enum { NAMES = sizeof names / sizeof *names };

struct step_time {
    double items, sums, network; /* seconds: in items, in vectors of this rank, in messages */
    size_t rounds;
    double bytes; /* that the busiest rank sends */
};

static double total(const struct step_time *t) { return t->items + t->sums + t->network; }

static size_t node_of(const struct machine *m, size_t rank) { return rank / (size_t)m->ranks_per_node; }

/* How much slower a rank is while `busy` ranks of its node compute. */
static double crowded(const struct machine *m, size_t busy)
{
    if (m->n_slowdown == 0 || busy == 0) return 1;
    return m->slowdown[smaller(busy, m->n_slowdown) - 1];
}

/* A small collective: a tree over the ranks of a node, and one over the nodes. */
static double small(const struct machine *m, size_t ranks)
{
    const double inside = fmin((double)ranks, m->ranks_per_node), nodes = ceil((double)ranks / m->ranks_per_node);
    return ceil(log2(inside)) * m->local_latency + ceil(log2(nodes)) * m->latency;
}

struct traffic {
    double out, in, local_out, local_in;
    size_t messages;
};

static double longest(const struct machine *m, const struct traffic *t, size_t ranks)
{
    double most = 0;
    for (size_t r = 0; r < ranks; r++) {
        const double s = (double)t[r].messages * m->overhead + fmax(t[r].out, t[r].in) / m->bandwidth +
                         fmax(t[r].local_out, t[r].local_in) / m->local_bandwidth;
        most = fmax(most, s);
    }
    return most + (ranks > (size_t)m->ranks_per_node ? m->latency : m->local_latency);
}

static void send(const struct machine *m, struct traffic *t, size_t from, size_t to, double bytes)
{
    if (from == to || bytes == 0) return;
    if (node_of(m, from) == node_of(m, to)) t[from].local_out += bytes, t[to].local_in += bytes;
    else t[from].out += bytes, t[to].in += bytes;
    t[from].messages++;
    t[to].messages++;
}

static double piece_of(const struct reduce_layout *l, size_t piece)
{
    const size_t length = l->slice_end - l->slice_begin, begin = piece * l->piece;
    return begin >= length ? 0 : (double)smaller(l->piece, length - begin);
}

/* Vectors that a rank adds while items [begin, end) come, as reduce_placed does; most of one item in *most. */
static size_t vectors_of(size_t n_items, size_t begin, size_t end, size_t *most)
{
    struct tree_node stack[TREE_COVER_MAX];
    size_t depth = 0, n = 0;
    *most = 0;
    for (size_t item = begin; item < end; item++) {
        size_t own = 0;
        if (depth > 0 && tree_is_node(n_items, stack[depth - 1].begin, item + 1)) stack[depth - 1].end = item + 1;
        else stack[depth++] = (struct tree_node){item, item + 1};
        for (; depth > 1 && tree_is_node(n_items, stack[depth - 2].begin, stack[depth - 1].end); depth--, own++)
            stack[depth - 2].end = stack[depth - 1].end;
        n += own;
        *most = larger(*most, own);
    }
    return n;
}

/* Rounds of one item a rank; the ranks agree after each (train/step.c, compute_items). */
static void time_items(const struct machine *m, const struct reduce_layout *l, size_t n_items, size_t ranks, struct step_time *t)
{
    size_t most_vectors = 0, one;
    for (size_t r = 0; r < ranks; r++)
        most_vectors = larger(most_vectors, vectors_of(n_items, l[r].item_begin, l[r].item_end, &one));
    t->rounds = (n_items + ranks - 1) / ranks;
    for (size_t round = 0; round < t->rounds; round++) {
        size_t busy = 0;
        for (size_t r = 0; r < ranks && r < (size_t)m->ranks_per_node; r++)
            if (l[r].item_begin + round < l[r].item_end) busy++;
        t->items += m->item * crowded(m, busy);
    }
    const double crowd = crowded(m, smaller(smaller(ranks, n_items), (size_t)m->ranks_per_node));
    t->sums += (double)most_vectors * m->parameters * m->add * crowd;
    /* The agreements of the rounds, of the step's begin and end; losses; the norm; peaks. */
    if (ranks > 1) t->network += ((double)t->rounds + 5) * small(m, ranks);
}

static struct step_time predict(const struct machine *m, size_t n_items, size_t ranks)
{
    struct step_time t = {0};
    struct reduce_layout *l = calloc(ranks, sizeof *l);
    struct traffic *traffic = calloc(ranks, sizeof *traffic);
    if (l == NULL || traffic == NULL) abort();
    const double crowd = crowded(m, smaller(ranks, (size_t)m->ranks_per_node));
    for (size_t r = 0; r < ranks; r++)
        reduce_layout_of(n_items, (size_t)m->parameters, (int)ranks, (int)r, &l[r]);
    time_items(m, l, n_items, ranks, &t);
    const double slice = (double)(l[0].slice_end - l[0].slice_begin); /* the longest */
    t.sums += slice * m->update * crowd;
    for (size_t piece = 0; ranks > 1 && piece < l[0].n_pieces; piece++) {
        memset(traffic, 0, ranks * sizeof *traffic);
        double packed = 0;
        for (size_t owner = 0; owner < ranks; owner++) {
            packed += piece_of(&l[owner], piece);
            for (size_t r = 0; r < ranks; r++)
                send(m, traffic, r, owner, (double)l[r].n_own_roots * piece_of(&l[owner], piece) * sizeof(float));
        }
        double most = 0, roots = 0;
        for (size_t r = 0; r < ranks; r++) {
            most = fmax(most, traffic[r].out + traffic[r].local_out);
            roots = fmax(roots, (double)l[r].n_own_roots);
        }
        t.bytes += most;
        t.network += longest(m, traffic, ranks);
        t.sums += (roots * packed + (double)l[0].n_roots * piece_of(&l[0], piece)) * m->add * crowd;
    }
    if (ranks > 1) { /* the barrier before, then everybody's slice to everybody */
        memset(traffic, 0, ranks * sizeof *traffic);
        for (size_t r = 0; r < ranks; r++)
            for (size_t to = 0; to < ranks; to++)
                send(m, traffic, r, to, (double)(l[r].slice_end - l[r].slice_begin) * sizeof(float));
        t.network += small(m, ranks) + longest(m, traffic, ranks);
        t.bytes += (double)(ranks - 1) * slice * sizeof(float);
    }
    free(l);
    free(traffic);
    return t;
}

/* ---- measuring ---- */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *sample, size_t n)
{
    qsort(sample, n, sizeof *sample, by_value);
    return sample[n / 2];
}

struct bench {
    struct comm *c;
    struct vectors v;
    struct reduce *r;
    struct optimiser *o;
    float *a, *b;
    size_t n;
};

/* Seconds of one vector's addition and of the norm and update, each per float. */
static int measure_vectors(struct bench *b, double *add, double *update, struct tabft_failure *f)
{
    int error = 0;
    double sample[SAMPLES], sum;
    struct reduce *r = NULL;
    const struct optimiser_step step = {.learning_rate = 1e-9, .clip = 1};
    for (size_t i = 0; i < SAMPLES; i++) {
        const double from = now();
        for (size_t k = 0; k < b->n; k++) b->a[k] += b->b[k];
        sample[i] = (now() - from) / (double)b->n;
    }
    *add = median(sample, SAMPLES);
    TRY(reduce_open(&r, NULL, &b->v, 1, b->n, f));
    for (size_t i = 0; i < SAMPLES; i++) {
        const double from = now();
        TRY(reduce_square_sum(r, b->b, &sum, f));
        optimiser_step(b->o, &step, b->a, b->b);
        sample[i] = (now() - from) / (double)b->n;
    }
    *update = median(sample, SAMPLES);
fail:
    reduce_close(r);
    return error;
}

/* A small collective of all ranks, a level of its tree; and an exchange of all there is both ways between ranks 0 and 1. */
static int measure_messages(struct bench *b, double *latency, double *bandwidth, struct tabft_failure *f)
{
    int error = 0, code = 0;
    double sample[SAMPLES];
    size_t *counts = NULL;
    const size_t ranks = (size_t)comm_size(b->c), own = (size_t)comm_rank(b->c), bytes = b->n * sizeof(float);
    TRY(memory_new(&counts, 2 * ranks, sizeof *counts, "counts", f));
    if (own < 2) counts[1 - own] = bytes;
    for (size_t i = 0; i < SAMPLES; i++) {
        const double from = now();
        TRY(comm_agree(b->c, 0, &code, f));
        sample[i] = now() - from;
    }
    *latency = median(sample, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++) {
        TRY(comm_barrier(b->c, f));
        const double from = now();
        TRY(comm_exchange(b->c, b->a, counts, counts + ranks, b->b, counts, counts + ranks, f));
        sample[i] = now() - from;
    }
    const double took = median(sample, SAMPLES) - *latency;
    *latency /= ceil(log2((double)ranks));
    *bandwidth = (double)bytes / fmax(took, 1e-9);
fail:
    free(counts);
    return error;
}

static int measure(const char *parameters)
{
    int error = 0;
    struct tabft_failure f = {0};
    struct bench b = {.n = (size_t)atoll(parameters)};
    const struct comm_options options = {.timeout_s = 300};
    double add = 0, update = 0, latency = 0, bandwidth = 0;
    TRY(comm_open(&b.c, &options, &f));
    TRY(memory_new_aligned(&b.a, b.n, sizeof *b.a, "floats", &f));
    TRY(memory_new_aligned(&b.b, b.n, sizeof *b.b, "floats", &f));
    for (size_t i = 0; i < b.n; i++) b.b[i] = 1e-3f;
    vectors_host(&b.v, NULL);
    TRY(optimiser_open(&b.o, &b.v, b.n, &f));
    /* While the others wait, as if alone: the model knows how ranks share cores. */
    if (comm_rank(b.c) == 0) TRY(measure_vectors(&b, &add, &update, &f));
    TRY(comm_barrier(b.c, &f));
    if (comm_size(b.c) > 1) TRY(measure_messages(&b, &latency, &bandwidth, &f));
    if (comm_rank(b.c) == 0) {
        printf("add=%.3e\nupdate=%.3e\n", add, update);
        if (comm_size(b.c) > 1) printf("local_latency=%.3e\nlocal_bandwidth=%.3e\n", latency, bandwidth);
    }
    optimiser_close(b.o);
    free(b.a);
    free(b.b);
    comm_close(b.c);
    return 0;
fail:
    fprintf(stderr, "scaling_model: %s\n", f.message);
    comm_abort(b.c, tabft_exit_status(f.code));
    return error;
}

/* ---- the table ---- */

/* 0 where the word is no list of counts. */
static size_t list_of(const char *word, size_t list[LIST_MAX])
{
    size_t n = 0;
    char *end;
    for (const char *p = word; n < LIST_MAX; p = end + 1) {
        list[n] = strtoull(p, &end, 10);
        if (end == p || list[n] == 0 || list[n] > 1 << 20) return 0;
        n++;
        if (*end == '\0') return n;
        if (*end != ',') return 0;
    }
    return 0;
}

/* "1,1.4,2.1": none below 1. */
static bool set_slowdown(struct machine *m, const char *word)
{
    char *end;
    for (m->n_slowdown = 0; m->n_slowdown < LIST_MAX; word = end + 1) {
        const double value = strtod(word, &end);
        if (end == word || !(value >= 1) || !isfinite(value)) return false;
        m->slowdown[m->n_slowdown++] = value;
        if (*end == '\0') return true;
        if (*end != ',') return false;
    }
    return false;
}

static bool set(struct machine *m, const char *word)
{
    if (strncmp(word, "slowdown=", 9) == 0) return set_slowdown(m, word + 9);
    for (size_t i = 0; i < NAMES; i++) {
        const size_t length = strlen(names[i].name);
        if (strncmp(word, names[i].name, length) != 0 || word[length] != '=') continue;
        char *end;
        const double value = strtod(word + length + 1, &end);
        if (end == word + length + 1 || *end != '\0' || !(value >= 0) || !isfinite(value)) return false;
        memcpy((char *)m + names[i].offset, &value, sizeof value);
        return true;
    }
    return false;
}

static int run_predict(char **words)
{
    struct machine m = {0};
    size_t items[LIST_MAX], ranks[LIST_MAX], n_items = 0, n_ranks = 0;
    const double missing = NAN;
    for (size_t i = 0; i < NAMES; i++) memcpy((char *)&m + names[i].offset, &missing, sizeof missing);
    for (; *words != NULL; words++) {
        if (strncmp(*words, "items=", 6) == 0) n_items = list_of(*words + 6, items);
        else if (strncmp(*words, "ranks=", 6) == 0) n_ranks = list_of(*words + 6, ranks);
        else if (!set(&m, *words)) {
            fprintf(stderr, "scaling_model: '%s' is none of its NAME=VALUE\n", *words);
            return 2;
        }
    }
    for (size_t i = 0; i < NAMES; i++) {
        double value;
        memcpy(&value, (char *)&m + names[i].offset, sizeof value);
        if (isnan(value)) {
            fprintf(stderr, "scaling_model: %s is missing\n", names[i].name);
            return 2;
        }
    }
    if (n_items == 0 || n_ranks == 0 || m.parameters < 1 || m.ranks_per_node < 1 || !(m.bandwidth > 0) ||
        !(m.local_bandwidth > 0)) {
        fprintf(stderr, "scaling_model: items, ranks, parameters, ranks_per_node and bandwidths must be at least 1\n");
        return 2;
    }
    printf("%8s %6s %7s %11s %11s %11s %11s %11s %10s\n", "items", "ranks", "rounds", "step_s", "items_s", "sums_s", "network_s",
           "sent_MB", "efficiency");
    for (size_t i = 0; i < n_items; i++) {
        const struct step_time one = predict(&m, items[i], 1);
        for (size_t k = 0; k < n_ranks; k++) {
            const struct step_time t = predict(&m, items[i], ranks[k]);
            printf("%8zu %6zu %7zu %11.6f %11.6f %11.6f %11.6f %11.3f %10.3f\n", items[i], ranks[k], t.rounds, total(&t),
                   t.items, t.sums, t.network, 1e-6 * t.bytes, total(&one) / ((double)ranks[k] * total(&t)));
        }
    }
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "measure") == 0) return measure(arguments[2]) == 0 ? 0 : 4;
    if (count > 2 && strcmp(arguments[1], "predict") == 0) return run_predict(arguments + 2);
    fprintf(stderr, "scaling_model: see its source for the arguments\n");
    return 2;
}
