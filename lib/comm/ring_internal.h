/* The sockets of the watchdog's ring: what a rank tells the others about itself (its card), dialling the next rank,
 * accepting the previous one. A connection counts only with the secret number on the card, which travels by PMIx. */
#ifndef TABFT_COMM_RING_INTERNAL_H
#define TABFT_COMM_RING_INTERNAL_H

#include "comm/comm_internal.h"

enum { RING_ADDRESSES = 12, RING_ADDRESS_SIZE = 46, RING_TOKEN_SIZE = 33, RING_MACHINE_SIZE = 80 };

struct ring_listener {
    int fd; /* -1: none */
    int port;
};

struct ring_card {
    char agreement[128];
    char host[COMM_HOST_SIZE];
    char machine[RING_MACHINE_SIZE]; /* kernel and network namespace: equal ones meet on the loopback address */
    int port;
    char token[RING_TOKEN_SIZE];     /* 128 random bits in hex */
    int n_addresses;
    char addresses[RING_ADDRESSES][RING_ADDRESS_SIZE];
};

void ring_listener_none(struct ring_listener *l);
int ring_listen(struct ring_listener *l, struct tabft_failure *f) TABFT_MUST_CHECK;
void ring_listener_close(struct ring_listener *l);

int ring_card_make(struct ring_card *card, const struct ring_listener *l, const char *host, const char *agreement,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
void ring_card_print(const struct ring_card *card, char text[COMM_CARD_SIZE]);
/* `rank` only for the message. */
int ring_card_parse(struct ring_card *card, int rank, const char *text, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Connects to `rank` as its card says and introduces rank `self`. `until` in seconds of CLOCK_MONOTONIC. */
int ring_dial(int *fd, const struct ring_card *mine, const struct ring_card *card, int self, int rank, double until,
              struct tabft_failure *f) TABFT_MUST_CHECK;
/* Waits for the connection of `rank`; any other is dropped. */
int ring_accept(int *fd, const struct ring_listener *l, const struct ring_card *mine, int rank, const char *host,
                double until, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
