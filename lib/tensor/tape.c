#define TABFT_TENSOR_ROOM
#include "tensor/tape.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "tensor/tape_internal.h"

int tape_open(struct tape **out, struct tabft_failure *f)
{
    int error = memory_new(out, 1, sizeof **out, "a tape", f);
    if (error == 0) (*out)->segment = -1;
    return error;
}

void tape_close(struct tape *t)
{
    if (t == NULL) return;
    free(t->values);
    free(t->nodes);
    free(t);
}

/* Room for one more element in a growing list; false after the failure is noted. */
static bool make_room(struct tape *t, void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room) return true;
    size_t larger = *room == 0 ? 64 : *room * 2;
    if (memory_grow(list, larger, size, "a tape", &t->failure) < 0) return false;
    *room = larger;
    return true;
}

static int new_value(struct tape *t, struct tape_value value)
{
    size_t count;
    if (t->failure.code != 0) return 0;
    if (!size_mul(value.rows, value.width, &count) || count > SIZE_MAX / sizeof(float)) {
        (void)tabft_fail(&t->failure, TABFT_SYSTEM,
                         "a tensor of %zu x %zu numbers does not fit this machine; use fewer rows", value.rows,
                         value.width);
        return 0;
    }
    if (!make_room(t, &t->values, t->n_values, &t->values_room, sizeof *t->values)) return 0;
    t->values[t->n_values] = value;
    return (int)t->n_values++;
}

size_t tape_rows(const struct tape *t, int value) { return t->failure.code != 0 ? 0 : t->values[value].rows; }
size_t tape_width(const struct tape *t, int value) { return t->failure.code != 0 ? 0 : t->values[value].width; }

int tape_input(struct tape *t, size_t rows, size_t width)
{
    return new_value(t, (struct tape_value){.origin = TAPE_INPUT, .rows = rows, .width = width, .node = -1});
}

int tape_parameter(struct tape *t, size_t offset, size_t rows, size_t width)
{
    return new_value(t, (struct tape_value){.origin = TAPE_PARAMETER,
                                            .rows = rows,
                                            .width = width,
                                            .offset = offset,
                                            .node = -1,
                                            .has_gradient = true});
}

int tape_kept(struct tape *t, size_t rows, size_t width)
{
    return new_value(t,
                     (struct tape_value){.origin = TAPE_INPUT, .rows = rows, .width = width, .node = -1, .kept = true});
}

void tape_keep(struct tape *t, int value)
{
    if (t->failure.code != 0) return;
    assert(t->values[value].origin == TAPE_COMPUTED);
    t->values[value].kept = true;
}

/* Records one operation with up to four inputs; its first output is [rows][width], its second, if any,
 * [rows2][width2]. */
static int record(struct tape *t, struct op op, const int in[OP_INPUTS_MAX], size_t rows, size_t width, size_t rows2,
                  size_t width2)
{
    if (t->failure.code != 0) return 0;
    struct tape_node node = {.op = op, .segment = t->segment, .out = {TAPE_NONE, TAPE_NONE}};
    bool has_gradient = false;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        node.in[i] = in[i];
        if (in[i] != TAPE_NONE) has_gradient |= t->values[in[i]].has_gradient;
    }
    if (!make_room(t, &t->nodes, t->n_nodes, &t->nodes_room, sizeof *t->nodes)) return 0;
    struct tape_value value = {
        .origin = TAPE_COMPUTED, .rows = rows, .width = width, .node = (int)t->n_nodes, .has_gradient = has_gradient};
    node.out[0] = new_value(t, value);
    if (width2 != 0) {
        value.rows = rows2;
        value.width = width2;
        node.out[1] = new_value(t, value);
    }
    if (t->failure.code != 0) return 0;
    t->nodes[t->n_nodes++] = node;
    return node.out[0];
}

int tape_linear(struct tape *t, int x, size_t rows, int w, int bias, int residual)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    assert(rows * v[w].width <= v[x].rows * v[x].width);
    assert(bias == TAPE_NONE || v[bias].rows * v[bias].width == v[w].rows);
    assert(residual == TAPE_NONE || (v[residual].rows == rows && v[residual].width == v[w].rows));
    struct op op = {.kind = OP_LINEAR, .linear = {rows, v[w].width, v[w].rows}};
    return record(t, op, (int[]){x, w, bias, residual}, rows, v[w].rows, 0, 0);
}

