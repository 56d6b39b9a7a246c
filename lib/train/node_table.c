#include "train/node_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/available.h"
#include "base/memory.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "file/file_shared.h"
#include "table/store.h"
#include "table/table.h"
#include "train/train_internal.h"

struct node_table {
    size_t bytes, valid_at; /* of both tables; where that of --valid begins */
    struct file_shared *shared;
    void *alone; /* or memory of this rank's own */
};

/* ---- who is here ---- */

int neighbours_find(struct trainer *t, struct neighbours *out, struct tabft_failure *f)
{
    int error = 0, size = comm_size(t->c), rank = comm_rank(t->c);
    struct place {
        char host[64];
    } own = {0}, *all = NULL;
    TRY(memory_new(&all, (size_t)size, sizeof *all, "the nodes of all ranks", f));
    (void)snprintf(own.host, sizeof own.host, "%s", comm_host(t->c));
    TRY(comm_gather_all(t->c, &own, sizeof own, all, f));
    *out = (struct neighbours){.leader = -1};
    for (int i = 0; i < size; i++) {
        if (strcmp(all[i].host, own.host) != 0) continue;
        if (out->leader < 0) out->leader = i;
        out->place += i < rank;
        out->n++;
    }
fail:
    free(all);
    return error;
}

/* ---- sizes ---- */

static struct table_part part_of(const struct train_data *d, bool valid)
{
    const struct table *t = valid ? d->valid : d->table;
    return (struct table_part){.table = t,
                               .column = valid ? d->valid_column : d->column,
                               .n_columns = d->n_columns,
                               .n_rows = t->n_rows,
                               .whole = true};
}

size_t node_table_bytes(const struct train_data *d)
{
    struct table_part part = part_of(d, false), valid;
    size_t bytes = table_part_bytes(&part);
    if (d->valid == NULL) return bytes;
    valid = part_of(d, true);
    size_t more = table_part_bytes(&valid);
    return bytes > SIZE_MAX - more ? SIZE_MAX : bytes + more;
}

/* Shared memory counts as memory of the node and of its ranks' cgroups, and has a limit of its own. */
static int check_room(const struct trainer *t, size_t bytes, struct tabft_failure *f)
{
    uint64_t left = memory_available(), room = t->near.n > 1 ? file_shared_room() : UINT64_MAX;
    if (bytes > left)
        return tabft_fail(f, TABFT_SYSTEM,
                          "%s: its cells take %zu bytes on each node and %s has %" PRIu64 " left (machine or cgroup); "
                          "--stream reads them from disk, or ask for more memory a node",
                          t->data.table->path, bytes, comm_host(t->c), left);
    if (bytes > room)
        return tabft_fail(f, TABFT_SYSTEM,
                          "%s: its cells take %zu bytes that the %d ranks of %s share in /dev/shm, which has %" PRIu64
                          " left; --stream reads them from disk, or have /dev/shm enlarged (mount -o remount,size=...)",
                          t->data.table->path, bytes, t->near.n, comm_host(t->c), room);
    return 0;
}

/* ---- memory ---- */

/* The leader of each node makes a name, which all ranks are told; everybody joins; the name goes. */
static int share_name(struct trainer *t, struct node_table *n, struct tabft_failure *f)
{
    int error = 0, code = 0;
    bool leads = t->near.n > 1 && t->near.place == 0;
    struct name {
        char text[FILE_SHARED_NAME];
    } own = {0}, *all = NULL;
    if (leads) code = file_shared_create(&n->shared, own.text, f);
    if (code == 0) code = memory_new(&all, (size_t)comm_size(t->c), sizeof *all, "the names of shared memory", f);
    TRY(trainer_agree(t, code, f));
    TRY(comm_gather_all(t->c, &own, sizeof own, all, f));
    if (t->near.n > 1 && !leads) code = file_shared_join(&n->shared, all[t->near.leader].text, f);
    TRY(trainer_agree(t, code, f));
    if (leads) code = file_shared_unlink(n->shared, f);
    if (leads && code == 0) code = file_shared_resize(n->shared, n->bytes, f);
    TRY(trainer_agree(t, code, f));
fail:
    free(all);
    return error;
}

/* Maps it and takes this rank's share of the memory. */
static int map(const struct trainer *t, struct node_table *n, struct tabft_failure *f)
{
    int error = 0;
    size_t ranks = (size_t)t->near.n, place = (size_t)t->near.place, each = n->bytes / ranks / 4096 * 4096;
    if (n->shared == NULL) return memory_new_aligned(&n->alone, n->bytes, 1, "the table", f);
    TRY(file_shared_map(n->shared, n->bytes, f));
    TRY(file_shared_reserve(n->shared, place * each, place + 1 == ranks ? n->bytes : (place + 1) * each, f));
fail:
    return error;
}

static int fill(struct trainer *t, struct node_table *n, struct tabft_failure *f)
{
    int error = 0;
    struct train_data *d = &t->data;
    char *memory = n->shared != NULL ? file_shared_data(n->shared) : n->alone;
    struct table_part part = part_of(d, false);
    TRY(table_store_open(&d->cells, &part, memory, f));
    TRY(table_store_fill(d->cells, t->pool, (size_t)t->near.place, (size_t)t->near.n, f));
    if (d->valid == NULL) return 0;
    struct table_part valid = part_of(d, true);
    TRY(table_store_open(&d->valid_cells, &valid, memory + n->valid_at, f));
    TRY(table_store_fill(d->valid_cells, t->pool, (size_t)t->near.place, (size_t)t->near.n, f));
fail:
    return error;
}

/* When all ranks of the node have filled their share. */
static int finish(struct trainer *t, struct node_table *n, struct tabft_failure *f)
{
    int error = 0;
    TRY(table_store_check(t->data.cells, f));
    if (t->data.valid_cells != NULL) TRY(table_store_check(t->data.valid_cells, f));
    if (n->shared != NULL) TRY(file_shared_finish(n->shared, f));
fail:
    return error;
}

int node_table_open(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct node_table *n = NULL;
    TRY(trainer_agree(t, memory_new(&t->node, 1, sizeof *t->node, "the table", f), f));
    n = t->node;
    struct table_part part = part_of(&t->data, false);
    n->valid_at = table_part_bytes(&part);
    n->bytes = node_table_bytes(&t->data);
    TRY(trainer_agree(t, check_room(t, n->bytes, f), f));
    TRY(share_name(t, n, f));
    TRY(trainer_agree(t, map(t, n, f), f));
    TRY(trainer_agree(t, fill(t, n, f), f));
    TRY(trainer_agree(t, finish(t, n, f), f));
fail:
    return error;
}

uint64_t trainer_memory_peak(const struct trainer *t)
{
    /* All of it is resident in each of these ranks from file_shared_finish on. */
    uint64_t peak = memory_peak(), shared = t->node == NULL || t->node->shared == NULL ? 0 : t->node->bytes;
    return (peak > shared ? peak - shared : 0) + shared / (uint64_t)t->near.n;
}

void node_table_close(struct node_table *n)
{
    if (n == NULL) return;
    file_shared_close(n->shared);
    free(n->alone);
    free(n);
}
