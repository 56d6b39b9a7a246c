/* Plugins: shared objects that belong to what a site has (an MPI, GPUs) and are opened at run time, by kind and name.
 * Whoever can write a plugin runs code in the job, so a plugin's folder and file must belong to root or the user and be
 * writable by nobody else. A plugin uses nothing of libtabft that it does not bring itself. Thread safe. */
#ifndef TABFT_BASE_PLUGIN_H
#define TABFT_BASE_PLUGIN_H

#include "base/failure.h"

enum { PLUGIN_PATH_MAX = 4096 };

/* What a plugin exports: gives its table of functions, whose first member is `int abi`. */
typedef const void *plugin_entry(void);

struct plugin_kind {
    const char *word;  /* "engine": of messages; the file is tabft-WORD-NAME.so */
    const char *entry; /* the symbol, a plugin_entry */
    int abi;           /* what the table's abi must be */
};

/* Finds, checks and opens the plugin `name` of a kind: in the folders of the environment's TABFT_PLUGIN_PATH
 * (colon-separated), in ../lib/tabft beside the program, in the folder that TabFT was configured for. *table is its
 * table, path where it was found. It stays loaded until the process ends. `missing` and `broken` end the messages where
 * there is none and where it cannot be opened ("load the site's MPI module"). Errors: TABFT_USE where there is none, where
 * others may write to it or it is no plugin of this build; TABFT_SYSTEM where a library that it needs is not there. */
int plugin_open(const struct plugin_kind *kind, const char *name, const char *missing, const char *broken,
                const void **table, char path[PLUGIN_PATH_MAX], struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
