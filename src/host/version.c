/* SPDX-License-Identifier: BSD-3-Clause */
/* version.c: which libumx this is. setup.py and the Makefile define
 * UMI_HEADERS_ID. */
#include <umx/version.h>

#ifndef UMI_HEADERS_ID
#define UMI_HEADERS_ID "unknown"
#endif

#define TEXT_OF(number) #number
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *
umx_version_string(void)
{
    return VERSION_TEXT(UMX_VERSION_MAJOR, UMX_VERSION_MINOR,
                        UMX_VERSION_PATCH);
}

const char *
umx_headers_id(void)
{
    return UMI_HEADERS_ID;
}
