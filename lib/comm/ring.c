#include "comm/ring_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESS_WAIT_MS = 3000, HELLO_WAIT_MS = 2000 };

/* What the dialling side says first. */
struct hello {
    char magic[8];
    char token[RING_TOKEN_SIZE + 3];
    int32_t rank;
};

static const char hello_magic[8] = "TABFTrg1";

void ring_listener_none(struct ring_listener *l) { *l = (struct ring_listener){-1, 0}; }

void ring_listener_close(struct ring_listener *l)
{
    if (l->fd >= 0) close(l->fd);
    ring_listener_none(l);
}

/* A socket for IPv6 and IPv4 alike, or for IPv4 where the kernel has no IPv6. */
static int bind_any(struct ring_listener *l)
{
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in any4 = {.sin_family = AF_INET};
    const int off = 0;
    l->fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd >= 0 && setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
        bind(l->fd, (const struct sockaddr *)&any6, sizeof any6) == 0)
        return 0;
    ring_listener_close(l);
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return l->fd >= 0 ? bind(l->fd, (const struct sockaddr *)&any4, sizeof any4) : -1;
}

int ring_listen(struct ring_listener *l, struct tabft_failure *f)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (bind_any(l) != 0 || listen(l->fd, 16) != 0 || getsockname(l->fd, (struct sockaddr *)&bound, &size) != 0)
        return tabft_fail(f, TABFT_SYSTEM, "the watchdog cannot listen: %s", strerror(errno));
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    memcpy(&in4, &bound, sizeof in4);
    memcpy(&in6, &bound, sizeof in6);
    l->port = ntohs(bound.ss_family == AF_INET ? in4.sin_port : in6.sin6_port);
    return 0;
}

/* "<boot id>/<network namespace>", so that only processes that share a loopback device are equal. */
static int machine_name(char name[RING_MACHINE_SIZE], struct tabft_failure *f)
{
    char boot[40] = "", space[32] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    const bool read_boot = file != NULL && fscanf(file, "%36s", boot) == 1;
    if (file != NULL) (void)fclose(file);
    const ssize_t n = readlink("/proc/self/ns/net", space, sizeof space - 1);
    if (!read_boot || n <= 0)
        return tabft_fail(f, TABFT_SYSTEM, "the watchdog needs /proc: boot_id or ns/net cannot be read");
    (void)snprintf(name, RING_MACHINE_SIZE, "%s/%s", boot, space);
    return 0;
}

/* The addresses by which other nodes may reach this one. */
static int own_addresses(struct ring_card *card, struct tabft_failure *f)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) return tabft_fail(f, TABFT_SYSTEM, "the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *i = all; i != NULL && card->n_addresses < RING_ADDRESSES; i = i->ifa_next) {
        if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        const void *address = NULL;
        if (i->ifa_addr->sa_family == AF_INET) {
            memcpy(&in4, i->ifa_addr, sizeof in4);
            address = &in4.sin_addr;
        } else if (i->ifa_addr->sa_family == AF_INET6) {
            memcpy(&in6, i->ifa_addr, sizeof in6);
            if (!IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) address = &in6.sin6_addr;
        }
        if (address != NULL && inet_ntop(i->ifa_addr->sa_family, address, card->addresses[card->n_addresses],
                                         RING_ADDRESS_SIZE) != NULL)
            card->n_addresses++;
    }
    freeifaddrs(all);
    return 0;
}

int ring_card_make(struct ring_card *card, const struct ring_listener *l, const char *host, const char *agreement,
                   struct tabft_failure *f)
{
    int error = 0;
    unsigned char secret[16];
    *card = (struct ring_card){.port = l->port};
    (void)snprintf(card->agreement, sizeof card->agreement, "%s", agreement);
    (void)snprintf(card->host, sizeof card->host, "%s", host);
    TRY(machine_name(card->machine, f));
    TRY(own_addresses(card, f));
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret)
        FAIL(f, TABFT_SYSTEM, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof secret; i++) (void)snprintf(card->token + 2 * i, 3, "%02x", secret[i]);
fail:
    return error;
}

void ring_card_print(const struct ring_card *card, char text[COMM_CARD_SIZE])
{
    int n = snprintf(text, COMM_CARD_SIZE, "tabft1 %s %s %s %d %s", card->agreement, card->host, card->machine,
                     card->port, card->token);
    for (int i = 0; i < card->n_addresses && n > 0 && n < COMM_CARD_SIZE; i++)
        n += snprintf(text + n, (size_t)(COMM_CARD_SIZE - n), " %s", card->addresses[i]);
}

int ring_card_parse(struct ring_card *card, int rank, const char *text, struct tabft_failure *f)
{
    int at = 0;
    *card = (struct ring_card){0};
    if (sscanf(text, "tabft1 %127s %63s %79s %d %32s%n", card->agreement, card->host, card->machine, &card->port,
               card->token, &at) != 5 ||
        at == 0 || card->port < 1 || card->port > 65535 || strlen(card->token) != RING_TOKEN_SIZE - 1)
        return tabft_fail(f, TABFT_SYSTEM, "rank %d is of another TabFT: its address cannot be read; start one build",
                          rank);
    for (int used; card->n_addresses < RING_ADDRESSES; at += used, card->n_addresses++)
        if (sscanf(text + at, " %45s%n", card->addresses[card->n_addresses], &used) != 1) break;
    return 0;
}