int tape_attention(struct tape *t, const struct op_attention *sizes, int q, int k, int v)
{
    if (t->failure.code != 0) return 0;
    assert(sizes->heads % sizes->context_kv_heads == 0 && sizes->heads % sizes->query_kv_heads == 0);
    assert(sizes->n_keys > 0 && (sizes->n_context > 0 || sizes->context_kv_heads <= sizes->query_kv_heads));
    assert(sizes->n_query > 0 || sizes->query_kv_heads <= sizes->context_kv_heads); /* no key-value head without rows */
    struct op op = {.kind = OP_ATTENTION, .attention = *sizes};
    size_t tokens = t->values[q].rows;
    assert(tokens == sizes->sequences * (sizes->n_context + sizes->n_query));
    return record(t, op, (int[]){q, k, v, TAPE_NONE}, tokens, sizes->heads * sizes->width, tokens, sizes->heads * 2);
}

int tape_rms_norm(struct tape *t, int x, int w, float epsilon)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    assert(v[w].rows * v[w].width == v[x].width);
    struct op op = {.kind = OP_RMS_NORM, .rms_norm = {v[x].rows, v[x].width, epsilon}};
    return record(t, op, (int[]){x, w, TAPE_NONE, TAPE_NONE}, v[x].rows, v[x].width, 0, 0);
}

int tape_layer_norm(struct tape *t, int x, int w, int bias, float epsilon)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    assert((w == TAPE_NONE) == (bias == TAPE_NONE));
    assert(w == TAPE_NONE || (v[w].width == v[x].width && v[bias].width == v[x].width));
    struct op op = {.kind = OP_LAYER_NORM, .layer_norm = {v[x].rows, v[x].width, epsilon}};
    return record(t, op, (int[]){x, w, bias, TAPE_NONE}, v[x].rows, v[x].width, 0, 0);
}

int tape_gelu(struct tape *t, int x)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = &t->values[x];
    struct op op = {.kind = OP_GELU, .gelu = {v->rows, v->width}};
    return record(t, op, (int[]){x, TAPE_NONE, TAPE_NONE, TAPE_NONE}, v->rows, v->width, 0, 0);
}

int tape_assemble(struct tape *t, int feature, int column, int target, int thinking)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_assemble a = {thinking == TAPE_NONE ? 0 : v[thinking].rows, v[target].rows, v[column].rows,
                            v[target].width};
    assert(thinking == TAPE_NONE || v[thinking].width == a.width);
    assert(v[feature].rows == a.n_rows * a.n_groups && v[feature].width == a.width &&
           v[column].width == a.width);
    size_t rows;
    if (!size_mul(a.n_thinking + a.n_rows, a.n_groups + 1, &rows)) rows = SIZE_MAX;
    struct op op = {.kind = OP_ASSEMBLE, .assemble = a};
    return record(t, op, (int[]){feature, column, target, thinking}, rows, a.width, 0, 0);
}

int tape_select_pieces(struct tape *t, int x, size_t width, size_t first, size_t step, size_t run, size_t groups)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = &t->values[x];
    assert(groups == 0 || (first + (groups - 1) * step + run) * width <= v->rows * v->width);
    (void)v;
    struct op op = {.kind = OP_SELECT, .select = {first, step, run, groups * run, width}};
    return record(t, op, (int[]){x, TAPE_NONE, TAPE_NONE, TAPE_NONE}, groups * run, width, 0, 0);
}

int tape_select_runs(struct tape *t, int x, size_t first, size_t step, size_t run, size_t groups)
{
    return t->failure.code != 0 ? 0 : tape_select_pieces(t, x, t->values[x].width, first, step, run, groups);
}

int tape_select(struct tape *t, int x, size_t first, size_t step, size_t rows)
{
    return tape_select_runs(t, x, first, step, 1, rows);
}

int tape_prepend(struct tape *t, int lead, int x, size_t rows)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_prepend p = {rows, v[lead].rows, x == TAPE_NONE ? 0 : v[x].rows / rows, v[lead].width};
    assert(x == TAPE_NONE || (v[x].rows == rows * p.columns && v[x].width == p.width));
    size_t all;
    if (!size_mul(rows, p.lead + p.columns, &all)) all = SIZE_MAX;
    struct op op = {.kind = OP_PREPEND, .prepend = p};
    return record(t, op, (int[]){lead, x, TAPE_NONE, TAPE_NONE}, all, p.width, 0, 0);
}

int tape_add_rows(struct tape *t, int x, size_t tokens, int y)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_add_rows a = {v[x].rows * v[x].width / v[y].width, tokens, v[y].rows, v[y].width};
    assert(a.tokens_in_all * a.width == v[x].rows * v[x].width && a.rows * tokens <= a.tokens_in_all);
    struct op op = {.kind = OP_ADD_ROWS, .add_rows = a};
    return record(t, op, (int[]){x, y, TAPE_NONE, TAPE_NONE}, a.tokens_in_all, a.width, 0, 0);
}

