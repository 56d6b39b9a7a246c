"""Another reader of .tbf files, written from tbf(5) alone: prints what `tbf_sample list` prints, or says why not.
Standard library only; every rule of the page is checked, with an error for each that does not hold."""
import hashlib
import struct
import sys
import zlib

HEAD = bytes([0x1F, 0x8B, 8, 4, 0, 0, 0, 0, 0, 0xFF, 16, 0]) + b"TF" + bytes([12, 0])
PAGE = 65536


def need(holds, what):
    if not holds:
        raise ValueError(what)


def stored_size(raw):
    return raw + 5 * ((raw + 65534) // 65535)


def read_member(data, at):
    """The member that begins at byte `at`: its size, CRC and raw bytes."""
    need(data[at:at + 16] == HEAD, "gzip header")
    packed, raw_size, crc = struct.unpack_from("<III", data, at + 16)
    need(64 <= raw_size <= 1 << 24 and 2 <= packed <= stored_size(raw_size), "sizes")
    need(at + 36 + packed <= len(data), "cut")
    body = data[at + 28:at + 28 + packed]
    need(zlib.crc32(body) == crc, "CRC-32 of the deflate bytes")
    inflate = zlib.decompressobj(-15)
    raw = inflate.decompress(body, raw_size + 1)
    need(inflate.eof and not inflate.unused_data and len(raw) == raw_size, "deflate bytes")
    need(struct.unpack_from("<II", data, at + 28 + packed) == (zlib.crc32(raw), raw_size), "trailer")
    return 36 + packed, crc, raw


def from_planes(payload, width):
    whole = len(payload) // width
    items = bytearray(payload)
    for b in range(width):
        items[b:whole * width:width] = payload[b * whole:(b + 1) * whole]
    return bytes(items)


def read_record(raw, number, file_id):
    """(type, version, strategy, tag, tag), payload"""
    need(raw[:4] == b"TBF\x01", "record magic or container version")
    fields = struct.unpack_from("<IIIII", raw, 4)
    found, identity, size, zero = struct.unpack_from("<Q16sQQ", raw, 24)
    need(found == number, "member number")
    need(file_id is None or identity == file_id, "file id")
    need(size == len(raw) - 64 and zero == 0, "record size")
    need(fields[2] <= 2, "strategy")
    payload = raw[64:]
    if fields[2] > 0:
        payload = from_planes(payload, 4 * fields[2])
    return fields, payload, identity


def read_page(data, at, last):
    size, _, raw = read_member(data, at)
    number = struct.unpack_from("<Q", raw, 24)[0]
    fields, payload, identity = read_record(raw, number, None)
    need(fields == (0, 1, 0, 0, 0), "index")
    members, offset, file_size, page, pages = struct.unpack_from("<QQQII", payload)
    need(file_size == len(data), "size of the file")
    need(pages == max(1, -(-members // PAGE)), "number of pages")
    need(number == members + page and (page == pages - 1) == last, "page number")
    need(size == 36 + stored_size(len(raw)), "stored index")
    need(last or payload[32:64] == bytes(32), "digest in an earlier page")
    entries = [struct.unpack_from("<8I", payload, i) for i in range(64, len(payload), 32)]
    need(len(entries) == min(PAGE, members - page * PAGE), "number of entries")
    return members, offset, page, entries, payload[32:64], size, identity


def read_index(data):
    """Entries of all members, file id, digest, offset of the first page, places of the pages"""
    need(len(data) >= 36, "cut")
    raw_size = struct.unpack_from("<I", data, len(data) - 4)[0]
    end = len(data) - 36 - stored_size(raw_size)
    need(end >= 0, "no end mark")
    members, offset, page, tail, digest, _, identity = read_page(data, end, True)
    entries, at, pages = [], offset, []
    for k in range(page):
        found = read_page(data, at, False)
        need(found[:3] == (members, offset, k) and found[6] == identity, "earlier page")
        pages.append((at, found[5]))
        entries += found[3]
        at += found[5]
    need(at == end, "place of the end mark")
    entries += tail
    need(sum(entry[0] for entry in entries) == offset, "sum of the sizes")
    return entries, identity, digest, pages


def decode(data):
    entries, identity, digest, pages = read_index(data)
    at, leaves, lines = 0, hashlib.sha256(), []
    for number, entry in enumerate(entries):
        size, crc, raw = read_member(data, at)
        fields, payload, _ = read_record(raw, number, identity)
        need((size, len(raw), crc) + fields == entry, "entry of the index")
        lines.append("%d %d %d %d %d %d %s" % (number, fields[0], fields[1], fields[3], fields[4], len(payload),
                                               hashlib.sha256(payload).hexdigest()))
        leaves.update(hashlib.sha256(data[at:at + size]).digest())
        at += size
    for place, size in pages:
        leaves.update(hashlib.sha256(data[place:place + size]).digest())
    need(leaves.digest() == digest, "digest")
    return lines + [identity.hex(), digest.hex()]


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    try:
        lines = decode(data)
    except (ValueError, struct.error, zlib.error) as error:
        sys.exit("%s: refused: %s" % (sys.argv[1], error))
    print("\n".join(lines))


main()
