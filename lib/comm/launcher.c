/* Who started this process, and the PMIx client. Slurm's PMIx server offers little, so only Init, Get, Put, Commit,
 * Fence, Abort and Finalize are used. The library belongs to the site: it is opened by name, with local symbols, so
 * that an MPI that brings its own copy does not clash with it (both may join: PMIx counts). */
#include "comm/comm_internal.h"

#include <dlfcn.h>
/* PMIx's own inline functions do not pass our warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <pmix.h>
#pragma GCC diagnostic pop
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

/* result, name, parameters */
#define PMIX_FUNCTIONS(X)                                                                                              \
    X(pmix_status_t, PMIx_Init, (pmix_proc_t *, pmix_info_t *, size_t))                                                \
    X(pmix_status_t, PMIx_Finalize, (const pmix_info_t *, size_t))                                                     \
    X(pmix_status_t, PMIx_Abort, (int, const char *, pmix_proc_t *, size_t))                                           \
    X(pmix_status_t, PMIx_Put, (pmix_scope_t, const char *, pmix_value_t *))                                           \
    X(pmix_status_t, PMIx_Commit, (void))                                                                              \
    X(pmix_status_t, PMIx_Fence, (const pmix_proc_t *, size_t, const pmix_info_t *, size_t))                           \
    X(pmix_status_t, PMIx_Get, (const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **))      \
    X(const char *, PMIx_Error_string, (pmix_status_t))                                                                \
    X(const char *, PMIx_Get_version, (void))

#define PMIX_LIBRARY "libpmix.so.2"
#define CARD_KEY "tabft.card"
#define WORDS_KEY "tabft.words"

struct pmix_client {
    void *library;
#define X(result, name, parameters) result(*name) parameters;
    PMIX_FUNCTIONS(X)
#undef X
};

struct launcher {
    struct pmix_client pmix;
    pmix_proc_t self;
    int size, local_rank;
    char version[64];
};

/* The value of an environment variable that must be a count; 0 where it is missing or not a number. */
static long count_from(const char *name)
{
    const char *text = getenv(name);
    if (text == NULL) return 0;
    char *end;
    const long n = strtol(text, &end, 10);
    return end != text && *end == '\0' && n > 0 ? n : 0;
}

int launcher_detect(bool *pmix, struct tabft_failure *f)
{
    *pmix = getenv("PMIX_NAMESPACE") != NULL;
    if (*pmix) return 0;
    /* Without PMIx every process would believe to be alone. SLURM_NTASKS says nothing: the batch script has it too. */
    const long slurm = count_from("SLURM_STEP_NUM_TASKS"), pmi = count_from("PMI_SIZE");
    const long open_mpi = count_from("OMPI_COMM_WORLD_SIZE");
    if (slurm > 1 && (pmi > 1 || getenv("PMI_FD") != NULL))
        return tabft_fail(f, TABFT_USE,
                          "srun started %ld processes with PMI-2, which TabFT does not speak; use srun --mpi=pmix",
                          slurm);
    if (slurm > 1)
        return tabft_fail(f, TABFT_USE,
                          "srun started %ld separate processes that cannot see each other; add --mpi=pmix to srun",
                          slurm);
    if (pmi > 1 || open_mpi > 1)
        return tabft_fail(f, TABFT_USE,
                          "a launcher without PMIx started %ld processes; use srun --mpi=pmix or Open MPI's mpirun",
                          pmi > 1 ? pmi : open_mpi);
    return 0;
}

void launcher_host(char host[COMM_HOST_SIZE])
{
    const char *slurm = getenv("SLURMD_NODENAME");
    char name[256] = "";
    if (slurm == NULL && gethostname(name, sizeof name - 1) != 0) (void)snprintf(name, sizeof name, "unknown-host");
    (void)snprintf(host, COMM_HOST_SIZE, "%.*s", COMM_HOST_SIZE - 1, slurm != NULL ? slurm : name);
    if (slurm == NULL) host[strcspn(host, ".")] = '\0';
    /* It travels in cards and messages: nothing but what host names are made of. */
    for (char *p = host; *p; p++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *p) == NULL) *p = '_';
}

