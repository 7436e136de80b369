// SPDX-License-Identifier: Apache-2.0
// Node's main thread and four of its workers ask for CUDA through an addon; so does a child process.
const { Worker, isMainThread, workerData } = require("worker_threads");
const { execFileSync } = require("child_process");
const path = isMainThread ? process.argv[2] : workerData;
const ask = () => "cuInit=" + require(path).ask();
if (!isMainThread || process.argv[3] === "child") {
  console.log(ask());
} else {
  console.log(ask());
  for (let i = 0; i < 4; ++i) new Worker(__filename, { workerData: path });
  process.stdout.write(execFileSync(process.execPath, [__filename, path, "child"]));
}