static int wait_for(int fd, short events, double until)
{
    for (;;) {
        const double left = (until - comm_now()) * 1000;
        struct pollfd p = {.fd = fd, .events = events};
        const int n = poll(&p, 1, left > 0 ? (int)left + 1 : 0);
        if (n > 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ETIMEDOUT;
        return -1;
    }
}

/* A node that vanishes sends no end: after about 8 s without an answer the connection counts as ended. */
static void set_patience(int fd)
{
    const int on = 1, idle = 3, interval = 2, count = 2, user_ms = 8000;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* A connected socket to address:port, or -1 with errno. */
static int connect_to(const char *address, int port, double until)
{
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const bool is4 = inet_pton(AF_INET, address, &in4.sin_addr) == 1;
    if (!is4 && inet_pton(AF_INET6, address, &in6.sin6_addr) != 1) return errno = EINVAL, -1;
    const int fd = socket(is4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    const struct sockaddr *to = is4 ? (const struct sockaddr *)&in4 : (const struct sockaddr *)&in6;
    int e = 0;
    socklen_t size = sizeof e;
    if (connect(fd, to, is4 ? sizeof in4 : sizeof in6) != 0) {
        if (errno != EINPROGRESS || wait_for(fd, POLLOUT, until) != 0) e = errno;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &size) != 0) e = errno;
    }
    if (e == 0) return fd;
    close(fd);
    errno = e;
    return -1;
}

static bool is_own(const struct ring_card *mine, const char *address)
{
    for (int i = 0; i < mine->n_addresses; i++)
        if (strcmp(mine->addresses[i], address) == 0) return true;
    return false;
}

int ring_dial(int *fd, const struct ring_card *mine, const struct ring_card *card, int self, int rank, double until,
              struct tabft_failure *f)
{
    int e = EHOSTUNREACH, s = -1;
    char tried[256] = "";
    const bool same_machine = strcmp(mine->machine, card->machine) == 0;
    if (same_machine) {
        (void)snprintf(tried, sizeof tried, " 127.0.0.1");
        s = connect_to("127.0.0.1", card->port, until);
        if (s < 0) e = errno;
    }
    for (int i = 0; !same_machine && s < 0 && i < card->n_addresses; i++) {
        /* An address that this node has too (a bridge for containers) cannot lead to the other one. */
        if (is_own(mine, card->addresses[i])) continue;
        const double limit = comm_now() + 1e-3 * ADDRESS_WAIT_MS;
        const size_t n = strlen(tried);
        (void)snprintf(tried + n, sizeof tried - n, " %s", card->addresses[i]);
        s = connect_to(card->addresses[i], card->port, limit < until ? limit : until);
        if (s < 0) e = errno;
    }
    struct hello hello = {.rank = self};
    memcpy(hello.magic, hello_magic, sizeof hello.magic);
    memcpy(hello.token, card->token, sizeof card->token);
    if (s >= 0 && send(s, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
        e = errno;
        close(s);
        s = -1;
    }
    if (s < 0)
        return tabft_fail(f, TABFT_SYSTEM,
                          "rank %d on %s cannot be reached at port %d of%s: %s; the nodes of a job must "
                          "reach each other by TCP",
                          rank, card->host, card->port, tried[0] ? tried : " any address", strerror(e));
    set_patience(s);
    *fd = s;
    return 0;
}

/* Whether the other side of s introduces itself as `rank`. */
static bool hello_is(int s, const struct ring_card *mine, int rank, double until)
{
    struct hello hello;
    size_t filled = 0;
    while (filled < sizeof hello) {
        if (wait_for(s, POLLIN, until) != 0) return false;
        const ssize_t got = recv(s, (char *)&hello + filled, sizeof hello - filled, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return false;
        filled += (size_t)got;
    }
    return memcmp(hello.magic, hello_magic, sizeof hello.magic) == 0 &&
           memcmp(hello.token, mine->token, sizeof mine->token) == 0 && hello.rank == rank;
}

int ring_accept(int *fd, const struct ring_listener *l, const struct ring_card *mine, int rank, const char *host,
                double until, struct tabft_failure *f)
{
    for (;;) {
        if (wait_for(l->fd, POLLIN, until) != 0)
            return tabft_fail(f, TABFT_PEER, "rank %d on %s did not connect: %s", rank, host, strerror(errno));
        const int s = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s < 0) continue; /* it went away again */
        const double limit = comm_now() + 1e-3 * HELLO_WAIT_MS;
        if (hello_is(s, mine, rank, limit < until ? limit : until)) {
            set_patience(s);
            *fd = s;
            return 0;
        }
        close(s);
    }
}
