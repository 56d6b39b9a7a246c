/* The index: what members a file has, in pages of TBF_PAGE_ENTRIES entries; the last page is the end mark. */
#include "base/memory.h"
#include "tbf/tbf_internal.h"

int tbf_list_add(struct tbf_list *list, const struct tbf_entry *entry, struct tabft_failure *f)
{
    if (list->count == list->room) {
        uint64_t room = list->room == 0 ? 64 : list->room * 2;
        int error = memory_grow(&list->entry, room, sizeof *list->entry, "the index of a .tbf file", f);
        if (error < 0) return error;
        list->room = room;
    }
    list->entry[list->count++] = *entry;
    return 0;
}

uint64_t tbf_page_entries(uint64_t members, uint64_t page)
{
    uint64_t first = page * TBF_PAGE_ENTRIES, left = members < first ? 0 : members - first;
    return left < TBF_PAGE_ENTRIES ? left : TBF_PAGE_ENTRIES;
}

uint64_t tbf_page_size(uint64_t members, uint64_t page)
{
    uint64_t raw = TBF_RECORD_HEADER + TBF_INDEX_HEADER + tbf_page_entries(members, page) * TBF_ENTRY_SIZE;
    return TBF_HEAD_SIZE + (uint64_t)tbf_stored_size((uint32_t)raw) + TBF_TAIL_SIZE;
}

void tbf_index_write(uint8_t *payload, const struct tbf_index *index, const struct tbf_entry *entry)
{
    put_u64(payload, index->members);
    put_u64(payload + 8, index->index_offset);
    put_u64(payload + 16, index->file_size);
    put_u32(payload + 24, index->page);
    put_u32(payload + 28, index->pages);
    memcpy(payload + 32, index->digest, TBF_DIGEST_SIZE);
    uint8_t *p = payload + TBF_INDEX_HEADER;
    for (uint64_t i = 0; i < tbf_page_entries(index->members, index->page); i++, p += TBF_ENTRY_SIZE) {
        put_u32(p, (uint32_t)entry[i].packed_size);
        put_u32(p + 4, (uint32_t)entry[i].raw_size);
        put_u32(p + 8, entry[i].crc);
        put_u32(p + 12, entry[i].type);
        put_u32(p + 16, entry[i].version);
        put_u32(p + 20, entry[i].strategy);
        put_u32(p + 24, entry[i].tag[0]);
        put_u32(p + 28, entry[i].tag[1]);
    }
}

bool tbf_entry_read(struct tbf_entry *entry, const uint8_t *p)
{
    entry->packed_size = get_u32(p);
    entry->raw_size = get_u32(p + 4);
    entry->crc = get_u32(p + 8);
    entry->type = get_u32(p + 12);
    entry->version = get_u32(p + 16);
    entry->strategy = get_u32(p + 20);
    entry->tag[0] = get_u32(p + 24);
    entry->tag[1] = get_u32(p + 28);
    return entry->raw_size >= TBF_RECORD_HEADER && entry->raw_size <= TBF_RAW_MAX &&
           entry->packed_size >= TBF_MEMBER_MIN &&
           entry->packed_size <= TBF_HEAD_SIZE + (uint64_t)tbf_stored_size((uint32_t)entry->raw_size) + TBF_TAIL_SIZE &&
           entry->type != TBF_TYPE_INDEX && entry->strategy <= TBF_SHUFFLE8;
}

int tbf_index_read(struct tbf_index *index, const struct tbf_place *place, const struct tbf_record *record,
                   struct tabft_failure *f)
{
    const uint8_t *p = record->data;
    if (record->version != TBF_INDEX_VERSION || record->strategy != TBF_PLAIN || record->tag[0] != 0 ||
        record->tag[1] != 0)
        return tbf_fail(f, place, "an index of unknown kind (version %u)", record->version);
    if (record->size < TBF_INDEX_HEADER) return tbf_fail(f, place, "an index of %zu bytes", record->size);
    *index = (struct tbf_index){.members = get_u64(p),
                                .index_offset = get_u64(p + 8),
                                .file_size = get_u64(p + 16),
                                .page = get_u32(p + 24),
                                .pages = get_u32(p + 28)};
    memcpy(index->digest, p + 32, TBF_DIGEST_SIZE);
    /* The counts are bounded by the bytes that must be there for them, before anybody allocates by them. */
    if (index->file_size > INT64_MAX || index->index_offset > index->file_size ||
        index->members > index->index_offset / TBF_MEMBER_MIN)
        return tbf_fail(f, place, "an index whose counts and sizes cannot be");
    uint64_t pages = tbf_index_pages(index->members);
    if (index->pages != pages || index->page >= pages || place->number != index->members + index->page ||
        record->size != TBF_INDEX_HEADER + tbf_page_entries(index->members, index->page) * TBF_ENTRY_SIZE)
        return tbf_fail(f, place, "an index whose pages do not fit its %llu members",
                        (unsigned long long)index->members);
    uint64_t size = index->index_offset;
    for (uint64_t i = 0; i < pages; i++) {
        if (i == index->page && size != place->offset)
            return tbf_fail(f, place, "an index that lies elsewhere than it says");
        size += tbf_page_size(index->members, i);
    }
    if (size != index->file_size) return tbf_fail(f, place, "an index whose sizes do not add up");
    return 0;
}