int tape_lookup(struct tape *t, int table, int codes)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op op = {.kind = OP_LOOKUP, .lookup = {v[table].rows, v[codes].rows, v[table].width}};
    return record(t, op, (int[]){table, codes, TAPE_NONE, TAPE_NONE}, v[codes].rows, v[table].width, 0, 0);
}

int tape_heads(struct tape *t, const struct op_heads *sizes, int x, int turns, int w)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_heads h = *sizes;
    h.rows = v[x].rows;
    h.width = v[x].width;
    assert(h.heads * h.head_width <= h.width);
    assert(turns == TAPE_NONE ||
           (h.tokens <= v[turns].rows && h.head_width == v[turns].width && h.head_width % 2 == 0));
    assert((w == TAPE_NONE) == (h.norms == 0));
    assert(w == TAPE_NONE || (v[w].rows == h.norms && v[w].width == h.head_width && h.heads % h.norms == 0));
    struct op op = {.kind = OP_HEADS, .heads = h};
    return record(t, op, (int[]){x, turns, w, TAPE_NONE}, h.rows, h.width, 0, 0);
}

int tape_fourier(struct tape *t, int x, int frequencies)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_fourier s = {v[x].rows, v[x].width, v[frequencies].rows, v[frequencies].width};
    assert(s.numbers <= s.x_width && !v[x].has_gradient);
    size_t width;
    if (!size_mul(s.frequencies, 2, &width)) width = SIZE_MAX;
    struct op op = {.kind = OP_FOURIER, .fourier = s};
    return record(t, op, (int[]){x, frequencies, TAPE_NONE, TAPE_NONE}, s.rows, width, 0, 0);
}

int tape_modulate(struct tape *t, int q, int m, int base)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    assert(v[m].rows * v[m].width == v[q].rows * v[q].width && v[base].rows * v[base].width == v[q].width);
    struct op op = {.kind = OP_MODULATE, .modulate = {v[q].rows, v[q].width}};
    return record(t, op, (int[]){q, m, base, TAPE_NONE}, v[q].rows, v[q].width, 0, 0);
}

int tape_vote(struct tape *t, int q, int k, int codes, size_t heads, size_t n_classes)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_vote o = {v[q].rows, v[k].rows, heads, v[q].width / heads, n_classes};
    assert(v[q].width == heads * o.width && v[k].width == v[q].width && v[codes].rows == o.n_keys);
    struct op op = {.kind = OP_VOTE, .vote = o};
    return record(t, op, (int[]){q, k, codes, TAPE_NONE}, o.rows, n_classes, o.rows, heads * (2 + n_classes));
}

int tape_cross_entropy(struct tape *t, int logits, int labels, int permutation, double scale)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op_cross_entropy c = {v[logits].rows, v[logits].width, v[permutation].rows, scale};
    assert(v[labels].rows == c.rows && c.n_classes <= c.width);
    struct op op = {.kind = OP_CROSS_ENTROPY, .cross_entropy = c};
    return record(t, op, (int[]){logits, labels, permutation, TAPE_NONE}, 1, 2, 0, 0);
}

int tape_bar_loss(struct tape *t, const struct op_bar_loss *loss, int logits, int target, int borders, int impossible)
{
    if (t->failure.code != 0) return 0;
    const struct tape_value *v = t->values;
    struct op op = {.kind = OP_BAR_LOSS, .bar_loss = *loss};
    op.bar_loss.rows = v[logits].rows;
    op.bar_loss.width = v[logits].width;
    assert(v[target].rows == v[logits].rows && v[borders].width == v[logits].width + 1 &&
           v[impossible].width == v[logits].width);
    return record(t, op, (int[]){logits, target, borders, impossible}, 1, 2, 0, 0);
}

void tape_segment(struct tape *t) { t->segment = t->n_segments++; }
void tape_segment_end(struct tape *t) { t->segment = -1; }

/* The operation that made a value, or NULL. */
static const struct tape_node *maker_of(const struct tape *t, int value)
{
    return t->failure.code != 0 || t->values[value].node < 0 ? NULL : &t->nodes[t->values[value].node];
}

void tape_cheap(struct tape *t, int value)
{
    const struct tape_node *n = maker_of(t, value);
    for (int i = 0; n != NULL && i < OP_OUTPUTS_MAX; i++)
        if (n->out[i] != TAPE_NONE) t->values[n->out[i]].cheap = true;
}

void tape_dear(struct tape *t, int value)
{
    const struct tape_node *n = maker_of(t, value);
    for (int i = 0; n != NULL && i < OP_OUTPUTS_MAX; i++)
        if (n->out[i] != TAPE_NONE) t->values[n->out[i]].dear = true;
}
