# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: how ranks meet, and what they do together."""
