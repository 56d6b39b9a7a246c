/* The options of a training, lines "NAME VALUE" or "NAME": what is taken can be recorded, and the record is that of the same
 * options. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "train/options.h"

/* The option of that name; train_option_count() if there is none. */
static size_t find(const char *name)
{
    size_t i = 0;
    while (i < train_option_count() && strcmp(train_option_at(i).name, name) != 0) i++;
    return i;
}

/* One line, which is changed, and to which a text option points from then on. */
static bool set(struct train_options *o, char *line)
{
    struct tabft_failure f = {0};
    char *value = line + strcspn(line, " ");
    if (*value != '\0') *value++ = '\0';
    const size_t i = find(line);
    if (i == train_option_count()) return false;
    return fuzz_taken(train_option_set(o, i, train_option_at(i).value_name != NULL ? value : NULL, &f), &f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tabft_failure f = {0};
    struct train_options o;
    char *text = malloc(size + 1), *rest, *json = NULL, *all = NULL;
    bool taken = text != NULL;
    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    train_options_default(&o);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) taken = set(&o, line) && taken;
    if (taken) (void)fuzz_taken(train_options_check(&o, &f), &f);
    if (fuzz_taken(train_options_json(&o, true, &json, &f), &f)) {
        json_t *recorded = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
        fuzz_hold(json_is_object(recorded), "options are recorded as JSON");
        fuzz_hold(train_options_compare(&o, recorded, &f) == 0, "a run may go on with the options that it recorded");
        json_decref(recorded);
    }
    if (fuzz_taken(train_options_json(&o, false, &all, &f), &f)) fuzz_hold(strlen(all) > 2, "all options are recorded");
    free(json);
    free(all);
    free(text);
    return 0;
}
