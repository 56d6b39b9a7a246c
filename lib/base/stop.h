/* Requests to stop: signals that ask a program for an orderly end, remembered until it looks. */
#ifndef TABFT_BASE_STOP_H
#define TABFT_BASE_STOP_H

/* From now on SIGUSR1 and SIGTERM no longer end the process but are remembered; those that are ignored stay ignored.
 * SIGTERM may also come because something is broken, so it sets a limit: a process that still runs `term_seconds` later
 * (0: no limit) writes one line to stderr and ends by SIGALRM, as its handler at the time of this call does it. Whole
 * process; calling it again changes the limit alone. */
void stop_catch(unsigned term_seconds);

/* The signal that asked last, 0 for none. Any thread. */
int stop_requested(void);

#endif
