# SPDX-License-Identifier: Apache-2.0
"""Prints how many GPUs codecarbon measures."""

import logging

from codecarbon import OfflineEmissionsTracker

logging.getLogger("codecarbon").setLevel(logging.ERROR)
tracker = OfflineEmissionsTracker(country_iso_code="FRA", save_to_file=False, log_level="error",
                                  allow_multiple_runs=True)
tracker.start()
tracker.stop()
print("gpus=%d" % tracker.final_emissions_data.gpu_count)
