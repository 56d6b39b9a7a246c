/* Gives each file named on the command line to the fuzzer it is linked with, once: what `make check` does with the
 * stored inputs, without libFuzzer. Ends as the fuzzer does where a promise is broken. */
#include <stdio.h>
#include <stdlib.h>

#include "file/file.h"
#include "fuzz.h"

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        struct tabft_failure f = {0};
        void *bytes = NULL;
        size_t size = 0;
        if (file_read_all(arguments[i], 1 << 24, &bytes, &size, &f) < 0) {
            fprintf(stderr, "%s\n", f.message);
            return 4;
        }
        /* A copy of just its size, so that a byte read beyond it shows. */
        uint8_t *copy = malloc(size > 0 ? size : 1);
        if (copy == NULL) return 4;
        for (size_t k = 0; k < size; k++) copy[k] = ((const uint8_t *)bytes)[k];
        free(bytes);
        printf("%s\n", arguments[i]);
        fflush(stdout); /* the last line names the input that broke something */
        if (LLVMFuzzerTestOneInput(copy, size) != 0) return 1;
        free(copy);
    }
    printf("%d inputs\n", count - 1);
    return 0;
}
