# SPDX-License-Identifier: Apache-2.0
"""The lab: what scripts/lab runs. Each module below is one part of it."""
