-- SPDX-License-Identifier: Apache-2.0
-- Views for DuckDB 1.3 or newer, with what `cudaguard report records/` counts. Start in the directory
-- that contains `records`:  duckdb -init /usr/local/share/cudaguard/duckdb/records.sql
-- python[line_frame + 1] is a record's line. A record that follows a cut one on the same line is
-- skipped.
CREATE VIEW records AS
SELECT * EXCLUDE (filename), decision = 'deny' OR event IN ('init', 'nvml', 'context') AS attempt,
       coalesce('slurm:' || coalesce(slurm, nullif(regexp_extract(cgroup, '/job_([^/.]+)', 1), '')),
                CASE WHEN cgroup LIKE '%kubepods%' THEN 'kubernetes:' ||
                  replace(nullif(regexp_extract(cgroup, '[/-]pod([^/.]+)', 1), ''), '_', '-') END,
                'systemd:' || nullif(regexp_extract(cgroup, '^.*/([^/]+\.(service|scope))(/.*)?$', 1), '')) AS job
FROM read_json('records/**/*.jsonl*', format = 'newline_delimited', ignore_errors = true, filename = true, columns = {
       v: 'BIGINT', ts: 'DOUBLE', pid: 'BIGINT', uid: 'BIGINT', host: 'VARCHAR', exe: 'VARCHAR',
       cgroup: 'VARCHAR', slurm: 'VARCHAR', api: 'VARCHAR', event: 'VARCHAR', decision: 'VARCHAR',
       library: 'VARCHAR', code: 'VARCHAR', line_frame: 'BIGINT',
       python: 'STRUCT(file VARCHAR, line BIGINT, "function" VARCHAR)[]'})
WHERE v = 1 AND decision IS NOT NULL  -- no start records, which do not say the host
  AND event IS DISTINCT FROM 'health'  -- the launcher's
  AND NOT regexp_matches(filename, '\.(gz|zst)$');

CREATE VIEW processes AS
SELECT host, pid, exe, job, any_value(uid) AS uid, bool_or(event IS DISTINCT FROM 'exposed') AS asked, min(ts) AS first, max(ts) AS last
FROM records GROUP BY host, pid, exe, job;
