/* SPDX-License-Identifier: BSD-3-Clause */
/* port.h: a port for a listener that is opened later. */
#ifndef PORT_H
#define PORT_H

#include "unit.h"

/* A port of 127.0.0.1 for a listener with SO_REUSEADDR. Until the next is
 * chosen, the system gives it to nobody else. */
uint16_t port_choose(void);

#endif
