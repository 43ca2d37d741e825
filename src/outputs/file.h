/* SPDX-License-Identifier: BSD-3-Clause */
/* file.h: outputs that are files. */
#ifndef UMI_OUTPUTS_FILE_H
#define UMI_OUTPUTS_FILE_H

#include <stddef.h>
#include <stdint.h>

/* What identifies a file. */
typedef struct umi_outputs_file_id {
    uint64_t device;
    uint64_t inode;
    uint64_t mtime_ns;
    uint64_t len;
} umi_outputs_file_id;

/* Returns an errno, or 0. */
int umi_outputs_file_identify(int fd, umi_outputs_file_id *id);

/* Open a file that has to be that one. Returns the descriptor, or -1 with an
 * errno: ESTALE if it is another one. */
int umi_outputs_file_open(const char *path, size_t path_len,
                          const umi_outputs_file_id *id, int *error);

/* Read `len` bytes. Returns an errno, or 0; ESTALE if the file is shorter. */
int umi_outputs_file_read(int fd, void *data, size_t len, uint64_t offset);

#endif
