/* SPDX-License-Identifier: BSD-3-Clause */
/* nvml.c: a libnvidia-ml.so.1 that knows no device, which UCX is linked with.
 */
enum {
    DRIVER_NOT_LOADED = 9
};

const char *nvmlErrorString(int result);
int         nvmlInit_v2(void);
int         nvmlShutdown(void);

const char *
nvmlErrorString(int result)
{
    (void)result;
    return "driver not loaded";
}

int
nvmlInit_v2(void)
{
    return DRIVER_NOT_LOADED;
}

int
nvmlShutdown(void)
{
    return DRIVER_NOT_LOADED;
}
