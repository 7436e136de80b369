# SPDX-License-Identifier: Apache-2.0
"""What the guard does not reach, behind the fence."""

import harness
import fence


class Programs(fence.Case):
    def test_static(self):
        words = [fence.program("requests_static"), "/dev/null", *fence.NVIDIA, *fence.OTHERS]
        bare = self.answers(self.bare(*words))
        self.assertEqual(set(bare.values()), {"ENOTTY"})
        fenced = self.answers(self.start("run", "--fence", "--", *words))
        self.assertEqual({fenced[one] for one in fence.NVIDIA}, {"ENODEV"})
        self.assertEqual({fenced[one] for one in fence.OTHERS}, {"ENOTTY"})


if __name__ == "__main__":
    harness.main()