static int pmix_load(struct pmix_client *pmix, struct tabft_failure *f)
{
    pmix->library = dlopen(PMIX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (pmix->library == NULL)
        return tabft_fail(f, TABFT_SYSTEM,
                          "the launcher offers PMIx, but its library cannot be opened: %s; install it (Debian: "
                          "libpmix2) or load the site's module",
                          dlerror());
#define X(result, name, parameters)                                                                                    \
    {                                                                                                                  \
        void *symbol = dlsym(pmix->library, #name);                                                                    \
        if (symbol == NULL)                                                                                            \
            return tabft_fail(f, TABFT_SYSTEM, "%s has no %s; PMIx 3 or newer is needed", PMIX_LIBRARY, #name);        \
        memcpy(&pmix->name, &symbol, sizeof symbol);                                                                   \
    }
    PMIX_FUNCTIONS(X)
#undef X
    return 0;
}

static void pmix_unload(struct pmix_client *pmix)
{
    if (pmix->library != NULL) dlclose(pmix->library);
    pmix->library = NULL;
}

static int pmix_failed(const struct launcher *l, int code, const char *doing, pmix_status_t status,
                       struct tabft_failure *f)
{
    return tabft_fail(f, code, "PMIx, %s: %s", doing, l->pmix.PMIx_Error_string(status));
}

/* The launcher's own facts about the job (rank PMIX_RANK_WILDCARD) or this rank, as a number. */
static int get_number(struct launcher *l, pmix_rank_t rank, const char *key, int *out, struct tabft_failure *f)
{
    pmix_proc_t proc = l->self;
    pmix_value_t *value = NULL;
    proc.rank = rank;
    const pmix_status_t status = l->pmix.PMIx_Get(&proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) return pmix_failed(l, TABFT_SYSTEM, key, status, f);
    long number = -1;
    if (value->type == PMIX_UINT32) number = (long)value->data.uint32;
    else if (value->type == PMIX_UINT16) number = (long)value->data.uint16;
    else if (value->type == PMIX_INT) number = value->data.integer;
    free(value);
    if (number < 0 || number > 1 << 24)
        return tabft_fail(f, TABFT_SYSTEM, "PMIx: the launcher's %s is no number of ranks", key);
    *out = (int)number;
    return 0;
}

int launcher_join(struct launcher **out, struct tabft_failure *f)
{
    int error = 0;
    bool joined = false;
    struct launcher *l = NULL;
    TRY(memory_new(&l, 1, sizeof *l, "the launcher", f));
    TRY(pmix_load(&l->pmix, f));
    /* "OpenPMIx 4.2.2 (PMIx Standard: …, …)": the first two words are enough. */
    (void)snprintf(l->version, sizeof l->version, "%s", l->pmix.PMIx_Get_version());
    char *end = strpbrk(l->version, ",(");
    if (end != NULL) *end = '\0';
    for (size_t n = strlen(l->version); n > 0 && l->version[n - 1] == ' '; n--) l->version[n - 1] = '\0';
    const pmix_status_t status = l->pmix.PMIx_Init(&l->self, NULL, 0);
    if (status != PMIX_SUCCESS) TRY(pmix_failed(l, TABFT_SYSTEM, "joining the launcher", status, f));
    joined = true;
    TRY(get_number(l, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &l->size, f));
    TRY(get_number(l, l->self.rank, PMIX_LOCAL_RANK, &l->local_rank, f));
    if (l->size < 1 || l->self.rank >= (pmix_rank_t)l->size)
        FAIL(f, TABFT_SYSTEM, "PMIx: the launcher calls this rank %u of %d", (unsigned)l->self.rank, l->size);
    *out = l;
    return 0;
fail:
    if (joined) launcher_leave(l);
    else if (l != NULL) {
        pmix_unload(&l->pmix);
        free(l);
    }
    return error;
}

int launcher_rank(const struct launcher *l) { return (int)l->self.rank; }
int launcher_size(const struct launcher *l) { return l->size; }
int launcher_local_rank(const struct launcher *l) { return l->local_rank; }
bool launcher_is_slurm(const struct launcher *l) { return strncmp(l->self.nspace, "slurm.", 6) == 0; }
const char *launcher_version(const struct launcher *l) { return l->version; }

/* With COLLECT_DATA: without it a fence of Slurm 22.05 waits for nobody. */
static pmix_status_t fence(const struct launcher *l)
{
    pmix_info_t collect = {.key = PMIX_COLLECT_DATA};
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    return l->pmix.PMIx_Fence(NULL, 0, &collect, 1);
}

int launcher_meet(struct launcher *l, struct tabft_failure *f)
{
    pmix_status_t status = fence(l);
    return status == PMIX_SUCCESS ? 0 : pmix_failed(l, TABFT_PEER, "waiting for the other ranks", status, f);
}

/* Puts a text under `key` for the others, and waits until all ranks are there. */
static int put_text(struct launcher *l, const char *key, const char *text, const char *doing, struct tabft_failure *f)
{
    int error = 0;
    pmix_value_t value = {.type = PMIX_STRING};
    char *copy = NULL;
    TRY(memory_copy_string(&copy, text, f));
    value.data.string = copy;
    pmix_status_t status = l->pmix.PMIx_Put(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS) status = l->pmix.PMIx_Commit();
    if (status == PMIX_SUCCESS) status = fence(l);
    if (status != PMIX_SUCCESS) TRY(pmix_failed(l, TABFT_PEER, doing, status, f));
fail:
    free(copy);
    return error;
}

static int get_text(struct launcher *l, int rank, const char *key, char *text, size_t size, const char *what,
                    struct tabft_failure *f)
{
    pmix_proc_t proc = l->self;
    pmix_value_t *value = NULL;
    proc.rank = (pmix_rank_t)rank;
    const pmix_status_t status = l->pmix.PMIx_Get(&proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) return pmix_failed(l, TABFT_PEER, what, status, f);
    const bool fits = value->type == PMIX_STRING && strlen(value->data.string) < size;
    if (fits) (void)snprintf(text, size, "%s", value->data.string);
    if (value->type == PMIX_STRING) free(value->data.string);
    free(value);
    return fits ? 0 : tabft_fail(f, TABFT_SYSTEM, "PMIx, %s: rank %d's is not what TabFT writes", what, rank);
}

int launcher_publish(struct launcher *l, const char *card, struct tabft_failure *f)
{
    return put_text(l, CARD_KEY, card, "exchanging addresses with the other ranks", f);
}

int launcher_card(struct launcher *l, int rank, char card[COMM_CARD_SIZE], struct tabft_failure *f)
{
    return get_text(l, rank, CARD_KEY, card, COMM_CARD_SIZE, "the address of another rank", f);
}

int launcher_say(struct launcher *l, const char *words, struct tabft_failure *f)
{
    return put_text(l, WORDS_KEY, words, "exchanging the engine's words with the other ranks", f);
}

int launcher_said(struct launcher *l, int rank, char *words, size_t size, struct tabft_failure *f)
{
    return get_text(l, rank, WORDS_KEY, words, size, "the engine's words", f);
}

void launcher_abort(struct launcher *l, int status)
{
    if (l != NULL) (void)l->pmix.PMIx_Abort(status, "TabFT", NULL, 0);
}

void launcher_leave(struct launcher *l)
{
    if (l == NULL) return;
    (void)l->pmix.PMIx_Finalize(NULL, 0);
    /* The library stays loaded: an MPI may still use the same instance, and its threads may be on their way out. */
    free(l);
}

void launcher_describe(char *text, size_t size)
{
    struct pmix_client pmix = {0};
    struct tabft_failure f = {0};
    Dl_info where = {0};
    if (pmix_load(&pmix, &f) < 0) {
        (void)snprintf(text, size, "not found (%s)", f.message);
    } else {
        void *symbol;
        memcpy(&symbol, &pmix.PMIx_Init, sizeof symbol);
        const bool found = dladdr(symbol, &where) != 0 && where.dli_fname != NULL;
        (void)snprintf(text, size, "%s, %s", pmix.PMIx_Get_version(), found ? where.dli_fname : PMIX_LIBRARY);
    }
    pmix_unload(&pmix);
}
