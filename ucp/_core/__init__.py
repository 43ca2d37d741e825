# SPDX-License-Identifier: BSD-3-Clause
"""The process's context, workers, connections and memory."""
