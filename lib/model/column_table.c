/* share/models/column-embeddings.safetensors as bytes in the program. COLUMN_TABLE is its path when the compiler
 * runs. */
__asm__(".section .rodata\n"
        ".global column_table_file, column_table_end\n"
        ".balign 64\n"
        "column_table_file:\n"
        ".incbin \"" COLUMN_TABLE "\"\n"
        "column_table_end:\n"
        ".byte 0\n"
        ".previous\n");

typedef int column_table_is_assembler;
