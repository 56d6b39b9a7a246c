/* The names and layouts of the checkpoints that v2 and v2.5 were published with ("base"): a block's q, k and v are one
 * tensor [3][heads][head width][width], and its output projection is [heads][head width][width]. */
#define TABFT_MODEL_ROOM
#include <stdio.h>
#include <string.h>

#include "model/v2_family_internal.h"

enum layout { AS_IT_IS, QUERY, KEY, VALUE, TRANSPOSED };
enum { NAME_SIZE = 256 };

static const struct {
    const char *ours, *base; /* behind "blocks.N." and "transformer_encoder.layers.N." */
    enum layout layout;
} in_blocks[] = {
    {"mlp.0.weight", "mlp.linear1.weight", AS_IT_IS},
    {"mlp.2.weight", "mlp.linear2.weight", AS_IT_IS},
    {"per_sample_attention_between_features.q_projection.weight", "self_attn_between_features._w_qkv", QUERY},
    {"per_sample_attention_between_features.k_projection.weight", "self_attn_between_features._w_qkv", KEY},
    {"per_sample_attention_between_features.v_projection.weight", "self_attn_between_features._w_qkv", VALUE},
    {"per_sample_attention_between_features.out_projection.weight", "self_attn_between_features._w_out", TRANSPOSED},
    {"per_column_attention_between_cells.q_projection.weight", "self_attn_between_items._w_qkv", QUERY},
    {"per_column_attention_between_cells.k_projection.weight", "self_attn_between_items._w_qkv", KEY},
    {"per_column_attention_between_cells.v_projection.weight", "self_attn_between_items._w_qkv", VALUE},
    {"per_column_attention_between_cells.out_projection.weight", "self_attn_between_items._w_out", TRANSPOSED},
};

/* Encoders were lists of steps; where the one with weights stands depends on the steps before it, which have none. */
static const struct {
    const char *ours, *before, *behind; /* before, a number, behind */
} with_a_step[] = {
    {"feature_group_embedder.weight", "encoder.", ".layer.weight"},
    {"feature_group_embedder.0.weight", "encoder.", ".mlp.0.weight"},
    {"feature_group_embedder.2.weight", "encoder.", ".mlp.2.weight"},
    {"target_embedder.weight", "y_encoder.", ".layer.weight"},
    {"target_embedder.bias", "y_encoder.", ".layer.bias"},
};

static const char *const others[][2] = {
    {"add_thinking_rows.row_token_values_TE", "add_thinking_tokens.row_token_values"},
    {"output_projection.0.weight", "decoder_dict.standard.0.weight"},
    {"output_projection.0.bias", "decoder_dict.standard.0.bias"},
    {"output_projection.2.weight", "decoder_dict.standard.2.weight"},
    {"output_projection.2.bias", "decoder_dict.standard.2.bias"},
};

#define LENGTH(list) (sizeof(list) / sizeof *(list))

/* The block's number and, behind it, the rest of a parameter's name; NULL outside of blocks. */
static const char *split_name(const char *name, size_t *block)
{
    int used = 0;
    return sscanf(name, "blocks.%zu.%n", block, &used) == 1 && used > 0 ? name + used : NULL;
}

static bool starts_and_ends(const char *text, const char *before, const char *behind)
{
    const size_t n = strlen(text), b = strlen(before), e = strlen(behind);
    if (n <= b + e || strncmp(text, before, b) != 0 || strcmp(text + n - e, behind) != 0) return false;
    return strspn(text + b, "0123456789") == n - b - e;
}

static const struct ckpt_tensor *find_step(const struct ckpt *c, const char *before, const char *behind)
{
    for (size_t i = 0; i < ckpt_count(c); i++)
        if (starts_and_ends(ckpt_at(c, i)->name, before, behind)) return ckpt_at(c, i);
    return NULL;
}

static const struct ckpt_tensor *find(const struct ckpt *c, const char *name, enum layout *layout)
{
    size_t block;
    const char *rest = split_name(name, &block);
    *layout = AS_IT_IS;
    for (size_t i = 0; rest != NULL && i < LENGTH(in_blocks); i++) {
        if (strcmp(rest, in_blocks[i].ours) != 0) continue;
        char base[NAME_SIZE];
        (void)snprintf(base, sizeof base, "transformer_encoder.layers.%zu.%s", block, in_blocks[i].base);
        *layout = in_blocks[i].layout;
        return ckpt_find(c, base);
    }
    for (size_t i = 0; i < LENGTH(with_a_step); i++)
        if (strcmp(name, with_a_step[i].ours) == 0) return find_step(c, with_a_step[i].before, with_a_step[i].behind);
    for (size_t i = 0; i < LENGTH(others); i++)
        if (strcmp(name, others[i][0]) == 0) return ckpt_find(c, others[i][1]);
    return NULL;
}

static bool has_shape(const struct ckpt_tensor *t, int rank, const size_t shape[4])
{
    bool same = t->rank == rank;
    for (int d = 0; d < rank && same; d++) same = t->shape[d] == shape[d];
    return same;
}

int v2_family_base_source(const struct model *m, const struct model_parameter *p, const struct ckpt *c,
                          struct model_source *out, struct tabft_failure *f)
{
    enum layout layout;
    const struct ckpt_tensor *t = find(c, p->name, &layout);
    const size_t width = m->config.width, heads = m->config.heads, of_head = width / heads;
    *out = (struct model_source){.tensor = t, .row = p->shape[1], .column = 1};
    if (t == NULL) return 0;
    bool right;
    if (layout == AS_IT_IS) {
        right = has_shape(t, p->rank, p->shape);
    } else if (layout == TRANSPOSED) {
        right = has_shape(t, 3, (size_t[4]){heads, of_head, width});
        out->row = 1;
        out->column = width;
    } else {
        right = has_shape(t, 4, (size_t[4]){3, heads, of_head, width});
        out->first = (size_t)(layout - QUERY) * width * width;
    }
    if (right) return 0;
    return tabft_fail(f, TABFT_INPUT, "tensor %.200s: its shape is not what the config says", t->name);
}
